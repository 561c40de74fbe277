"""`specbench compare-report`: what is compared, what is written where, and the gate."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.errors import UserError
from tuner.report.text import ratio
from tuner.sweep.level import at

if TYPE_CHECKING:
    from tuner.report.compare.comparison import Comparison

REGRESSION = 3
"""The exit code."""


@dataclass(frozen=True)
class CompareOptions:
    """The command's options."""

    show_all: bool
    fail_on: float | None
    """The share that a server may be slower by."""
    markdown: bool
    as_json: bool
    html: Path | None
    out: Path | None


def run_compare(paths: tuple[Path, ...], options: CompareOptions) -> int:
    """Compare and tell; the exit code. Raises NotComparable and UserError."""
    from tuner.foreign.door import is_foreign
    from tuner.report.compare.comparison import compare
    from tuner.report.compare.source import open_sources

    if options.markdown and options.as_json:
        raise click.UsageError("--markdown and --json are two forms, give one of them.")
    alone = len(paths) == 1 and not is_foreign(paths[0])  # a file may hold several workloads
    sources = [] if alone else [source for path in paths for source in open_sources(path)]
    if len(sources) < 2:
        raise UserError("compare-report needs two runs or more, as results/NAME/RUN-ID")
    comparison = compare(sources, every=options.show_all)
    told = _told(comparison, options)
    if options.out is None:
        click.echo(told)
    else:
        _write(options.out, told + "\n")
    if options.html is not None:
        from tuner.report.compare.page import comparison_page

        _write(options.html, comparison_page(comparison))
    if options.fail_on is None:
        comparison.refuse_incomparable()
        return 0
    return _gate(comparison, options.fail_on)


def _told(comparison: "Comparison", options: CompareOptions) -> str:
    from tuner.report.compare.words import comparison_markdown, comparison_text

    if options.as_json:
        return json.dumps(comparison.to_json(), indent=2)
    shown = comparison_markdown if options.markdown else comparison_text
    return shown(comparison).rstrip("\n")


def _write(path: Path, text: str) -> None:
    try:
        # A file's name need not be UTF-8, and stands in the text.
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        message = f"this cannot be written: {error.strerror}, give a file in a folder that is there"
        raise UserError(message, path) from error
    click.echo(f"written: {path}", err=True)


def _gate(comparison: "Comparison", threshold: float) -> int:
    slower = comparison.regressions(threshold)
    for row in slower:
        click.echo(
            f"specbench: regression of more than {100 * threshold:g} %: {row.what} of {row.run} "
            f"{at(row.concurrency)} has {ratio(row.ratio)} times the tok/s of "
            f"{comparison.reference}",
            err=True,
        )
    if slower:
        return REGRESSION
    comparison.refuse_incomparable()
    comparison.refuse_unjudged()
    click.echo(_passed(comparison, threshold), err=True)
    return 0


def _passed(comparison: "Comparison", threshold: float) -> str:
    """That the gate let all through, and which row came nearest to it."""
    said = f"gate {100 * threshold:g} %: passed"
    known = [(row.ratio.high, row) for row in comparison.gated if row.ratio and row.ratio.high]
    if not known:
        return said
    high, row = min(known, key=lambda pair: pair[0])
    return (
        f"{said} (the nearest, {row.what} of {row.run} {at(row.concurrency)}, has "
        f"{ratio(row.ratio)}; {high:.3f} is not below {1 - threshold:g})"
    )
