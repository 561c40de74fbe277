"""What a run says of itself while it goes on, and how it is asked to stop: two files in its folder.

state.json is there while a specbench holds the run; it is about the moment and nothing is ever
counted from it. `stop` is made by `specbench stop` and read before each candidate: no signal is
sent, so that no stranger's process can be met, and it works over a shared folder.
"""

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

from tuner.core.errors import printable
from tuner.core.files import read_json, write_json
from tuner.runs.run_folder import RunFolder

MOST = 2**53
"""Larger numbers are none that specbench wrote."""


@dataclass(frozen=True)
class State:
    """state.json. What is not known is None."""

    pid: int
    host: str
    began: str
    """When this specbench began; UTC, ISO 8601 with Z, as `told`."""
    told: str
    """When this was written: at the beginning of each window, launch and step."""
    doing: str
    """launching, warming, measuring or stopping; or a sentence of a step besides trials."""
    trial: int | None = None
    role: str | None = None
    configuration: str | None = None
    concurrency: int | str | None = None
    """The level: a concurrency, or a rate such as `4/s`."""
    window: int | None = None
    windows: int | None = None
    places: dict[str, str] | None = None
    """What goes on in each place, in words, where several measure at a time."""
    left_s: float | None = None
    """Seconds until the wanted candidates are measured, as the trials of this call took."""


def own_state(began: datetime, doing: str, **about: Any) -> State:
    """The state of this process now."""
    return State(os.getpid(), socket.gethostname(), stamp(began), stamp(), doing, **about)


def stamp(when: datetime | None = None) -> str:
    """UTC as state.json writes it; now without a time."""
    return (when or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_state(run: RunFolder, state: State) -> None:
    """Say what the run does. A full disk does not end it."""
    with suppress(OSError):
        write_json(run.state_file, asdict(state))


def read_state(run: RunFolder) -> State | None:
    """What the run said last; None where it said nothing, or nothing that can be read."""
    if not run.state_file.is_file():
        return None
    try:
        found = read_json(run.state_file)
        state = State(**{name: _of_kind(value, _KINDS[name]) for name, value in found.items()
                         if name in _KINDS})  # fmt: skip
        datetime.fromisoformat(state.told)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    return state


_KINDS = {each.name: frozenset(re.findall(r"\w+", str(each.type))) for each in fields(State)}
"""Types of each part that is known: the file may be a stranger's, or half of an older one."""


def _of_kind(value: Any, kinds: frozenset[str]) -> Any:
    """A text on one line, a finite number, texts by name, or None. Raises TypeError for anything
    else."""
    if value is None:
        return None
    if "dict" in kinds and isinstance(value, dict):
        return {printable(name): _of_kind(each, frozenset({"str"})) for name, each in value.items()}
    if "dict" not in kinds and "str" in kinds and isinstance(value, str):
        return printable(value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not (
        (whole and kinds & {"int", "float"}) or (isinstance(value, float) and "float" in kinds)
    ):
        raise TypeError(value)
    if not abs(value) < MOST:
        raise ValueError(value)
    return value


def forget_state(run: RunFolder) -> None:
    """Nobody holds the run any more, or somebody just began to: remove both files."""
    for file in (run.state_file, run.stop_file):
        with suppress(OSError):
            file.unlink(missing_ok=True)


@dataclass(frozen=True)
class Ended:
    """Of the last `sweep` or `--resume` on a run."""

    finished: bool
    """The search ended by itself or had its candidates, and every closing launch was considered:
    `--resume` would launch nothing."""
    why: str | None = None
    """What ended it early; None where nobody had the time to say so, and of a finished one."""
    closing: bool = False
    """Closing launches are missing, or were due where nobody came to say so."""


def write_ended(run: RunFolder, ended: Ended) -> None:
    """Say how it ended; a full disk does not end a run."""
    with suppress(OSError):
        write_json(run.ended_file, asdict(ended))


def read_ended(run: RunFolder) -> Ended | None:
    """None where nothing is said: an older specbench's run, or nothing that can be read."""
    try:
        found = read_json(run.ended_file) if run.ended_file.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("finished"), bool):
        return None
    why = found.get("why")
    words = printable(why) if isinstance(why, str) else None
    return Ended(found["finished"], words, found.get("closing") is True)


@contextmanager
def told_end(run: RunFolder) -> Iterator[None]:
    """Unfinished from here on; where the block is left by an error or Ctrl-C, that is why."""
    write_ended(run, Ended(False))
    try:
        yield
    except BaseException as error:
        said = read_ended(run) or Ended(False)
        if not said.finished:
            interrupted = isinstance(error, KeyboardInterrupt)
            why = "it was interrupted" if interrupted else printable(str(error))
            write_ended(run, replace(said, why=why))
        raise
