"""Servers of a specbench that was killed: they hold GPU memory until somebody ends them."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tuner.engine.footprint import end_left_behind
from tuner.ledger.folder import RunFolder


def end_servers(run: RunFolder) -> list[str]:
    """End what is left of launches of `run`, which is locked, and of the runs beside it.

    A run beside it whose lock is taken is at work and left alone. Returns what was done, a
    sentence for each launch.
    """
    notes = list(_end(run))
    for path in sorted(run.path.resolve().parent.iterdir()):
        beside = RunFolder(path)
        if path == run.path.resolve() or not beside.running:
            continue
        with _lock_of(beside.trials_file) as is_ours:
            if is_ours:
                notes += _end(beside)
    return notes


def try_lock(file: IO[bytes]) -> bool:
    """Take a run's lock, which ends with the process or the file; False where another has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _lock_of(trials_file: Path) -> Iterator[bool]:
    try:
        file = trials_file.open("r+b")
    except OSError:  # gone, or another user's: no business of this run
        yield False
        return
    with file:
        yield try_lock(file)


def _end(run: RunFolder) -> Iterator[str]:
    for footprint in run.running:
        launch = footprint.name.partition(".")[0]
        ended, surviving = end_left_behind(footprint)
        whose = f"that launch {launch} of a killed specbench had left running in {run.path}"
        if ended:
            yield f"ended {ended} process{'es' if ended > 1 else ''} {whose}"
        if surviving:
            yield f"cannot end the processes {surviving} {whose}: end them or free their GPUs"
