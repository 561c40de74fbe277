"""SIGTERM and a closed terminal end a command as Ctrl-C does: whatever it started is stopped."""

import signal
from types import FrameType
from typing import NoReturn


def end_on_signals() -> None:
    """From now on both raise KeyboardInterrupt."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
