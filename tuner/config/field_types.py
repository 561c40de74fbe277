"""What the values of a sweep file are made of: names, texts, and the strict base of its classes."""

import os
import re
from datetime import datetime, timedelta
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from tuner.config.yaml_document import shortened

FlagValue = bool | int | float | str

# Names and addresses that a sweep file may hold; a mistake is told in words, not as a pattern.
#
# Each function returns its value, and raises ValueError with a sentence for one that does not fit.
# Values of another type pass, for their type's own refusal.


def file_name(value: Any) -> Any:
    """The sweep's name, which becomes a folder's."""
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value):
        raise ValueError(
            f"'{shortened(value)}' cannot be a folder's name, write up to 100 letters, digits, "
            "points, dashes and underscores, with a letter or digit in front"
        )
    return value


def variable_name(value: Any) -> Any:
    """The name of an environment variable."""
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise ValueError(
            "this is not the name of a variable, write letters, digits and _, with no digit in "
            "front"
        )
    return value


def flag_name(value: Any) -> Any:
    """The name of a server's flag, without the dashes in front."""
    if not isinstance(value, str) or re.fullmatch(r"[a-z0-9][a-z0-9-]*", value):
        return value
    meant = value.strip().lstrip("-").lower().replace("_", "-")
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", meant):
        raise ValueError(
            "this is not the name of a flag, write small letters, digits and dashes, such as "
            "mem-fraction-static"
        )
    how = " without dashes in front" if value.startswith("-") else ""
    raise ValueError(f"this is not how a flag is written here, write {meant}{how}")


def http_url(value: str) -> str:
    """The address of a server: scheme, host, maybe port and path."""
    right = "write it like http://127.0.0.1:30000"
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"'{shortened(value)}' is not an address ({error}), {right}") from error
    host = parts.hostname or ""
    odd = not value.isprintable() or " " in value or parts.query or parts.fragment
    if parts.scheme not in ("http", "https") or odd or port == 0:
        raise ValueError(f"'{shortened(value)}' is not a server's address, {right}")
    if not re.fullmatch(
        r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,252})|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.%a-z]*", host
    ):
        raise ValueError(f"'{shortened(value)}' names no host, {right}")
    return value


def latency_name(value: Any) -> Any:
    """A latency that can have a limit."""
    if isinstance(value, str) and not re.fullmatch(r"(ttft|tpot|itl|e2e)_ms_p(50|90|99)", value):
        raise ValueError(
            f"'{shortened(value)}' is no latency that is measured, write ttft, tpot, itl or e2e "
            "with _ms_p50, _ms_p90 or _ms_p99, such as ttft_ms_p99"
        )
    return value


def at_home(text: str) -> str:
    """`~/x` as the path in this user's home where something is there, anything else as it is."""
    if not text.startswith("~/"):
        return text
    found = os.path.expanduser(text)  # noqa: PTH111 Path's own raises where there is no home
    return found if os.path.exists(found) else text  # noqa: PTH110


def no_flag(value: Any) -> Any:
    """A word that stands by itself on a command line, where one with a dash in front is a flag:
    neither shown as one nor refused where specbench sets it. Numbers below zero are none."""
    if isinstance(value, str) and re.match(r"-(?!\d|\.\d|$)", value):
        raise ValueError(
            f"'{shortened(value)}' would be read as another flag, write a value that does not "
            "begin with a dash"
        )
    return value


def of_one_line(value: str) -> str:
    """A name, which messages, tables and file names repeat."""
    if re.search(r"[\r\n\t]", value):
        raise ValueError(f"'{shortened(value)}' is no name, write it in one line without tabs")
    return value


UNSET = "unset"
"""The value that removes a variable from the server's environment, or leaves a flag away."""

# The patterns are for the JSON Schema; the words before them are what a mistake is told in.
Name = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"), BeforeValidator(file_name)
]
VariableName = Annotated[
    str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), BeforeValidator(variable_name)
]
FlagName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$"), BeforeValidator(flag_name)]
PathText = Annotated[str, AfterValidator(at_home)]
"""A path whose `~` is this user's home, where that is there: a prefix may lead elsewhere."""
Url = Annotated[str, AfterValidator(http_url), WithJsonSchema({"type": "string", "format": "uri"})]


def _spelt(value: Any) -> Any:
    """Refuses `Unset`, which would be a text while `unset` takes away."""
    if isinstance(value, str) and value != UNSET and value.strip().lower() == UNSET:
        raise ValueError(
            f"'{value}' would be taken as a text, write {UNSET} in small letters to leave it unset"
        )
    return value


def _decimal(value: Any) -> Any:
    """Integers are written in decimal; anything else that is no text is refused."""
    if isinstance(value, bool):
        word = "true" if value else "false"
        raise ValueError(f'{word} is not the value of a variable, write "{word}" in quotes, 0 or 1')
    return str(value) if isinstance(value, int) else value


EnvValue = Annotated[
    str,
    BeforeValidator(_decimal),
    AfterValidator(_spelt),
    WithJsonSchema({"type": ["string", "integer"]}),
]
FlagChoice = Annotated[FlagValue, AfterValidator(_spelt)]
ListedChoice = Annotated[FlagChoice, AfterValidator(no_flag)]
"""Of a flag that takes several words: each stands on the command line by itself."""
ModelName = Annotated[PathText, AfterValidator(no_flag), AfterValidator(of_one_line)]
"""A name or a folder."""


class Strict(BaseModel):
    """No unknown keys, no conversion between types, no change after reading."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


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


_OF_DAY = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")
_RIGHT = 'write "07:30" for the next time that it is so late here, or 2026-12-01T07:30+01:00'


def refused(text: str) -> str | None:
    """Why this is no deadline; None where it is one."""
    try:
        when(text, datetime.fromisoformat("2026-01-01T00:00+00:00"))
    except (ValueError, OverflowError) as error:
        return str(error)
    return None


def _checked(value: Any) -> Any:
    """Raises ValueError for a text that `when` cannot read; anything else is the type's matter."""
    if isinstance(value, str) and (why := refused(value)) is not None:
        raise ValueError(why)
    return value


def when(deadline: str, now: datetime) -> datetime:
    """The moment that is meant, with a zone; `now` has one too, which is that of a time of day.

    Raises ValueError for a text that is none.
    """
    text = deadline.strip()
    if (found := _OF_DAY.fullmatch(text)) is not None:
        return _next(int(found[1]), int(found[2]), now)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"'{shortened(deadline)}' is no time, {_RIGHT}") from error
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise ValueError(f"'{shortened(deadline)}' does not say its zone, {_RIGHT}")
    return moment


def _next(hour: int, minute: int, now: datetime) -> datetime:
    """By the wall: the night in which summer time ends has an hour more."""
    wall = now.replace(tzinfo=None)
    today = wall.replace(hour=hour, minute=minute, second=0, microsecond=0)
    moment = today if today > wall else today + timedelta(days=1)
    return moment.astimezone() if _is_local(now) else moment.replace(tzinfo=now.tzinfo)


def _is_local(now: datetime) -> bool:
    return now.replace(tzinfo=None).astimezone().utcoffset() == now.utcoffset()


Deadline = Annotated[str, BeforeValidator(_checked), WithJsonSchema({"type": "string"})]
"""A text that `when` reads."""


class RangeSpec(Strict):
    """Every integer from low to high, both included."""

    low: int
    high: int

    @model_validator(mode="after")
    def _is_not_reversed(self) -> Self:
        if self.low > self.high:
            raise ValueError(
                f"low {self.low} is above high {self.high}, write {{low: {self.high}, "
                f"high: {self.low}}}"
            )
        return self


Values = Annotated[list[int], Field(min_length=1)]
