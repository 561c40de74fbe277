"""Numbers, intervals and text tables for people. A value that was not measured is `-`, never 0."""

from math import inf
from typing import Protocol

MISSING = "-"


class Bounds(Protocol):
    """A value and its 95 % interval. A bound is None if it could not be computed."""

    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


def number(value: float | None, digits: int = 1, whole_from: float = 1000) -> str:
    """Format `value` with `digits` decimals, and without decimals from `whole_from` on."""
    if value is None:
        return MISSING
    return f"{value:.{0 if abs(value) >= whole_from else digits}f}"


def interval(
    value: float | None,
    low: float | None,
    high: float | None,
    digits: int = 1,
    whole_from: float = 1000,
) -> str:
    """Format `94.1 (93.2 to 95.0)`, or the value alone if it has no interval."""
    shown = number(value, digits, whole_from)
    if value is None or low is None or high is None:
        return shown
    return f"{shown} ({number(low, digits, whole_from)} to {number(high, digits, whole_from)})"


def ratio(bounds: Bounds | None, digits: int = 3) -> str:
    """Format a speed-up: `1.047 (1.031 to 1.060)`."""
    if bounds is None:
        return MISSING
    return interval(bounds.value, bounds.low, bounds.high, digits, inf)


def times(bounds: Bounds) -> str:
    """Format a speed-up as `1.047x (1.031 to 1.060)`."""
    value, space, spread = ratio(bounds).partition(" ")
    return f"{value}x{space}{spread}"


def change(bounds: Bounds) -> str:
    """Format a speed-up in words: `5.9 % faster (95 % interval +3.1 % to +8.8 %)`."""
    percent = 100 * (bounds.value - 1)
    words = f"{abs(percent):.1f} % {'faster' if percent >= 0 else 'slower'}"
    if bounds.low is None or bounds.high is None:
        return words
    low, high = 100 * (bounds.low - 1), 100 * (bounds.high - 1)
    return f"{words} (95 % interval {low:+.1f} % to {high:+.1f} %)"


def percent(share: float | None) -> str:
    """Format a share as `47.0 %`."""
    return MISSING if share is None else f"{100 * share:.1f} %"


def short(value: float, digits: int = 4) -> str:
    """Format `digits` significant digits without a power of ten: 12345, not 1.234e+04."""
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e+" in text else text


def spell_time(seconds: float, measured: bool = False) -> str:
    """Format `45 s`, `2.5 min`, `12 min`, `3.4 h`; a measured time as `4.5 s` and `12.5 min`."""
    if 0 < seconds < 1:
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.1f} s" if measured and seconds < 10 else f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.{int(measured or seconds < 600)}f} min"
    return f"{seconds / 3600:,.1f} h"


def duration(seconds: float | None) -> str:
    """Format a measured time: `41 s`, `12.5 min` or `3.2 h`."""
    return MISSING if seconds is None else spell_time(seconds, measured=True)


def count(amount: int, noun: str) -> str:
    """Format `1 launch` or `3 launches`."""
    if amount == 1:
        return f"1 {noun}"
    return f"{amount} {noun}{'es' if noun.endswith(('ch', 's')) else 's'}"


def text_table(header: list[str], rows: list[list[str]]) -> str:
    """Return a table for a terminal: the first and the last column hold words, others numbers."""
    last = len(header) - 1
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]

    def line(cells: list[str]) -> str:
        padded = [
            cell.ljust(width) if i in (0, last) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, rows)])
