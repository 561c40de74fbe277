"""What a user wrote: what is no text at all, and how a message of one line shows the rest."""

import re

from tuner.errors import printable

LONGEST = 60

_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)
"""What steers a terminal, ends a line or turns the direction of what is read after it; not tab and
the usual ends of lines."""


def shortened(text: str) -> str:
    """One line of at most 60 characters."""
    line = printable(text)
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."


def as_text(text: str) -> str:
    """What a model has written, with U+FFFD for what `no_text` refuses: a byte-level tokenizer has
    a token for NUL, and an answer may be cut inside a character."""
    return "".join("\ufffd" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in text)


def no_text(text: str) -> str | None:
    """Why no process, file or request can hold a text, and what would be right; None: it can."""
    if "\0" in text:
        return "a text cannot hold the character NUL (\\0), remove it"
    if any("\ud800" <= c <= "\udfff" for c in text):
        return "half a character (\\ud800 to \\udfff) is no text, write the character itself"
    return None


def unseen(text: str) -> str | None:
    """Why a value that is shown on screens and in reports should not hold a character, and what
    would be right; None where each can be seen."""
    found = _UNSEEN.search(text)
    if found is None:
        return None
    which = f"U+{ord(found[0]):04X}"
    return f"the control character {which} would be hidden where this is shown, remove it"
