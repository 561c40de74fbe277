"""How a run's last call ended: ended.json, so that nobody has to guess whether anything is due."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace

from tuner.errors import printable
from tuner.ledger.folder import RunFolder
from tuner.whole import read_json, write_json


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
