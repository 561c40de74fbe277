"""SIGTERM ends a command as Ctrl-C does: whatever it started is stopped."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn


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
