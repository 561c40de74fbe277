"""The figure over the load: where speculation stops paying."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullFormatter

from tuner.analysis.summary import RunSummary, TrialResult
from tuner.config.load_level import Level, Rate, axis
from tuner.metrics.catalogue import metric_heading
from tuner.report.figures import style
from tuner.report.figures.style import LINES, MARKERS, SERIES, Drawn

MOST = 5
"""Configurations that are drawn."""
DODGE = 0.02
"""Of the axis' length, between two configurations at one level: no interval hides another's."""
_NAME, _WORDS = "speedup_by_load", "Speed-up over no speculation by load"


def speedup_by_load(summary: RunSummary, folder: Path) -> Drawn | None:
    """Speed-ups with their intervals over concurrency, or the rate: of the best configuration over
    all, and of the fastest at each level. None where there is one level."""
    shown = chosen(summary)
    levels = sorted({level for each in shown for level in each.speedups})
    if len(levels) < 2:
        return None
    figure, [(_, ax)] = style.panels([levels[0]])
    for index, each in enumerate(shown):
        _line(ax, each, levels, index, len(shown))
    style.baseline(ax, 1.0, "no\nspeculation")
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(FixedLocator([load(level) for level in levels]))
    ax.set_xticklabels([str(level).removesuffix("/s") for level in levels])
    ax.xaxis.set_minor_locator(FixedLocator([]))
    ax.xaxis.set_minor_formatter(NullFormatter())
    conversations = any(isinstance(each, Rate) and each.turns != 1 for each in levels)
    what = "conversations" if conversations else "requests"
    ax.set_xlabel(f"{what} per second" if axis(levels) == "rate" else "concurrency")
    ax.set_ylabel("speed-up, 95 % interval")
    style.legend(figure, ax, columns=1)
    title = style.wrapped(f"Speed-up in {metric_heading(summary.metric)} by load", 90)
    style.title(figure, title, summary.simulated)
    return style.save(figure, folder, _NAME, _WORDS)


def chosen(summary: RunSummary) -> list[TrialResult]:
    """The best candidate over all levels first, then the fastest of each level."""
    there = [best.record.trial for best in summary.by_level.values()]
    first = [summary.best_candidate.record.trial] if summary.best_candidate is not None else []
    wanted = dict.fromkeys([*first, *there])
    own = {e.record.trial: e for e in summary.ranked if e.record.trial in wanted and e.speedups}
    return [own[trial] for trial in wanted if trial in own][:MOST]


def load(level: Level) -> float:
    """Where a level is on the axis."""
    return level.per_second if isinstance(level, Rate) else float(level)


def _line(ax: Axes, each: TrialResult, levels: list[Level], index: int, count: int) -> None:
    span = load(levels[-1]) / load(levels[0])
    aside = span ** (DODGE * (index - (count - 1) / 2))
    found = [level for level in levels if level in each.speedups]
    ratios = [each.speedups[level] for level in found]
    low = [r.value - (r.value if r.low is None else r.low) for r in ratios]
    high = [(r.value if r.high is None else r.high) - r.value for r in ratios]
    ax.errorbar(
        [load(level) * aside for level in found],
        [r.value for r in ratios],
        yerr=(low, high),
        color=SERIES[index],
        marker=MARKERS[index],
        linestyle=LINES[index],
        markersize=5,
        capsize=2,
        elinewidth=0.9,
        label=each.label,
    )
