"""Doubts about the answers: failed, miscounted, of other lengths than the baseline's, or loops."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean

from tuner.metrics.output_comparison import BLOCK, looped_share
from tuner.metrics.samples import RequestSample, Window
from tuner.metrics.statistics import complete
from tuner.metrics.warnings.warning import CheckResult, Level

MAX_LENGTH_DIFFERENCE = 0.05
MAX_LOOPED = 0.10
"""Of the answers, those that are a loop for half of their length or more."""


def failed_requests(level: Level) -> Iterator[CheckResult]:
    """Requests that failed or were cut short, and load that was not sent."""
    errors = [sample.error for sample in level.samples if sample.error is not None]
    if errors:
        yield CheckResult(
            "failed requests",
            "doubt",
            f"{len(errors)} of {len(level.samples)} requests failed or were cut short, the first: "
            f"{errors[0]}",
            "see the server's log, and lower the concurrency if it is overloaded",
        )
    for reason in dict.fromkeys(window.stopped for window in level.windows if window.stopped):
        yield CheckResult(
            "stopped early",
            "doubt",
            f"the rest of a window was not sent because {reason}",
            "see the server's log, then measure again: `--resume` measures what failed",
        )


def token_counts(level: Level) -> Iterator[CheckResult]:
    """Streams against the engine's final counts; cut streams have no final count."""
    ended = [s for s in level.samples if s.finish_reason and s.engine_tokens is not None]
    unequal = [s for s in ended if s.tokens != s.engine_tokens]
    if unequal:
        first = unequal[0]
        yield CheckResult(
            "token counts",
            "doubt",
            f"in {len(unequal)} of {len(ended)} requests the engine's token count differs from "
            f"what was streamed (prompt {first.prompt_id}: {first.engine_tokens} against "
            f"{first.tokens}), so speeds may be off by as much",
            "look for retractions in the server's log; fewer requests at a time need less memory",
        )


def unequal_lengths(level: Level) -> Iterator[CheckResult]:
    """Answers that end by themselves, at other lengths than the baseline's."""
    own, below = _lengths(level.windows), _lengths(level.context.baseline)
    shared = sorted(own.keys() & below.keys())
    if not shared:
        return
    here, there = (mean(of[each] for each in shared) for of in (own, below))
    if not there or abs(here / there - 1) <= MAX_LENGTH_DIFFERENCE:
        return
    stopped = sum(sample.finish_reason == "stop" for sample in level.samples)
    word = "shorter" if here < there else "longer"
    yield CheckResult(
        "unequal lengths",
        "doubt",
        f"answers are {abs(here / there - 1):.0%} {word} than the baseline's ({here:.0f} tokens "
        f"against {there:.0f} on average over {len(shared)} prompts, {stopped} of "
        f"{len(level.samples)} ended by themselves), so speeds compare different work",
        "set workload.ignore_eos: true, or temperature: 0 and an output_tokens that all reach",
    )


def _lengths(windows: Sequence[Window]) -> Mapping[str, float]:
    """Mean tokens of each prompt's complete answers."""
    tokens: dict[str, list[int]] = {}
    for sample in complete(windows):
        tokens.setdefault(sample.prompt_id, []).append(sample.tokens)
    return {prompt: mean(each) for prompt, each in tokens.items()}


def other_prompts(level: Level) -> Iterator[CheckResult]:
    """The engine counts other prompt tokens than the baseline's, so it was asked something else."""
    here, below = (_prompt_tokens(windows) for windows in (level.windows, level.context.baseline))
    known = here.keys() & below.keys()
    off = [name for name in known if here[name] != below[name]]
    if off:
        name = min(off)
        yield CheckResult(
            "other prompts",
            "doubt",
            f"{len(off)} of {len(known)} prompts have other tokens than the baseline's had, {name} "
            f"{here[name]} and {below[name]}, so the ratio to it also measures that",
            "see that the tokenizer and the prompt files have not changed since the run began",
        )


def _prompt_tokens(windows: Sequence[Window]) -> dict[str, int]:
    return {
        each.prompt_id: each.prompt_tokens
        for window in windows
        for each in window.samples
        if each.prompt_tokens is not None
    }


def loops(level: Level) -> Iterator[CheckResult]:
    """Answers that repeat a few tokens: any draft guesses those."""
    shares = [_looped(sample) for sample in level.samples]
    known = [share for share in shares if share is not None]
    looping = [share for share in known if share >= 0.5]
    if not known or len(looping) / len(known) <= MAX_LOOPED:
        return
    yield CheckResult(
        "looping answers",
        "doubt",
        f"{len(looping)} of {len(known)} answers repeat a few tokens for half of their length or "
        "more (past their natural end, or by a broken model), which any draft guesses: acceptance "
        "and speed are higher than on real answers",
        "use a shorter workload.output_tokens, prompts with long answers, or ignore_eos: false; "
        "read an answer of the server",
    )


def _looped(sample: RequestSample) -> float | None:
    ids = sample.output_ids
    return looped_share(ids) if ids is not None and len(ids) >= BLOCK else None


def tokenisation(level: Level) -> Iterator[CheckResult]:
    """What was doubtful when the prompts were rendered."""
    if level.context.tokenise_doubt is not None:
        yield CheckResult(
            "tokenisation",
            "doubt",
            level.context.tokenise_doubt,
            "see that the server's own clients send such prompts; acceptance depends on them",
        )


def random_prompts(level: Level) -> Iterator[CheckResult]:
    """Prompts that are no text tell nothing of acceptance; the baseline has none."""
    if level.context.random_words is not None and level.context.num_steps is not None:
        yield CheckResult(
            "random prompts",
            "note",
            f"{level.context.random_words}, so acceptance and speed-up tell nothing of traffic",
            "use prompts from your traffic, or builtin:mixed",
        )
