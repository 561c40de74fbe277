"""Views of a comparison: for a terminal, as Markdown and as an HTML page."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from matplotlib.figure import Figure

from tuner.compare.columns import (
    FASTER,
    NOT_COMPARABLE,
    REFERENCE,
    SLOWER,
    Column,
    Row,
    columns,
)
from tuner.compare.comparison import GATED, Comparison
from tuner.compare.sources import BEST
from tuner.config.load_level import named
from tuner.core.formatting import MISSING, text_table
from tuner.core.markdown import code, escaped, markdown_table
from tuner.report.figures import style
from tuner.report.html import inline_svg, page

CAVEAT = (
    "Intervals are 95 %, from the spread between windows and prompts within one launch; two "
    "launches of one configuration can differ by more."
)
OVERALL = "best over all levels"
"""Heading of a run's best candidate. A section has the best candidate at its own level."""


def describe_verdict(row: Row) -> str:
    """Format `slower, -5.0 % (95 % interval -6.2 % to -3.9 %)`, or the reason of no verdict."""
    if not row.compared or row.ratio is None:
        return row.verdict
    percent = [
        MISSING if value is None else f"{100 * (value - 1):+.1f} %"
        for value in (row.ratio.value, row.ratio.low, row.ratio.high)
    ]
    return f"{row.verdict}, {percent[0]} (95 % interval {percent[1]} to {percent[2]})"


def comparison_text(comparison: Comparison) -> str:
    """Return the comparison for a terminal."""
    simulated, reference = comparison.simulated, comparison.reference
    lines = [f"{'simulated runs' if simulated else 'runs'}, reference {reference}:"]
    for run in comparison.runs:
        where = "" if run.foreign else f"; GPUs: {run.gpus}"
        lines.append(f"  {run.letter}  {run.name}  ({run.engine}{where})")
        if not run.foreign:
            lines.append(f"     {OVERALL}: {run.best or 'none'}")
    if comparison.differences:
        lines += ["they differ in:", *(f"  {line}" for line in comparison.differences)]
    if comparison.notes:
        lines += ["to know of the figures:", *(f"  {note}" for note in comparison.notes)]
    for (level, what), rows in comparison.groups():
        lines += ["", f"{named(level)}, {_heading(what, rows)} (times in ms)"]
        header = [_column_heading(column, comparison) for column in _in_table()]
        cells = [[(column.brief or column.cell)(row) for column in _in_table()] for row in rows]
        named_cells = [[row.run, *entries] for row, entries in zip(rows, cells, strict=True)]
        lines.append(text_table(["run", *header], named_cells))
        lines += [line for row in rows for line in _details(row)]
    if comparison.unshared:
        lines += ["", "not in all runs:", *(f"  {line}" for line in comparison.unshared)]
    return "\n".join([*lines, "", CAVEAT])


def _details(row: Row) -> Iterator[str]:
    """Yield the lines below a terminal's table: reasons, and the columns that do not fit."""
    if row.verdict.startswith(NOT_COMPARABLE):
        yield f"  {row.run} is {row.verdict}"
    shown = []
    for column in columns():
        words = column.cell(row)
        if column.in_table or words in (MISSING, row.what):
            continue
        shown.append(words if column.heading == "configuration" else f"{column.heading} {words}")
    if shown:
        yield f"  {row.run}: {'; '.join(shown)}"


def _in_table() -> list[Column]:
    return [column for column in columns() if column.in_table]


def _column_heading(column: Column, comparison: Comparison) -> str:
    return column.heading.format(
        metric=comparison.metric.removesuffix("_tok_s"),
        reference=comparison.reference,
        launch="launch (model time)" if comparison.simulated else "launch",
    )


def _heading(what: str, rows: Sequence[Row]) -> str:
    """Format `best candidate there: 3 steps, 4 tokens`.

    If the runs have different ones, each one has the letter of its run.
    """
    if what != BEST:
        return what
    found = {row.run: row.configuration for row in rows if row.configuration is not None}
    one = set(found.values())
    if len(one) == 1:
        return f"{what} there: {one.pop()}"
    return f"{what} there: " + "; ".join(f"{run} {label}" for run, label in found.items())


def comparison_markdown(
    comparison: Comparison, figure: str | None = None, gate: Sequence[str] = ()
) -> str:
    """Return the comparison as Markdown, for a pull request or a page.

    `figure` is an image that follows the verdicts, `gate` the lines of a gate.
    """
    lines = [f"# Comparison{' (simulated)' if comparison.simulated else ''}", ""]
    if comparison.simulated:
        lines += ["> **Simulated.** None of these numbers was measured on hardware.", ""]
    lines += [f"- {_bold(row)}" for row in comparison.rows if row.verdict != REFERENCE]
    lines += [""] + [f"- {escaped(words)}" for words in gate] + ([""] if gate else [])
    lines += [*([figure, ""] if figure else []), "## What is compared", ""]
    rows = [
        [run.letter, code(run.name), escaped(run.engine), escaped(run.gpus), code(run.best or "")]
        for run in comparison.runs
    ]
    lines.append(markdown_table(["run", "name", "engine", "GPUs", OVERALL], rows, 5))
    for heading, notes in (
        ("The runs differ in:", comparison.differences),
        ("To know of the figures:", comparison.notes),
    ):
        if notes:
            lines += ["", heading, "", *(f"- {escaped(note)}" for note in notes)]
    for (level, what), found in comparison.groups():
        details = [column for column in columns() if not column.in_table]
        lines += [
            "",
            f"## {named(level).capitalize()}, {escaped(_heading(what, found))}",
            "",
            "Times in ms.",
            "",
            _markdown_table(_in_table(), found, comparison, 1),
            "",
            _markdown_table(details, found, comparison, len(details) + 1),
        ]
    if comparison.unshared:
        lines += ["", "## Not in all runs", ""]
        lines += [f"- {escaped(line)}" for line in comparison.unshared]
    return "\n".join([*lines, "", CAVEAT]) + "\n"


def _bold(row: Row) -> str:
    word, comma, rest = describe_verdict(row).partition(", " if row.compared else ": ")
    which = f" ({row.configuration})" if row.what == BEST and row.configuration else ""
    place = f"{row.run}, {named(row.concurrency)}, {row.what}{which}"
    return f"{escaped(place)}: **{escaped(word)}**{comma}{escaped(rest)}"


def _markdown_table(
    shown: Sequence[Column], rows: Sequence[Row], comparison: Comparison, numbers_from: int
) -> str:
    header = ["run", *(escaped(_column_heading(column, comparison)) for column in shown)]
    cells = [[row.run, *(escaped(column.cell(row)) for column in shown)] for row in rows]
    return markdown_table(header, cells, numbers_from)


NAME = "ratios"


def comparison_page(comparison: Comparison, gate: Sequence[str] = ()) -> str:
    """Return an HTML page that needs no network and no other file. `gate`: a gate's lines."""
    shown = [row for row in comparison.rows if row.compared and row.what in GATED]
    names = " and ".join(run.name for run in comparison.runs)
    title = f"{names}{' (simulated)' if comparison.simulated else ''}"
    if not shown:
        return page(comparison_markdown(comparison, gate=gate), title, {})
    rows = "; ".join(map(_describe_row, shown))
    alt = f"Ratios to {comparison.reference} with 95 % intervals: {rows}"
    with TemporaryDirectory() as folder:
        drawn = _ratios(comparison, shown, Path(folder), alt)
        svg = (Path(folder).parent / drawn.svg).read_text("utf-8")
    figure = inline_svg(svg, NAME, alt)
    return page(
        comparison_markdown(comparison, f"![{escaped(alt)}]({NAME})", gate), title, {NAME: figure}
    )


def _describe_row(row: Row) -> str:
    assert row.ratio is not None
    return f"{_label(row)} {row.ratio.value:.3f}, {row.verdict}"


def _label(row: Row) -> str:
    return f"{row.run}, {row.what} at {row.concurrency}"


def _ratios(comparison: Comparison, shown: list[Row], folder: Path, alt: str) -> style.Drawn:
    """Draw a line for each server: its ratio and interval beside the reference's ratio of 1."""
    with style.style():
        figure = Figure(figsize=(7.2, 1.2 + 0.32 * len(shown)), layout="constrained")
        ax = figure.subplots()
        for place, row in enumerate(shown):
            bounds = row.ratio
            assert bounds is not None and bounds.low is not None and bounds.high is not None
            colour = {FASTER: style.BLUE, SLOWER: style.VERMILLION}.get(row.verdict, "black")
            ax.plot([bounds.low, bounds.high], [place, place], color=colour, linewidth=2)
            ax.plot([bounds.value], [place], marker="o", color=colour)
        ax.axvline(1.0, color="black", linewidth=1)
        ax.set_yticks(range(len(shown)), [_label(row) for row in shown])
        ax.set_ylim(len(shown) - 0.5, -0.5)
        ax.margins(x=0.1)
        ax.grid(False, axis="y")
        words = comparison.metric.removesuffix("_tok_s")
        ax.set_xlabel(f"ratio of {words} tok/s to {comparison.reference}, 95 % interval")
        style.title(figure, f"Ratios to {comparison.reference}", comparison.simulated)
        return style.save(figure, folder, NAME, alt)
