"""`specbench compare-report`: compare runs, print or write the result, apply the gate."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.core.errors import UserError

if TYPE_CHECKING:
    from tuner.compare.comparison import Comparison

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
    """Compare and print. Return the exit code. Raises NotComparable and UserError."""
    from tuner.compare.comparison import compare
    from tuner.compare.external.reader import is_foreign
    from tuner.compare.sources import open_sources

    if options.markdown and options.as_json:
        raise click.UsageError("--markdown and --json are two forms, give one of them.")
    alone = len(paths) == 1 and not is_foreign(paths[0])  # a file may hold several workloads
    sources = [] if alone else [source for path in paths for source in open_sources(path)]
    if len(sources) < 2:
        raise UserError("compare-report needs two runs or more, as results/NAME/RUN-ID")
    comparison = compare(sources, every=options.show_all)
    text = _render(comparison, options)
    if options.out is None:
        click.echo(text)
    else:
        _write(options.out, text + "\n")
    if options.html is not None:
        from tuner.compare.regression_gate import Gate
        from tuner.compare.render import comparison_page

        words = [] if options.fail_on is None else Gate(comparison, options.fail_on).words()
        _write(options.html, comparison_page(comparison, words))
    if options.fail_on is None:
        comparison.refuse_incomparable()
        return 0
    return _gate(comparison, options.fail_on)


def _render(comparison: "Comparison", options: CompareOptions) -> str:
    from tuner.compare.regression_gate import Gate
    from tuner.compare.render import comparison_markdown, comparison_text

    gate = None if options.fail_on is None else Gate(comparison, options.fail_on)
    if options.as_json:
        found = comparison.to_json() | ({} if gate is None else {"gate": gate.to_json()})
        return json.dumps(found, indent=2)
    if options.markdown:
        words = [] if gate is None else gate.words()
        return comparison_markdown(comparison, gate=words).rstrip("\n")
    return comparison_text(comparison).rstrip("\n")


def _write(path: Path, text: str) -> None:
    try:
        # A file's name need not be UTF-8, and stands in the text.
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        message = f"cannot write this file: {error.strerror}. Name a file in an existing folder."
        raise UserError(message, path) from error
    click.echo(f"written: {path}", err=True)


def _gate(comparison: "Comparison", threshold: float) -> int:
    from tuner.compare.regression_gate import Gate

    gate = Gate(comparison, threshold)
    if gate.slower:
        for words in gate.words():
            click.echo(f"specbench: {words}", err=True)
        return REGRESSION
    comparison.refuse_incomparable()
    comparison.refuse_unjudged()
    for words in gate.words():
        click.echo(words, err=True)
    return 0
