"""stdout and stderr that may go away: `| head`, a closed terminal, a full disk."""

import errno
import io
import os
import sys
from typing import Any, TextIO

from tuner.secrets import hidden_values


def outlive_streams() -> None:
    """From now on a stdout or stderr that cannot be written is dropped and not an exception.

    A run that took the night must not end because nobody reads its progress. Characters that the
    stream's encoding lacks are written as escapes.
    """
    for number in (0, 1, 2):
        _fill(number)
    if sys.stdout is None or sys.stdout is sys.__stdout__:  # else somebody catches it in Python
        sys.stdout = _lasting(1, sys.stdout)
    if sys.stderr is None or sys.stderr is sys.__stderr__:
        sys.stderr = _lasting(2, sys.stderr)


def lost_output() -> str | None:
    """Why stdout was dropped; None where it was not, or where its reader simply had enough."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    lost = raw.lost if isinstance(raw, _Lasting) else None
    gone = (errno.EPIPE, errno.EIO)  # the latter: a terminal that was closed
    return None if lost is None or lost.errno in gone else lost.strerror


class _Lasting(io.FileIO):
    """A descriptor whose first failed write sends everything after it to /dev/null."""

    lost: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BlockingIOError:
            raise
        except OSError as error:
            self.lost = error
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(data).nbytes


class _Discreet(io.TextIOWrapper):
    """The last net: a value that is known for a secret is not shown, whoever prints it."""

    def write(self, text: str) -> int:
        super().write(hidden_values(text))
        return len(text)


def _lasting(number: int, was: TextIO | None) -> TextIO:
    encoding = was.encoding if was is not None else "utf-8"
    errors = was.errors if was is not None else None
    return _Discreet(
        io.BufferedWriter(_Lasting(number, "w", closefd=False)),
        encoding=encoding,
        errors="backslashreplace" if errors in (None, "strict") else errors,
        line_buffering=os.isatty(number) or number == 2,
    )


def _fill(number: int) -> None:
    """Open a descriptor that is closed: the next file opened would get its number and its lines."""
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
