"""Durations as a sweep file writes them, and as people read them."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from tuner.sweep.shown import shortened

LONGEST_DAYS = 365
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(value: Any) -> Any:
    """`90`, `"30m"` or `"1.5h"` as seconds; anything else goes on to the type's own refusal."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)", value.strip())
        if match is None:
            raise ValueError(
                f"'{shortened(value)}' is not a duration, write it like 90s, 30m or 12h"
            )
        seconds = float(match[1]) * _UNITS[match[2]]
    else:
        seconds = float(value)
    if seconds > LONGEST_DAYS * _UNITS["d"]:
        raise ValueError(f"{shortened(str(value))} is too long, write {LONGEST_DAYS}d or less")
    return seconds


Seconds = Annotated[
    float,
    BeforeValidator(parse_duration),
    Field(gt=0),
    WithJsonSchema({"type": ["string", "number"], "pattern": r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)$"}),
]
"""A duration in seconds, a year at most; in the file `90`, `90s`, `30m`, `12h`."""


def spell_time(seconds: float, measured: bool = False) -> str:
    """`45 s`, `2.5 min`, `12 min`, `3.4 h`; what was measured has more: `4.5 s`, `12.5 min`.

    The one place that words a duration that a person reads, so that none of a minute is 0.0 h.
    """
    if 0 < seconds < 1:
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.1f} s" if measured and seconds < 10 else f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.{int(measured or seconds < 600)}f} min"
    return f"{seconds / 3600:,.1f} h"
