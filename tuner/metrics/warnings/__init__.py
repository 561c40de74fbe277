"""Doubts about a level's numbers, as values: what looks wrong, the likely cause, what to try.

A check is a function from a `Level` to its doubts, in the module of its theme. docs/checks.md has a
row for each name.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tuner.metrics.samples import Window
from tuner.metrics.warnings import answers, clocks, engine_counters, speculation, speed
from tuner.metrics.warnings.warning import CheckResult, Context, Level

__all__ = ["CheckResult", "Context", "doubts"]

_CHECKS: tuple[Callable[[Level], Iterator[CheckResult]], ...] = (
    answers.failed_requests,
    answers.token_counts,
    answers.unequal_lengths,
    answers.other_prompts,
    answers.loops,
    speculation.counts,
    speculation.acceptance,
    engine_counters.disagreement,
    engine_counters.silent_ranks,
    speed.too_few_tokens,
    speed.noisy,
    speed.client_bound,
    speed.late_client,
    speed.overloaded,
    speed.few_arrivals,
    speed.cold_cache,
    speed.prefill_bound,
    clocks.other_clock,
    clocks.uneven_clocks,
    clocks.slowed_down,
    clocks.power_cap,
    answers.tokenisation,
    answers.random_prompts,
)


def doubts(
    windows: Sequence[Window], metrics: Mapping[str, Any], context: Context
) -> list[CheckResult]:
    """All doubts about one concurrency level; `metrics` is what `summarise` made of `windows`."""
    samples = [sample for window in windows for sample in window.samples]
    level = Level(windows, samples, metrics, context)
    return [doubt for check in _CHECKS for doubt in check(level)]
