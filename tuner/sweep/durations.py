"""Durations as a sweep file writes them."""

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


def spell_time(seconds: float) -> str:
    """`45 s`, `12 min`, `3.4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
