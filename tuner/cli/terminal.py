"""SIGTERM ends a command as Ctrl-C does: whatever it started is stopped."""

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn, TextIO

from tuner.core.secrets import hidden_values


def end_on_signals(*, outlive_terminal: bool = False) -> None:
    """From now on SIGTERM raises KeyboardInterrupt.

    So does SIGHUP, a closed terminal; or it is of no consequence, for a run of hours that somebody
    started over ssh: what cannot be written is dropped (streams.py), and the servers, which lead
    sessions of their own, never hear of it.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    def go_on(_number: int, _frame: FrameType | None) -> None:
        """Not SIG_IGN, which the servers would inherit."""

    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGHUP, go_on if outlive_terminal else interrupt)


@contextmanager
def interrupts_said(words: str) -> Iterator[None]:
    """In the block SIGINT and SIGTERM say `words` on stderr at once, before what they do.

    To end servers takes seconds, in which somebody would press Ctrl-C again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {each: handler for each in numbers if callable(handler := signal.getsignal(each))}

    def say(number: int, frame: FrameType | None) -> None:
        with suppress(OSError):  # click's echo is not to be entered twice
            os.write(2, f"\nspecbench: {words}\n".encode())
        before[signal.Signals(number)](number, frame)

    for each in before:
        signal.signal(each, say)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


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
