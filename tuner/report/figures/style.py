"""How every figure looks and is saved: one style, and files that do not change without cause."""

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tuner.config.load_level import Level, named
from tuner.core.files import replacing

# Okabe and Ito's colours: told apart by colour-blind readers, and in grey by their lightness.
BLUE = "#0072B2"
VERMILLION = "#D55E00"
VERMILLION_WORDS = "#B04A00"
"""Darker: words of the other are hard to read on white."""
GREY = "#6b6b6b"
SERIES = (BLUE, "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#000000")
"""Without vermillion, which is the baseline's."""
MARKERS = ("o", "s", "^", "D", "v", "P")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)), (0, (1, 1)))

MAX_PANELS = 4

_STYLE: Any = {  # rc_context takes names that differ between releases
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "figure.dpi": 130,
    "svg.fonttype": "none",  # text stays text: searchable, and small
    "svg.hashsalt": "specbench",  # the same numbers give the same file
    "text.parse_math": False,  # a dollar sign in a model's name is no formula
}


@dataclass(frozen=True)
class Drawn:
    """A figure of the report: where it is, relative to the run folder, and what it shows."""

    name: str
    alt: str
    svg: str
    png: str


@contextmanager
def style() -> Iterator[None]:
    """The look of all figures, for the duration of a block."""
    with mpl.rc_context(_STYLE):
        yield


def panels(levels: Sequence[Level], height: float = 3.4) -> tuple[Figure, list[tuple[Level, Axes]]]:
    """A figure with a panel for each level, at most MAX_PANELS of them.

    Of more levels the lowest, the highest and some between are shown.
    """
    shown = list(levels)
    if len(shown) > MAX_PANELS:
        last = len(shown) - 1
        shown = [shown[round(i * last / (MAX_PANELS - 1))] for i in range(MAX_PANELS)]
    columns = min(len(shown), 2)
    rows = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(7.2 if columns == 1 else 9.6, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    flat = [ax for row in axes for ax in row]
    for ax in flat[len(shown) :]:
        ax.set_axis_off()
    if len(levels) > 1:
        for level, ax in zip(shown, flat, strict=False):
            ax.set_title(named(level), loc="left")
    return figure, list(zip(shown, flat, strict=False))


def title(figure: Figure, text: str, simulated: bool) -> None:
    """The figure's title; one of a simulated run says so."""
    figure.suptitle(f"{text} (simulated)" if simulated else text, fontsize=11, x=0.01, ha="left")


def baseline(ax: Axes, value: float, words: str) -> None:
    """The baseline as a line across, named at its right end."""
    ax.axhline(value, color=VERMILLION, linestyle="--", linewidth=1.4)
    ax.annotate(
        words,
        (1, value),
        xycoords=ax.get_yaxis_transform(),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        color=VERMILLION_WORDS,
        fontsize=8,
    )


def legend(figure: Figure, ax: Axes, columns: int = 3) -> None:
    """One legend for all panels, under them, where it hides no point."""
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)))


def wrapped(text: str, width: int) -> str:
    """In lines of at most `width` letters, three of them."""
    lines = textwrap.wrap(text, width, max_lines=3, placeholder=" ...", break_on_hyphens=False)
    return "\n".join(lines)


def save(figure: Figure, folder: Path, name: str, alt: str) -> Drawn:
    """Write NAME.svg and NAME.png into `folder`, the figures folder of a run."""
    folder.mkdir(exist_ok=True)
    with replacing(folder / f"{name}.png") as png:
        figure.savefig(png, format="png", metadata={"Software": None})
    figure.set_layout_engine("none")  # where things are is found once: half of the time
    with replacing(folder / f"{name}.svg") as svg:
        figure.savefig(svg, format="svg", metadata={"Date": None})
    return Drawn(name, alt, f"{folder.name}/{name}.svg", f"{folder.name}/{name}.png")
