"""Doubts about the speculation: not counted right, not in effect, or hardly ever accepted."""

from collections.abc import Callable, Iterator

from tuner.metrics.samples import SpecCounts
from tuner.metrics.warnings.warning import CheckResult, Level

NO_ACCEPTANCE = 1.05
LOW_ACCEPT_RATE = 0.25


def counts(level: Level) -> Iterator[CheckResult]:
    """The engine's counts of verifies and accepted drafts are not those of the tokens that came.

    Prefill gives one token, each verify its accepted drafts and a bonus. The last verify may have
    been cut at the length asked for, by fewer tokens than it emitted.
    """
    ended = [s for s in level.samples if s.finish_reason and s.engine_tokens is not None]
    for is_wrong, what in _CONTRADICTIONS:
        wrong = sum(
            is_wrong(sample.spec, sample.tokens, level.context.num_steps)
            for sample in ended
            if sample.spec
        )
        if wrong:
            yield CheckResult(
                "speculative counts",
                "doubt",
                f"in {wrong} of {len(ended)} requests {what}, so its acceptance figures are not to "
                "be trusted",
                "judge this point by its tok/s alone, and try another release of the engine",
            )
            return


def _too_few(spec: SpecCounts, tokens: int, _steps: int | None) -> bool:
    return tokens > 1 + spec.verify_ct + spec.correct_drafts


def _too_many(spec: SpecCounts, tokens: int, steps: int | None) -> bool:
    """A verify accepts as many drafts as there are steps at most, and the last one is cut by no
    more."""
    if steps is None:
        return False
    of = spec.verify_ct + spec.correct_drafts
    return of > tokens - 1 + steps or spec.correct_drafts > steps * spec.verify_ct


def _torn(spec: SpecCounts, _tokens: int, _steps: int | None) -> bool:
    """The verifies by accepted drafts are the same ones."""
    if not spec.histogram:
        return False
    drafts = sum(accepted * times for accepted, times in enumerate(spec.histogram))
    return (sum(spec.histogram), drafts) != (spec.verify_ct, spec.correct_drafts)


_CONTRADICTIONS: tuple[tuple[Callable[[SpecCounts, int, int | None], bool], str], ...] = (
    (_too_few, "more tokens came than the engine's verifies and accepted drafts explain"),
    (_too_many, "the engine counts more verifies or accepted drafts than the tokens that came"),
    (_torn, "the engine's verifies by accepted drafts are not as many as its verifies and drafts"),
)


def acceptance(level: Level) -> Iterator[CheckResult]:
    """No verify at all, or drafts that are hardly ever accepted."""
    steps = level.context.num_steps
    if steps is None:
        return
    accept_length, first = level.metrics["accept_length"], level.metrics["accept_rate_first"]
    if accept_length is None:
        if any(sample.error is None for sample in level.samples):
            yield CheckResult(
                "speculation not in effect",
                "doubt",
                f"num_steps is {steps} and the engine reports no verify",
                "look in the server's log whether it switched speculation off",
            )
    elif accept_length < NO_ACCEPTANCE:
        yield CheckResult(
            "accept length",
            "doubt",
            f"accept length is {accept_length:.2f}, hardly a draft is accepted: a wiring fault",
            "check that the draft belongs to this target, and which hidden states it is wired to",
        )
    elif first is not None and first < LOW_ACCEPT_RATE:
        yield CheckResult(
            "accept rate",
            "doubt",
            f"only {first:.0%} of first drafts are accepted; a rate far below the draft's "
            "published one is a wiring fault and not a setting to tune around",
            "compare with the published rate on like prompts, and check the draft's wiring",
        )
