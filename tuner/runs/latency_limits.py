"""Latency limits: which a trial breaks, and by how much."""

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.config.load_level import Level, Rate, at, level_in, parse_level
from tuner.config.schema import SearchSpec
from tuner.core.formatting import short
from tuner.metrics.request_rate import CAME, SERVED, overload_figures, overloaded_at
from tuner.metrics.samples import Window
from tuner.runs.records import FAILED, BrokenLimit

MAX_FAILED = 0.1
"""Share of the requests that may fail beyond what fails without speculation."""


def broken_limits(
    metrics: Mapping[str, Mapping[str, Any]],
    search: SearchSpec,
    baseline: Mapping[Level, Sequence[Window]] | None = None,
) -> list[BrokenLimit]:
    """What the metrics of a ledger line, by level, have above `search.limits`; and the rates that
    its server did not keep up with where the baseline did, whose windows `baseline` has; and where
    it failed MAX_FAILED of the requests more than that.

    At every level, or at the one that `search.objective.over` names. What was not measured breaks
    nothing. A speed-up of a server that leaves its users waiting, or turns them away, is no answer:
    latencies and decode speed are of those that it did answer. Where no speculation is overloaded
    too, nobody keeps up, and that is a doubt alone.
    """
    only, broken = search.objective.level, list[BrokenLimit]()
    plain = {str(level): overload_figures(of) for level, of in (baseline or {}).items() if of}
    for name, figures in metrics.items():
        level = parse_level(name)
        if only not in (None, level):
            continue
        found = [
            (limited, value, limit)
            for limited, limit in search.limits.items()
            if (value := figures.get(limited)) is not None and value > limit
        ]
        if name in plain and overloaded_at(metrics, name) and not overloaded_at(plain, name):
            found.append((SERVED, figures[SERVED], figures[CAME]))
        if (below := (baseline or {}).get(level)) and figures.get("requests"):
            share = figures.get("failed_requests", 0) / figures["requests"]
            most = MAX_FAILED + _failed_share(below)
            found += [(FAILED, share, most)] if share > most else []
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


def _failed_share(windows: Sequence[Window]) -> float:
    samples = [sample for window in windows for sample in window.samples]
    return sum(sample.error is not None for sample in samples) / max(1, len(samples))


def excess(broken: Sequence[BrokenLimit]) -> float:
    """How far the worst one is over its limit, as a share of it; 0 where nothing is broken."""
    return max((each.excess for each in broken), default=0.0)


def format_limits(limits: Mapping[str, float]) -> str:
    """`ttft_ms_p99 at most 500, tpot_ms_p90 at most 30`."""
    return ", ".join(f"{name} at most {short(limit, 6)}" for name, limit in limits.items())


def format_required_limits(limits: Mapping[str, float], broken: Sequence[BrokenLimit]) -> str:
    """What is to be kept: `format_limits`, or what is asked of every server, as `broken` shows."""
    if limits:
        return format_limits(limits)
    turned_away = any(each.metric == FAILED for each in broken)
    late = any(each.is_floor for each in broken)
    words = [*(["to keep up with the rate"] if late or not turned_away else [])]
    return " and ".join([*words, *(["to answer requests"] if turned_away else [])])


def describe_broken_limits(
    broken: Sequence[BrokenLimit], metrics: Mapping[str, Mapping[str, Any]] | None = None
) -> str:
    """`tpot_ms_p90 is 34.2 at concurrency 8, 14 % over 30`, one after the other. `metrics`: of the
    same ledger line, which say what came at a rate."""
    known = metrics or {}
    return "; ".join(
        f"{100 * each.value:.3g} % of the requests failed "
        f"{at(level_in(str(each.concurrency), known))}, at most {100 * each.limit:.3g} % may"
        if each.metric == FAILED
        else f"{each.metric} is {short(each.value)} "
        f"{at(level_in(str(each.concurrency), known))}, "
        + (
            f"{short(100 * (1 - each.value / each.limit), 2)} % below the {short(each.limit)} that "
            "came"
            if each.is_floor
            else f"{short(100 * each.excess, 2)} % over {short(each.limit, 6)}"
        )
        for each in broken
    )
