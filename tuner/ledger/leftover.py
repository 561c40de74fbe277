"""What a killed specbench left in a run folder; never anything that a run has measured."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tuner.engine.footprint import end_left_behind, is_another_hosts, processes_left
from tuner.errors import UserError
from tuner.ledger.at_work import read_state
from tuner.ledger.folder import RunFolder
from tuner.ledger.left_behind import hold
from tuner.whole import SUFFIX


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
