"""When a run is to be over: a time with its zone, or the next time that the clock shows 07:30."""

import re
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from tuner.sweep.shown import shortened

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
