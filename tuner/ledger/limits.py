"""Latency limits: which a trial breaks, and by how much."""

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.ledger.judged import BrokenLimit
from tuner.measure.overload import CAME, SERVED, overload_figures, overloaded_at
from tuner.measure.samples import Window
from tuner.measure.spelled import short
from tuner.sweep.level import Level, Rate, at, level_in, level_of
from tuner.sweep.model import SearchSpec


def broken_limits(
    metrics: Mapping[str, Mapping[str, Any]],
    search: SearchSpec,
    baseline: Mapping[Level, Sequence[Window]] | None = None,
) -> list[BrokenLimit]:
    """What the metrics of a ledger line, by level, have above `search.limits`; and the rates that
    its server did not keep up with where the baseline did, whose windows `baseline` has.

    At every level, or at the one that `search.objective.over` names. What was not measured breaks
    nothing. A speed-up of a server that leaves its users waiting is no answer. Where no
    speculation is overloaded too, nobody keeps up, and that is a doubt alone.
    """
    only, broken = search.objective.level, list[BrokenLimit]()
    plain = {str(level): overload_figures(of) for level, of in (baseline or {}).items() if of}
    for name, figures in metrics.items():
        level = level_of(name)
        if only not in (None, level):
            continue
        found = [
            (limited, value, limit)
            for limited, limit in search.limits.items()
            if (value := figures.get(limited)) is not None and value > limit
        ]
        if name in plain and overloaded_at(metrics, name) and not overloaded_at(plain, name):
            found.append((SERVED, figures[SERVED], figures[CAME]))
        broken += [
            BrokenLimit(
                concurrency=name if isinstance(level, Rate) else level,
                metric=metric,
                value=value,
                limit=limit,
            )
            for metric, value, limit in found
        ]
    return broken


def excess(broken: Sequence[BrokenLimit]) -> float:
    """How far the worst one is over its limit, as a share of it; 0 where nothing is broken."""
    return max((each.excess for each in broken), default=0.0)


def limits_words(limits: Mapping[str, float]) -> str:
    """`ttft_ms_p99 at most 500, tpot_ms_p90 at most 30`."""
    return ", ".join(f"{name} at most {short(limit, 6)}" for name, limit in limits.items())


def broken_words(
    broken: Sequence[BrokenLimit], metrics: Mapping[str, Mapping[str, Any]] | None = None
) -> str:
    """`tpot_ms_p90 is 34.2 at concurrency 8, 14 % over 30`, one after the other. `metrics`: of the
    same ledger line, which say what came at a rate."""
    known = metrics or {}
    return "; ".join(
        f"{each.metric} is {short(each.value)} {at(level_in(str(each.concurrency), known))}, "
        + (
            f"{short(100 * (1 - each.value / each.limit), 2)} % below the {short(each.limit)} that "
            "came"
            if each.is_floor
            else f"{short(100 * each.excess, 2)} % over {short(each.limit, 6)}"
        )
        for each in broken
    )
