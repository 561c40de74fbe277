"""Servers of a specbench that was killed: they hold GPU memory until somebody ends them."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tuner.core.errors import UserError
from tuner.core.files import SUFFIX
from tuner.runs.run_folder import RunFolder
from tuner.runs.status import read_state
from tuner.server.pid_file import end_left_behind, is_another_hosts, processes_left

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
        with hold_lock(beside.trials_file) as is_ours:
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
def hold_lock(trials_file: Path) -> Iterator[bool]:
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


@dataclass(frozen=True)
class Leftover:
    """One thing that can go."""

    path: Path
    what: str
    """`the footprint of launch 0004, processes 12, 13`."""
    processes: tuple[int, ...] = ()
    """Of a launch whose specbench is gone, by mark, or by id and start time."""


def leftovers(run: RunFolder) -> list[Leftover]:
    """What can go; [] where nothing is left. Changes nothing.

    Raises UserError for a run that a specbench holds, and for a folder that is no run's.
    """
    with _held(run):
        return list(_found(run))


def clear(run: RunFolder) -> Iterator[str]:
    """End those processes and remove those files, a sentence for each thing. Raises as above."""
    with _held(run):
        for each in _found(run):
            if each.path in run.running:
                ended, surviving = end_left_behind(each.path)
                if surviving:
                    yield f"cannot end the processes {surviving} of {each.path}"
                else:
                    yield f"ended {ended} processes, removed {each.path}"
                continue
            try:
                each.path.unlink(missing_ok=True)
            except OSError as error:  # another user's, or a folder: the rest can go all the same
                yield f"cannot remove {each.path}: {error.strerror}"
            else:
                yield f"removed {each.path}"


@contextmanager
def _held(run: RunFolder) -> Iterator[None]:
    """Hold the run, so that no specbench begins meanwhile."""
    if not run.trials_file.is_file():
        message = "this is no run folder (it has no trials.jsonl), give results/NAME/RUN-ID"
        raise UserError(message, run.path)
    try:
        file = run.trials_file.open("r+b")
    except OSError as error:
        message = f"{error.strerror}, clean it as the user whose run it is"
        raise UserError(message, run.trials_file) from error
    with file:
        if not hold(file):
            message = "a specbench is at work here, wait for it or ask it to stop: specbench stop"
            raise UserError(message, run.path)
        yield


def _found(run: RunFolder) -> Iterator[Leftover]:
    for footprint in run.running:
        if is_another_hosts(footprint):
            continue
        pids = tuple(processes_left(footprint))
        launch = footprint.name.partition(".")[0]
        alive = f"processes {', '.join(map(str, pids))}" if pids else "no process is left"
        yield Leftover(footprint, f"launch {launch} that was never stopped: {alive}", pids)
    halves = [
        *(file for folder in run.folders for file in folder.glob(f"*{SUFFIX}")),
        *run.samples.glob("*.tmp"),  # of an older specbench
    ]
    for file in sorted(halves):
        yield Leftover(file, "a file that was not written to its end")
    state = read_state(run)
    for file in (run.state_file, run.stop_file):
        if file.exists():
            whose = f" (process {state.pid} on {state.host}, {state.told})" if state else ""
            yield Leftover(file, f"what a specbench that is gone said of itself{whose}")
