"""Servers of a specbench that was killed: they hold GPU memory until somebody ends them."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tuner.engine.footprint import end_left_behind
from tuner.errors import UserError
from tuner.ledger.folder import RunFolder

PROBES = 4


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
        with lock_of(beside.trials_file) as is_ours:
            if is_ours:
                notes += _end(beside)
    return notes


def lock_soon(file: IO[bytes]) -> bool:
    """`try_lock`, a few times: `specbench status` has the lock for a moment to see who has it."""
    for _ in range(PROBES):
        if try_lock(file):
            return True
        time.sleep(0.05)
    return try_lock(file)


def try_lock(file: IO[bytes]) -> bool:
    """Take a run's lock, which ends with the process or the file; False where another has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def hold(file: IO[bytes]) -> bool:
    """`lock_soon`. Raises UserError on a network file system that has no locks."""
    try:
        return lock_soon(file)
    except OSError as error:
        message = f"locks do not work here ({error.strerror}), give a folder on a local disk"
        raise UserError(message, str(file.name)) from error


def is_locked(file: IO[bytes]) -> bool:
    """Whether another process has the lock of a file that is open for reading.

    Asked by a shared lock, which two can have who only look; over NFS an exclusive one wants a file
    that is open for writing. Raises OSError where there are no locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


@contextmanager
def lock_of(trials_file: Path) -> Iterator[bool]:
    """Hold a run's lock while the block runs; False where it cannot be had."""
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
