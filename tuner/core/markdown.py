"""Markdown that holds what users and servers wrote, as text and nothing else."""

import re

from tuner.core.errors import printable
from tuner.core.formatting import MISSING

_MARKED = re.compile(r"([\\`*\[\]|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")


def escaped(text: object) -> str:
    """User text as plain words of one Markdown line or table cell: no mark-up, no HTML."""
    flat = _flat(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKED.sub(r"\\\1", flat)


def code(text: object) -> str:
    """User text as a code span; in a table cell `markdown_table` sees to its pipes."""
    flat = _flat(text)
    fence = "`" * (_longest_run(flat) + 1)
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{pad}{flat}{pad}{fence}" if flat else MISSING


def _flat(text: object) -> str:
    """One line; what cannot be printed, or turns the direction of what follows, as an escape."""
    return printable(" ".join(str(text).split()))


def block(text: str, language: str = "") -> str:
    """User text as a fenced block that it cannot close."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)


def markdown_table(header: list[str], rows: list[list[str]], numbers_from: int = 1) -> str:
    """A pipe table; cells are Markdown already. Columns from `numbers_from` are right-aligned."""
    rule = ["---" if i < numbers_from else "---:" for i in range(len(header))]
    lines = [[_cell(cell) for cell in cells] for cells in [header, rule, *rows]]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


_SPAN = re.compile(r"(?<![`\\])(`+)(?!`)(.+?)(?<!`)\1(?!`)")


def _cell(cell: str) -> str:
    """With the pipes of code spans escaped: only a table takes the backslash away again."""
    return _SPAN.sub(lambda span: span[0].replace("|", "\\|"), cell)
