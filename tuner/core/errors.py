"""The two families of error, and the names of what goes wrong.

UserError      the sweep file, a flag or a run folder is wrong: one sentence, exit 2
  NotComparable  two runs cannot be held against each other: exit 4
EngineFailure  the world failed: a label, a sentence and the end of the log, exit 1

Neither shows a secret: see tuner/core/secrets.py.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path

from tuner.core.secrets import hidden


def printable(text: str, but: str = "") -> str:
    """The text with whatever ends a line, steers a terminal or turns the direction of what follows
    as an escape, `\\n` or `\\x1b`; the characters of `but` stay as they are."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in but else c.encode("unicode_escape").decode("ascii")
        for c in text
    )


def one_line(text: str) -> str:
    """A message as one line: what somebody's file or server has put into it, as escapes."""
    return printable(text.strip())


class UserError(Exception):
    """Something the user wrote is wrong. The message says what is wrong and what would be right.

    `where` is the place, as `FILE` or `FILE:LINE`; str() puts it in front of the message.
    """

    exit_code = 2

    def __init__(self, message: str, where: str | Path | None = None) -> None:
        self.message = one_line(hidden(message))
        self.where = printable(str(where)) if where is not None else None
        super().__init__(f"{self.where}: {self.message}" if self.where else self.message)

    def __reduce__(self) -> tuple[object, ...]:
        """As it was made: by itself an exception is made again from its text alone."""
        return type(self), (self.message, self.where)


class NotComparable(UserError):
    """The runs differ in something that makes their numbers different questions."""

    exit_code = 4


class Failure(StrEnum):
    """Why a launch or a measurement failed. The value is what ledgers and reports show."""

    BAD_ARGS = "BAD_ARGS"
    """SGLang refused its arguments, or a configuration that it checks at start."""
    NOT_PATCHED = "NOT_PATCHED"
    """A plug-in was asked for and the server shows no sign of it."""
    PORT_IN_USE = "PORT_IN_USE"
    OOM = "OOM"
    """GPU memory ran out, while loading or later."""
    GRAPH_CAPTURE = "GRAPH_CAPTURE"
    """CUDA graph capture failed; an illegal draft tree dies here."""
    MODEL_LOAD = "MODEL_LOAD"
    LAUNCH_TIMEOUT = "LAUNCH_TIMEOUT"
    HANG = "HANG"
    """Alive, but no token within the request's time limit."""
    CRASH = "CRASH"
    """The server ended and nothing more precise is known."""
    CLIENT = "CLIENT"
    """The server answered with something that is not an answer, or not at all."""
    WRONG_SERVER = "WRONG_SERVER"
    """Another server answers on the port."""
    LOST = "LOST"
    """The process or the machine that launched and measured is gone, its server with it."""

    @property
    def is_configs_own(self) -> bool:
        """True where this point would fail again: the sampler is told that it is infeasible."""
        return self in {Failure.BAD_ARGS, Failure.OOM, Failure.GRAPH_CAPTURE}

    @property
    def is_worth_a_retry(self) -> bool:
        """True where the next launch may well succeed."""
        return self in _WORTH_A_RETRY


_WORTH_A_RETRY = frozenset(
    {Failure.PORT_IN_USE, Failure.CRASH, Failure.CLIENT, Failure.WRONG_SERVER, Failure.LOST}
)


class EngineFailure(Exception):
    """A server did not start, died, hung or answered nonsense.

    `log_tail` is the end of the server's log, for the report; "" where there is no log.
    """

    def __init__(self, label: Failure, message: str, log_tail: str = "") -> None:
        self.label = label
        self.message = one_line(hidden(message))
        self.log_tail = printable(hidden(log_tail), but="\n\t")
        super().__init__(f"{label}: {self.message}")

    def __reduce__(self) -> tuple[object, ...]:
        """As it was made, for another process."""
        return type(self), (self.label, self.message, self.log_tail)


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """Return `did you mean X?` for the closest known word, or the whole list if none is close."""
    if close := get_close_matches(word, known, n=1, cutoff=0.6):
        return f"did you mean {close[0]}?"
    return f"there are {', '.join(known)}" if known else "remove it"
