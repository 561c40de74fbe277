"""The figures of a run. One that would have nothing to show is left out."""

from collections.abc import Sequence
from itertools import accumulate, islice
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tuner.analysis.summary import RunSummary, TrialResult
from tuner.metrics.catalogue import metric_heading
from tuner.report.figures import style
from tuner.report.figures.cycle import cycle_parts
from tuner.report.figures.load import speedup_by_load
from tuner.report.figures.steps import accept_length_by_steps, tok_s_by_steps
from tuner.report.figures.style import BLUE, LINES, MARKERS, SERIES, VERMILLION, Drawn

MOST_TRIALS = 1000
"""Dots of each kind in the figure of trials; of more, so many are drawn at even distances."""
TOP = 10
"""Configurations in the figure of speed-ups."""


def draw_figures(summary: RunSummary, folder: Path) -> list[Drawn]:
    """Write every figure that has something to show into `folder`."""
    with style.style():
        drawn = [
            speedups(summary, folder),
            speedup_by_load(summary, folder),
            tok_s_by_steps(summary, folder),
            accept_length_by_steps(summary, folder),
            acceptance_by_position(summary, folder),
            cycle_parts(summary, folder),
            history(summary, folder),
        ]
    return [figure for figure in drawn if figure is not None]


def speedups(summary: RunSummary, folder: Path) -> Drawn | None:
    """The best configurations' speed-ups with their intervals, as bars from the baseline."""
    shown = list(islice((c for c in summary.ranked if c.speedups), TOP))
    levels = sorted({level for each in shown for level in each.speedups})
    if not shown:
        return None
    common, labels = _short_labels(shown)
    height = 0.9 + 0.36 * len(shown) + 0.12 * sum(label.count("\n") for label in labels)
    figure, axes = style.panels(levels, height)
    for index, (level, ax) in enumerate(axes):
        for row, each in enumerate(shown):
            if (bounds := each.speedups.get(level)) is not None:
                _speedup_bar(ax, row, bounds.value, bounds.low, bounds.high)
        ax.axvline(1.0, color="black", linewidth=1)
        ax.set_ylim(len(shown) - 0.4, -0.6)
        ax.set_yticks(range(len(shown)), labels if index % 2 == 0 else [""] * len(shown))
        ax.grid(False, axis="y")
        ax.margins(x=0.18)
    ratio_of = f"ratio of {metric_heading(summary.metric)}, 95 % interval"
    figure.supxlabel(f"speed-up over no speculation ({ratio_of})", fontsize=9)
    style.title(figure, f"Speed-up of the best configurations{common}", summary.simulated)
    return style.save(figure, folder, "speedup", "Speed-up of the best configurations")


def _speedup_bar(ax: Axes, row: int, value: float, low: float | None, high: float | None) -> None:
    faster = value >= 1
    ax.barh(
        row,
        value - 1,
        left=1,
        height=0.6,
        color=BLUE if faster else "white",
        edgecolor=BLUE if faster else VERMILLION,
        hatch=None if faster else "////",
    )
    ends = [value]
    if low is not None and high is not None:
        ax.errorbar(
            value, row, xerr=[[value - low], [high - value]], color="black", capsize=3, lw=1
        )
        ends = [low, high]
    edge = max(*ends, 1.0) if faster else min(*ends, 1.0)
    ax.annotate(
        f"{value:.3f}",
        (edge, row),
        xytext=(5 if faster else -5, 0),
        textcoords="offset points",
        va="center",
        ha="left" if faster else "right",
        fontsize=8,
    )


def acceptance_by_position(summary: RunSummary, folder: Path) -> Drawn | None:
    """P(accepted >= j) of the best configuration and its neighbours in num_steps."""
    level = summary.levels[0] if summary.levels else 0
    name = "accept_rate_by_position"
    shown = [c for c in summary.neighbours() if c.metrics(level).get(name)]
    if not shown:
        return None
    common, labels = _short_labels(shown)
    figure, [(_, ax)] = style.panels([level], 3.2 + 0.2 * len(shown))
    for index, each in enumerate(shown):
        rates = each.metrics(level)[name]
        ax.plot(
            range(1, len(rates) + 1),
            rates,
            marker=MARKERS[index],
            markersize=5 + 2.5 * index,  # hollow and growing: equal values show all their markers
            markerfacecolor=SERIES[0] if index == 0 else "none",
            linestyle=LINES[index],
            color=SERIES[index],
            linewidth=2 if index == 0 else 1.3,
            label=("best: " if index == 0 else "") + labels[index],
            clip_on=False,  # a marker at 100 % is whole
        )
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    top = max(rate for each in shown for rate in each.metrics(level)[name])
    ax.set_ylim(0, min(1.02, 1.15 * top) if top > 0 else 1)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    ax.set_xlabel("position j in the draft")
    ax.set_ylabel("verifies accepting j or more")
    style.legend(figure, ax, columns=1)
    style.title(figure, f"Acceptance by position{common}", summary.simulated)
    return style.save(figure, folder, name, "Acceptance by position in the draft")


def history(summary: RunSummary, folder: Path) -> Drawn | None:
    """The objective of each trial in the order measured, and the best so far."""
    values = summary.history()
    measured = [(trial, value) for trial, value in values if value is not None]
    if not measured:
        return None
    figure, [(_, ax)] = style.panels([0])
    numbers = [trial for trial, _ in measured]
    best = list(accumulate((value for _, value in measured), max))
    every = -(-len(measured) // MOST_TRIALS)
    label = "trial" if every == 1 else f"trial, one of {every}"
    thin = slice(None, None, every)
    values_of = [v for _, v in measured]
    ax.plot(numbers[thin], values_of[thin], "o", color=BLUE, markersize=5, label=label)
    rises = [i for i in range(len(best)) if not 0 < i < len(best) - 1 or best[i] > best[i - 1]]
    ax.step(
        [numbers[i] for i in rises], [best[i] for i in rises], where="post", color=BLUE,
        linewidth=1.5, label="best so far",
    )  # fmt: skip
    if failed := [trial for trial, value in values if value is None]:
        floor = min(1.0, *(value for _, value in measured))
        failed = failed[:: -(-len(failed) // MOST_TRIALS)]
        ax.plot(
            failed,
            [floor] * len(failed),
            "x",
            color=VERMILLION,
            markersize=7,
            label="failed or infeasible (no value)",
        )
    style.baseline(ax, 1.0, "no\nspeculation")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("trial")
    ax.set_ylabel("speed-up over no speculation")
    style.legend(figure, ax)
    words = style.wrapped(f"Optimisation history, {summary.describe_objective()}", 90)
    style.title(figure, words, summary.simulated)
    return style.save(figure, folder, "history", "Speed-up of each trial and the best so far")


def _short_labels(shown: Sequence[TrialResult]) -> tuple[str, list[str]]:
    """What all of them share, for the title, and what tells each apart, for the axis."""
    parts = [each.label.split(", ") for each in shown if each.point is not None]
    common = [part for part in parts[0] if all(part in each for each in parts)] if parts else []
    if len(parts) < 2:
        common = []
    labels = []
    for each in shown:
        rest = [part for part in each.label.split(", ") if part not in common]
        labels.append(style.wrapped(", ".join(rest) or each.label, 44))
    return (style.wrapped(f", all with {', '.join(common)}", 90) if common else ""), labels
