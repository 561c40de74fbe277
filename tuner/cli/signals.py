"""SIGTERM ends a command as Ctrl-C does: whatever it started is stopped."""

import signal
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
