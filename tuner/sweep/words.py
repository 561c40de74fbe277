"""Names and addresses that a sweep file may hold; a mistake is told in words, not as a pattern.

Each function returns its value, and raises ValueError with a sentence for one that does not fit.
Values of another type pass, for their type's own refusal.
"""

import os
import re
from typing import Any
from urllib.parse import urlsplit

from tuner.sweep.shown import shortened


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
