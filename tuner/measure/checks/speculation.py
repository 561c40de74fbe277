"""Doubts about the speculation: not counted right, not in effect, or hardly ever accepted."""

from collections.abc import Iterator

from tuner.measure.checks.doubt import Doubt, Level

NO_ACCEPTANCE = 1.05
LOW_ACCEPT_RATE = 0.25


def counts(level: Level) -> Iterator[Doubt]:
    """More tokens than the engine's counts of verifies and accepted drafts explain.

    Prefill gives one token, each verify its accepted drafts and a bonus. The last verify may have
    been cut at the length asked for, by fewer tokens than it emitted.
    """
    ended = [s for s in level.samples if s.finish_reason and s.engine_tokens is not None]
    short = [
        sample
        for sample in ended
        if sample.spec and sample.tokens > 1 + sample.spec.verify_ct + sample.spec.correct_drafts
    ]
    if short:
        yield Doubt(
            "speculative counts",
            "doubt",
            f"in {len(short)} of {len(ended)} requests more tokens came than the engine's verifies "
            "and accepted drafts explain, so its acceptance figures are not to be trusted",
            "judge this point by its tok/s alone, and try another release of the engine",
        )


def acceptance(level: Level) -> Iterator[Doubt]:
    """No verify at all, or drafts that are hardly ever accepted."""
    steps = level.context.num_steps
    if steps is None:
        return
    accept_length, first = level.metrics["accept_length"], level.metrics["accept_rate_first"]
    if accept_length is None:
        if any(sample.error is None for sample in level.samples):
            yield Doubt(
                "speculation not in effect",
                "doubt",
                f"num_steps is {steps} and the engine reports no verify",
                "look in the server's log whether it switched speculation off",
            )
    elif accept_length < NO_ACCEPTANCE:
        yield Doubt(
            "accept length",
            "doubt",
            f"accept length is {accept_length:.2f}, hardly a draft is accepted: a wiring fault",
            "check that the draft belongs to this target, and which hidden states it is wired to",
        )
    elif first is not None and first < LOW_ACCEPT_RATE:
        yield Doubt(
            "accept rate",
            "doubt",
            f"only {first:.0%} of first drafts are accepted; a rate far below the draft's "
            "published one is a wiring fault and not a setting to tune around",
            "compare with the published rate on like prompts, and check the draft's wiring",
        )
