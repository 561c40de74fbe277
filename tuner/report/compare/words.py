"""A comparison in words: for a terminal, and as Markdown."""

from collections.abc import Iterator, Sequence

from tuner.report.compare.comparison import Comparison
from tuner.report.compare.row import NOT_COMPARABLE, REFERENCE, Row, cells_of, reasons_of
from tuner.report.compare.source import BEST
from tuner.report.text import code, escaped, markdown_table, text_table
from tuner.sweep.level import named

CAVEAT = (
    "Intervals are 95 %, from the spread between windows and prompts within one launch; two "
    "launches of one configuration can differ by more."
)
OVERALL = "best over all levels"
"""Of a run; a section's best candidate is the best at its level."""
BEHIND = (
    "configuration",
    "accept rate",
    "by position",
    "cycle",
    "energy per token",
    "GPU memory, GiB",
)


def verdict_words(row: Row) -> str:
    """`slower, -5.0 % (95 % interval -6.2 % to -3.9 %)`, or why there is no verdict."""
    if not row.compared or row.ratio is None:
        return row.verdict
    percent = [
        "-" if each is None else f"{100 * (each - 1):+.1f} %"
        for each in (row.ratio.value, row.ratio.low, row.ratio.high)
    ]
    return f"{row.verdict}, {percent[0]} (95 % interval {percent[1]} to {percent[2]})"


def comparison_text(comparison: Comparison) -> str:
    """For a terminal."""
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
        short = [[*cells[:-1], cells[-1].split(":")[0]] for cells in map(cells_of, rows)]
        lines += ["", f"{named(level)}, {_heading(what, rows)} (times in ms)"]
        lines.append(text_table(_header(comparison), short))
        lines += [line for row in rows for line in _behind(row)]
    if comparison.unshared:
        lines += ["", "not in all runs:", *(f"  {line}" for line in comparison.unshared)]
    return "\n".join([*lines, "", CAVEAT])


def _behind(row: Row) -> Iterator[str]:
    """The lines under a table that a terminal is too narrow to have in it."""
    if row.verdict.startswith(NOT_COMPARABLE):
        yield f"  {row.run} is {row.verdict}"
    told = [row.configuration] if row.configuration not in (None, row.what) else []
    told += [f"{name} {words}" for name, words in reasons_of(row)]
    if told:
        yield f"  {row.run}: {'; '.join(map(str, told))}"


def _heading(what: str, rows: Sequence[Row]) -> str:
    """`best candidate there: 3 steps, 4 tokens`; where runs have different ones, each with its
    letter."""
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
    """For a pull request or a page; `figure` is an image to be shown behind the verdicts, `gate`
    what a gate says."""
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
    for heading, told in (
        ("The runs differ in:", comparison.differences),
        ("To know of the figures:", comparison.notes),
    ):
        if told:
            lines += ["", heading, "", *(f"- {escaped(line)}" for line in told)]
    for (level, what), found in comparison.groups():
        table = markdown_table(
            [*map(escaped, _header(comparison))],
            [[*map(escaped, cells_of(row))] for row in found],
            1,
        )
        lines += [
            "",
            f"## {named(level).capitalize()}, {escaped(_heading(what, found))}",
            "",
            "Times in ms.",
            "",
            table,
        ]
        lines += ["", markdown_table(["run", *BEHIND], [_behind_cells(row) for row in found], 7)]
    if comparison.unshared:
        lines += ["", "## Not in all runs", ""]
        lines += [f"- {escaped(line)}" for line in comparison.unshared]
    return "\n".join([*lines, "", CAVEAT]) + "\n"


def _bold(row: Row) -> str:
    word, comma, rest = verdict_words(row).partition(", " if row.compared else ": ")
    which = f" ({row.configuration})" if row.what == BEST and row.configuration else ""
    place = f"{row.run}, {named(row.concurrency)}, {row.what}{which}"
    return f"{escaped(place)}: **{escaped(word)}**{comma}{escaped(rest)}"


def _behind_cells(row: Row) -> list[str]:
    known = {"configuration": row.configuration or "-", **dict(reasons_of(row))}
    return [row.run, *(escaped(known.get(name, "-")) for name in BEHIND)]


def _header(comparison: Comparison) -> list[str]:
    words = comparison.metric.removesuffix("_tok_s")
    header = ["run", f"{words} tok/s", f"ratio to {comparison.reference}", "TTFT p50/p90/p99"]
    launch = "launch (model time)" if comparison.simulated else "launch"
    return [*header, "TPOT p50/p90/p99", "accept length", launch, "verdict"]
