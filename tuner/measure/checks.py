"""Doubts about a level's numbers, as values: what looks wrong, the likely cause, what to try."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tuner.measure.samples import RequestSample, Window
from tuner.measure.statistics import output_tok_s

MIN_TOKENS = 1000
MAX_HALF_WIDTH = 0.03
MAX_CLIENT_CPU_SHARE = 0.7
MAX_COLD_DIFFERENCE = 0.10
NO_ACCEPTANCE = 1.05
LOW_ACCEPT_RATE = 0.25


@dataclass(frozen=True)
class Doubt:
    """A reason to distrust a number (`doubt`) or something to know about it (`note`)."""

    check: str
    level: Literal["doubt", "note"]
    message: str


@dataclass(frozen=True)
class Context:
    """What the checks need to know beside the samples. Steps and topk None: no speculation."""

    num_steps: int | None
    eagle_topk: int | None
    tokenise_doubt: str | None = None
    """What was doubtful when the prompts were rendered and tokenised."""


@dataclass(frozen=True)
class _Level:
    windows: Sequence[Window]
    samples: Sequence[RequestSample]
    metrics: Mapping[str, Any]
    context: Context


def doubts(windows: Sequence[Window], metrics: Mapping[str, Any], context: Context) -> list[Doubt]:
    """All doubts about one concurrency level; `metrics` is what `summarise` made of `windows`."""
    samples = [sample for window in windows for sample in window.samples]
    level = _Level(windows, samples, metrics, context)
    return [doubt for check in _CHECKS for doubt in check(level)]


def _failed_requests(level: _Level) -> Iterator[Doubt]:
    errors = [sample.error for sample in level.samples if sample.error is not None]
    if errors:
        yield Doubt(
            "failed requests",
            "doubt",
            f"{len(errors)} of {len(level.samples)} requests failed or were cut short, the first: "
            f"{errors[0]}; see the server's log, and lower the concurrency if it is overloaded",
        )
    for reason in dict.fromkeys(window.stopped for window in level.windows if window.stopped):
        yield Doubt("stopped early", "doubt", f"the rest of a window was not sent because {reason}")


def _token_counts(level: _Level) -> Iterator[Doubt]:
    """Streams against the engine's final counts; cut streams have no final count."""
    ended = [s for s in level.samples if s.finish_reason and s.engine_tokens is not None]
    unequal = [s for s in ended if s.tokens != s.engine_tokens]
    if unequal:
        first = unequal[0]
        yield Doubt(
            "token counts",
            "doubt",
            f"in {len(unequal)} of {len(ended)} requests the engine's token count differs from "
            f"what was streamed (prompt {first.prompt_id}: {first.engine_tokens} against "
            f"{first.tokens}); speeds may be off by as much, look for retractions in the log",
        )
    # Prefill gives one token, each verify its accepted drafts and a bonus. The last verify may
    # have been cut at the length asked for, by fewer tokens than it emitted.
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
            "and accepted drafts explain; its acceptance figures are not to be trusted here",
        )


def _speculation(level: _Level) -> Iterator[Doubt]:
    if level.context.num_steps is None:
        return
    accept_length, first = level.metrics["accept_length"], level.metrics["accept_rate_first"]
    if accept_length is None:
        if any(sample.error is None for sample in level.samples):
            yield Doubt(
                "speculation not in effect",
                "doubt",
                f"num_steps is {level.context.num_steps} and the engine reports no verify: look in "
                "the server's log whether it switched speculation off",
            )
    elif accept_length < NO_ACCEPTANCE:
        yield Doubt(
            "accept length",
            "doubt",
            f"accept length is {accept_length:.2f}, hardly a draft is accepted: check that the "
            "draft belongs to this target, and which hidden states it is wired to",
        )
    elif first is not None and first < LOW_ACCEPT_RATE:
        yield Doubt(
            "accept rate",
            "doubt",
            f"only {first:.0%} of first drafts are accepted; compare with the draft's published "
            "rate, a rate far below it is a wiring fault and not a setting to tune around",
        )


def _too_few_tokens(level: _Level) -> Iterator[Doubt]:
    tokens = level.metrics["completion_tokens"]
    if tokens < MIN_TOKENS:
        yield Doubt(
            "too few tokens",
            "note",
            f"{tokens} tokens are few to judge by: raise workload.requests, "
            f"workload.output_tokens or measure.repeats until there are {MIN_TOKENS} and more",
        )


def _noisy(level: _Level) -> Iterator[Doubt]:
    """One window does not show noise: its interval is the spread between prompts."""
    value, low, high = (level.metrics[f"output_tok_s{end}"] for end in ("", "_low", "_high"))
    if len(level.windows) < 2 or not value or low is None or high is None:
        return
    half_width = (high - low) / 2 / value
    if half_width > MAX_HALF_WIDTH:
        yield Doubt(
            "noisy",
            "doubt",
            f"the 95 % interval of output_tok_s is ±{half_width:.1%} wide over "
            f"{len(level.windows)} windows: raise measure.repeats, make windows longer, and see "
            "that nothing else uses the GPUs or the client's CPU",
        )


def _client_bound(level: _Level) -> Iterator[Doubt]:
    share = level.metrics["client_cpu_share"]
    if share is not None and share > MAX_CLIENT_CPU_SHARE:
        yield Doubt(
            "client-bound",
            "doubt",
            f"the load client used {share:.0%} of the one core it can use, so it may be what is "
            "measured: lower the concurrency or run specbench on a faster or idle CPU",
        )


def _cold_cache(level: _Level) -> Iterator[Doubt]:
    if len(level.windows) < 2:
        return
    first, rest = output_tok_s(level.windows[:1]), output_tok_s(level.windows[1:])
    if first is None or rest is None:
        return
    difference = first / rest - 1
    if abs(difference) > MAX_COLD_DIFFERENCE:
        word = "slower" if difference < 0 else "faster"
        yield Doubt(
            "cold cache",
            "note",
            f"the first window was {abs(difference):.0%} {word} than the others: raise "
            "measure.warmup_requests, so that kernels and caches are warm before it",
        )


def _tokenisation(level: _Level) -> Iterator[Doubt]:
    if level.context.tokenise_doubt is not None:
        yield Doubt("tokenisation", "doubt", level.context.tokenise_doubt)


_CHECKS: tuple[Callable[[_Level], Iterator[Doubt]], ...] = (
    _failed_requests,
    _token_counts,
    _speculation,
    _too_few_tokens,
    _noisy,
    _client_bound,
    _cold_cache,
    _tokenisation,
)
