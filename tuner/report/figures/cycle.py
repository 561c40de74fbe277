"""The figure of where a cycle goes: a bar of its parts for each step count."""

from pathlib import Path

from matplotlib.axes import Axes

from tuner.analysis.cycle_breakdown import (
    ADDED,
    DRAFT,
    DRAFTED,
    ONCE,
    PARTS,
    PLAIN,
    TOKENS,
    Cycles,
    CycleTimes,
)
from tuner.analysis.summary import RunSummary
from tuner.report.figures import style
from tuner.report.figures.style import GREY, SERIES, VERMILLION, Drawn

_LOOKS = {
    PLAIN: ("#c9c9c9", ""),
    ONCE: (SERIES[4], ""),
    ADDED: (SERIES[4], "///"),
    DRAFT: (SERIES[1], ""),
    TOKENS: (SERIES[2], ""),
    DRAFTED: (SERIES[1], "///"),
}
"""Colour and hatch; hatched is what could not be told apart."""


def cycle_parts(summary: RunSummary, folder: Path) -> Drawn | None:
    """Stacked parts of the baseline's step and of a cycle of each chain of the best's block."""
    cycles = Cycles(summary)
    levels = cycles.levels
    if not levels:
        return None
    figure, axes = style.panels(levels)
    for level, ax in axes:
        _bars(ax, cycles.shown(level))
    handles = {}
    for _, ax in axes:
        handles.update(dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True)))
    names = [name for name in (*PARTS, _MEASURED) if name in handles]
    figure.legend([handles[name] for name in names], names, loc="outside lower center", ncols=2)
    style.title(figure, "Where a cycle goes", summary.simulated)
    return style.save(figure, folder, "cycle", "Where a cycle goes, by number of draft steps")


_MEASURED = "measured"


def _bars(ax: Axes, shown: list[CycleTimes]) -> None:
    plain = shown[0].even.plain_ms
    stacks = [[(PLAIN, plain)], *(each.parts for each in shown)]
    places = range(len(stacks))
    feet = [0.0] * len(stacks)
    for name in PARTS:
        heights = [dict(stack).get(name, 0.0) for stack in stacks]
        if not any(heights):
            continue
        color, hatch = _LOOKS[name]
        ax.bar(places, heights, 0.62, feet, color=color, hatch=hatch, edgecolor="white", label=name)
        feet = [foot + height for foot, height in zip(feet, heights, strict=True)]
    times = [plain, *(each.even.cycle_ms for each in shown)]
    ax.plot(places, times, "_", color="black", markersize=16, label=_MEASURED)
    lengths = [1.0, *(each.even.accept_length for each in shown)]
    for place, foot, time, length in zip(places, feet, times, lengths, strict=True):
        ax.annotate(
            f"{length:.2f} tokens",
            (place, max(foot, time)),
            xytext=(0, 5),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color=GREY,
        )
    ax.axhline(plain, color=VERMILLION, linestyle="--", linewidth=1)
    ax.set_xticks(places, ["no\nspeculation", *(_name(each) for each in shown)])
    ax.grid(False, axis="x")
    ax.margins(y=0.14)
    ax.set_ylabel("ms per cycle")


def _name(taken: CycleTimes) -> str:
    point = taken.measured.point
    if point is None or point.num_steps is None:
        return "no steps"
    steps = f"{point.num_steps} step{'s' * (point.num_steps != 1)}"
    return steps if point.eagle_topk == 1 else f"{steps},\ntopk {point.eagle_topk}"
