"""Words and numbers as a report prints them. What was not measured is `-`, never 0."""

import shlex
from pathlib import Path
from typing import Protocol

from tuner.config.field_types import spell_time
from tuner.core.markdown import MISSING, block, code, escaped, markdown_table

__all__ = [
    "MISSING",
    "again_command",
    "block",
    "change",
    "code",
    "count",
    "duration",
    "escaped",
    "interval",
    "markdown_table",
    "number",
    "ratio",
    "text_table",
]


class Bounds(Protocol):
    """A value and its 95 % interval; a bound is None where there was nothing to compute it from."""

    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


def number(value: float | None, digits: int = 1) -> str:
    """`value` with `digits` decimals; none at 1000 and above, where they say nothing."""
    if value is None:
        return MISSING
    return f"{value:.{0 if abs(value) >= 1000 else digits}f}"


def interval(value: float | None, low: float | None, high: float | None, digits: int = 1) -> str:
    """`94.1 (93.2 to 95.0)`, or the value alone where it has no interval."""
    if value is None or low is None or high is None:
        return number(value, digits)
    return f"{number(value, digits)} ({number(low, digits)} to {number(high, digits)})"


def ratio(bounds: Bounds | None) -> str:
    """A speed-up, `1.047 (1.031 to 1.060)`."""
    if bounds is None:
        return MISSING
    return interval(bounds.value, bounds.low, bounds.high, 3)


def change(bounds: Bounds) -> str:
    """A speed-up in words: `5.9 % faster (95 % interval +3.1 % to +8.8 %)`."""
    percent = 100 * (bounds.value - 1)
    words = f"{abs(percent):.1f} % {'faster' if percent >= 0 else 'slower'}"
    if bounds.low is None or bounds.high is None:
        return words
    low, high = 100 * (bounds.low - 1), 100 * (bounds.high - 1)
    return f"{words} (95 % interval {low:+.1f} % to {high:+.1f} %)"


def duration(seconds: float | None) -> str:
    """`41 s`, `12.5 min` or `3.2 h`."""
    return MISSING if seconds is None else spell_time(seconds, measured=True)


def count(amount: int, noun: str) -> str:
    """`1 launch`, `3 launches`."""
    if amount == 1:
        return f"1 {noun}"
    return f"{amount} {noun}{'es' if noun.endswith(('ch', 's')) else 's'}"


def again_command(sweep_file: Path) -> str:
    """The command that measures a run's best.yaml, by its path as the run's was given."""
    return code(shlex.join(["specbench", "sweep", str(sweep_file)]))


def text_table(header: list[str], rows: list[list[str]]) -> str:
    """The same table for a terminal, in aligned columns: words first and last, numbers between."""
    last = len(header) - 1
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]

    def line(cells: list[str]) -> str:
        padded = [
            cell.ljust(width) if i in (0, last) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, rows)])
