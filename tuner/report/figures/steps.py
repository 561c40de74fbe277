"""The figures over num_steps: throughput with intervals, and accept length."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from tuner.analysis.summary import RunSummary, TrialResult
from tuner.config.load_level import Level, named
from tuner.core.formatting import number
from tuner.report.figures import style
from tuner.report.figures.style import BLUE, GREY, MARKERS, SERIES, Drawn


def tok_s_by_steps(summary: RunSummary, folder: Path) -> Drawn | None:
    """Output tok/s of every configuration by its num_steps, with intervals.

    Joined are those that differ from the best in num_steps alone, the best of each count.
    """
    metric, shown = summary.metric, _with_steps(summary.ranked)
    levels = [n for n in summary.levels if any(c.metric(n, metric) for c in shown)]
    if not levels:
        return None
    figure, axes = style.panels(levels)
    for level, ax in axes:
        base = summary.no_speculation.metric(level, metric) if summary.no_speculation else None
        _by_steps(ax, series(shown, level, metric), base)
        if base is not None:
            style.baseline(ax, base, f"no\nspeculation\n{number(base)}")
        _steps_axis(ax)
        ax.set_ylabel("tokens per second")
    style.legend(figure, axes[0][1])
    words = "Output throughput" if metric == "output_tok_s" else "Decode speed"
    style.title(figure, f"{words} by number of draft steps", summary.simulated)
    return style.save(figure, folder, "tok_s_by_steps", f"{words} by number of draft steps")


def accept_length_by_steps(summary: RunSummary, folder: Path) -> Drawn | None:
    """Accept length by num_steps at the lowest concurrency, a series for each eagle_topk."""
    shown = _with_steps(summary.ranked)
    level = next(
        (n for n in summary.levels if any(c.metric(n, "accept_length") for c in shown)), None
    )
    if level is None:
        return None
    figure, [(_, ax)] = style.panels([level])
    for index, topk in enumerate(sorted({c.point.eagle_topk or 1 for c in shown if c.point})):
        found = [
            (_steps(c), value)
            for c in shown
            if c.point
            and (c.point.eagle_topk or 1) == topk
            and (value := c.metric(level, "accept_length")) is not None
        ]
        kind = index % len(SERIES)
        ax.plot(
            [steps for steps, _ in found],
            [value for _, value in found],
            linestyle="none",
            marker=MARKERS[kind],
            color=SERIES[kind],
            markersize=6 + 2 * kind,
            fillstyle="full" if kind == 0 else "none",  # a tree's marker hides no chain's
            label="chain (topk 1)" if topk == 1 else f"tree, topk {topk}",
        )
    style.baseline(ax, 1.0, "no\nspeculation")
    _steps_axis(ax)
    ax.set_ylabel("accept length (tokens per verify)")
    style.legend(figure, ax)
    where = f", {named(level)}" if len(summary.levels) > 1 else ""
    style.title(figure, f"Accept length by number of draft steps{where}", summary.simulated)
    return style.save(
        figure, folder, "accept_length_by_steps", "Accept length by number of draft steps"
    )


MOST_DRAWN = 1000
"""Configurations in a figure, the best ones, beside those that are joined by a line."""


def _with_steps(measured: Sequence[TrialResult]) -> list[TrialResult]:
    """Those with steps; of very many the best, and what differs from the first in steps alone."""
    found = [c for c in measured if c.point is not None and c.point.num_steps is not None]
    if len(found) <= MOST_DRAWN:
        return found
    family = found[0].point and found[0].point.family
    rest = (c for c in found[MOST_DRAWN:] if c.point and c.point.family == family)
    return [*found[:MOST_DRAWN], *rest]


def _steps(measured: TrialResult) -> int:
    assert measured.point is not None and measured.point.num_steps is not None
    return measured.point.num_steps


Dot = tuple[int, float, float, float]
"""num_steps, the value, and how far its interval reaches below and above; nan without one."""


def series(shown: Sequence[TrialResult], level: Level, metric: str) -> tuple[list[Dot], list[Dot]]:
    """Those that differ from the first, the best, in num_steps alone (of a count the highest), in
    the order of num_steps; and all others."""
    best = shown[0].point
    joined: dict[int, Dot] = {}
    others: list[Dot] = []
    for each in sorted(shown, key=lambda c: -(c.metric(level, metric) or 0.0)):
        dot = _dot(each, level, metric)
        if dot is None:
            continue
        assert best is not None and each.point is not None
        if dot[0] in joined or each.point.family != best.family:
            others.append(dot)
        else:
            joined[dot[0]] = dot
    return [joined[steps] for steps in sorted(joined)], others


def _dot(each: TrialResult, level: Level, metric: str) -> Dot | None:
    value = each.metric(level, metric)
    low, high = each.metric(level, f"{metric}_low"), each.metric(level, f"{metric}_high")
    if value is None:
        return None
    if low is None or high is None:
        return _steps(each), value, math.nan, math.nan
    return _steps(each), value, max(value - low, 0.0), max(high - value, 0.0)


def _by_steps(ax: Axes, series: tuple[list[Dot], list[Dot]], base: float | None) -> None:
    joined, others = series
    if others:
        _error_bars(ax, others, fmt="o", color=GREY, mfc="white", ms=4.5, label="others")
    if joined:
        words = "the best and what differs from it in num_steps alone"
        _error_bars(ax, with_gaps(joined), fmt="o-", color=BLUE, lw=1.6, label=words)
    top = max([*joined, *others], key=lambda dot: dot[1])
    above = base is None or top[1] >= base  # below it the figure would cover the line's name
    ax.annotate(
        number(top[1]),
        top[:2],
        xytext=(6, 4 if above else -14),  # beside the interval's bar
        textcoords="offset points",
        ha="left",
        color=BLUE if top in joined else GREY,
        fontweight="bold",
    )
    ax.margins(y=0.15)


def with_gaps(dots: Sequence[Dot]) -> list[Dot]:
    """With a hole where a count between two was not measured: no line bridges it."""
    found: list[Dot] = []
    for dot in dots:
        if found and dot[0] > found[-1][0] + 1:
            found.append((dot[0] - 1, math.nan, math.nan, math.nan))
        found.append(dot)
    return found


def _error_bars(ax: Axes, dots: Sequence[Dot], **look: Any) -> None:
    steps, values, below, above = zip(*dots, strict=True)
    ax.errorbar(steps, values, yerr=(below, above), capsize=2, elinewidth=0.9, **look)


def _steps_axis(ax: Axes) -> None:
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.set_xlabel("num_steps")
