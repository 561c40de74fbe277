"""A comparison as one HTML file, with its ratios as a figure."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from matplotlib.figure import Figure

from tuner.report import drawing
from tuner.report.compare.comparison import GATED, Comparison
from tuner.report.compare.row import FASTER, SLOWER, Row
from tuner.report.compare.words import comparison_markdown
from tuner.report.inline_svg import inline_svg
from tuner.report.page import page
from tuner.report.text import escaped

NAME = "ratios"


def comparison_page(comparison: Comparison, gate: Sequence[str] = ()) -> str:
    """The page; needs no network and no other file. `gate`: what a gate says, as lines."""
    shown = [row for row in comparison.rows if row.compared and row.what in GATED]
    names = " and ".join(run.name for run in comparison.runs)
    title = f"{names}{' (simulated)' if comparison.simulated else ''}"
    if not shown:
        return page(comparison_markdown(comparison, gate=gate), title, {})
    alt = f"Ratios to {comparison.reference} with 95 % intervals: {'; '.join(map(_words, shown))}"
    with TemporaryDirectory() as folder:
        drawn = _ratios(comparison, shown, Path(folder), alt)
        svg = (Path(folder).parent / drawn.svg).read_text("utf-8")
    figure = inline_svg(svg, NAME, alt)
    return page(
        comparison_markdown(comparison, f"![{escaped(alt)}]({NAME})", gate), title, {NAME: figure}
    )


def _words(row: Row) -> str:
    assert row.ratio is not None
    return f"{_label(row)} {row.ratio.value:.3f}, {row.verdict}"


def _label(row: Row) -> str:
    return f"{row.run}, {row.what} at {row.concurrency}"


def _ratios(comparison: Comparison, shown: list[Row], folder: Path, alt: str) -> drawing.Drawn:
    """A line for each server: its ratio and interval beside that of the reference, 1."""
    with drawing.style():
        figure = Figure(figsize=(7.2, 1.2 + 0.32 * len(shown)), layout="constrained")
        ax = figure.subplots()
        for place, row in enumerate(shown):
            bounds = row.ratio
            assert bounds is not None and bounds.low is not None and bounds.high is not None
            colour = {FASTER: drawing.BLUE, SLOWER: drawing.VERMILLION}.get(row.verdict, "black")
            ax.plot([bounds.low, bounds.high], [place, place], color=colour, linewidth=2)
            ax.plot([bounds.value], [place], marker="o", color=colour)
        ax.axvline(1.0, color="black", linewidth=1)
        ax.set_yticks(range(len(shown)), [_label(row) for row in shown])
        ax.set_ylim(len(shown) - 0.5, -0.5)
        ax.margins(x=0.1)
        ax.grid(False, axis="y")
        words = comparison.metric.removesuffix("_tok_s")
        ax.set_xlabel(f"ratio of {words} tok/s to {comparison.reference}, 95 % interval")
        drawing.title(figure, f"Ratios to {comparison.reference}", comparison.simulated)
        return drawing.save(figure, folder, NAME, alt)
