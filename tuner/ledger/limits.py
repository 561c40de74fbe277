"""Latency limits: which a trial breaks, and by how much."""

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.ledger.judged import BrokenLimit
from tuner.sweep.level import at, level_of
from tuner.sweep.model import SearchSpec


def broken_limits(
    metrics: Mapping[str, Mapping[str, Any]], search: SearchSpec
) -> list[BrokenLimit]:
    """What the metrics of a ledger line, by concurrency, have above `search.limits`.

    At every concurrency, or at the one that `search.objective.over` names. What was not measured
    breaks nothing.
    """
    only = search.objective.level
    return [
        BrokenLimit(
            concurrency=int(level) if level.isdecimal() else level,
            metric=name,
            value=value,
            limit=limit,
        )
        for level, figures in metrics.items()
        if only is None or level_of(level) == only
        for name, limit in search.limits.items()
        if (value := figures.get(name)) is not None and value > limit
    ]


def excess(broken: Sequence[BrokenLimit]) -> float:
    """How far the worst one is over its limit, as a share of it; 0 where nothing is broken."""
    return max((each.excess for each in broken), default=0.0)


def limits_words(limits: Mapping[str, float]) -> str:
    """`ttft_ms_p99 at most 500, tpot_ms_p90 at most 30`."""
    return ", ".join(f"{name} at most {limit:g}" for name, limit in limits.items())


def broken_words(broken: Sequence[BrokenLimit]) -> str:
    """`tpot_ms_p90 is 34.2 at concurrency 8, 14 % over 30`, one after the other."""
    return "; ".join(
        f"{each.metric} is {each.value:.4g} {at(each.concurrency)}, "
        f"{100 * each.excess:.2g} % over {each.limit:g}"
        for each in broken
    )
