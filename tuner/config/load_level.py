"""A level of load: what each configuration is measured at, one after the other.

A whole number is a concurrency, that many streams in a closed loop (or, with one request rate and
several concurrencies, at most). A `Rate` is a rate of arrivals. A sweep has levels of one
sort. As text, in ledgers and file names, they are `8` and `4/s`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

RATE = r"(?:0|[1-9][0-9]*)(?:\.[0-9]+)?/s"
"""How a rate is written."""

PLACES = 6
"""Decimals of a rate's name."""

_RATE = re.compile(RATE)
_CONCURRENCY = re.compile(r"[1-9][0-9]*")


@dataclass(frozen=True, order=True)
class Rate:
    """Requests that come in a second; conversations where every turn is sent."""

    per_second: float
    turns: float | None = field(default=1.0, compare=False)
    """Requests of one that comes, on average; None: of conversations, and not known."""

    def __str__(self) -> str:
        return f"{_decimal(self.per_second)}/s"


Level = int | Rate


@lru_cache(maxsize=1024)  # asked for with every figure of every trial
def parse_level(text: str) -> Level:
    """The level that `str` wrote. Raises ValueError for anything else."""
    if _CONCURRENCY.fullmatch(text):
        return int(text)
    if _RATE.fullmatch(text) and (per_second := float(text.removesuffix("/s"))) > 0:
        return Rate(per_second)
    raise ValueError(f"'{text}' is no level, write a concurrency such as 8 or a rate such as 4/s")


def level_in(text: str, metrics: Mapping[str, Mapping[str, Any]]) -> Level:
    """The same of a ledger line's metrics by level, which say whether conversations came."""
    level, turns = parse_level(text), metrics.get(text, {}).get("turns_per_arrival")
    return Rate(level.per_second, turns) if isinstance(level, Rate) and turns else level


def named(level: Level | str) -> str:
    """`concurrency 8`, `4 requests/s`, `4 conversations/s (about 11 requests/s)`; a text is one
    that `str` wrote. Raises ValueError."""
    return listed([parse_level(level) if isinstance(level, str) else level])


def at(level: Level | str) -> str:
    """`at concurrency 8`, `at 4 requests/s`; see `named`."""
    return f"at {named(level)}"


def axis(levels: Sequence[Level]) -> str:
    """The heading above levels: `rate`, `concurrency`."""
    return "rate" if levels and isinstance(levels[0], Rate) else "concurrency"


def listed(levels: Sequence[Level]) -> str:
    """`concurrency 1, 8`, `4, 8 requests/s`, `4, 8 conversations/s (about 11, 22 requests/s)`."""
    shown = ", ".join(str(each).removesuffix("/s") for each in levels)
    rates = [each for each in levels if isinstance(each, Rate)]
    if not rates:
        return f"concurrency {shown}"
    if all(each.turns == 1 for each in rates):
        return f"{shown} requests/s"
    known = [_about(each.per_second * each.turns) for each in rates if each.turns]
    about = f" (about {', '.join(known)} requests/s)" if len(known) == len(rates) else ""
    return f"{shown} conversations/s{about}"


def columns(level: Level) -> dict[str, float | None]:
    """The level as columns of a table: `concurrency`, and `request_rate` of a rate."""
    if isinstance(level, Rate):
        return {"concurrency": None, "request_rate": level.per_second}
    return {"concurrency": level, "request_rate": None}


def _about(number: float) -> str:
    return f"{number:.0f}" if number >= 10 else f"{number:.2g}"


def _decimal(number: float) -> str:
    """Without an exponent and without a needless `.0`: 100000, 0.25."""
    return f"{number:.{PLACES}f}".rstrip("0").rstrip(".")
