"""The run that a command is about, where its name is not the whole of a run's path."""

from pathlib import Path

import click

from tuner.errors import UserError
from tuner.ledger.newest import RESULTS, newest_runs
from tuner.ledger.run import Run

SHOWN = 3
"""Runs that a message names."""


def run_meant(given: Path | None) -> Path:
    """`given`, where that is a run or no folder of runs; else the newest of those in it, or of
    results/ where nothing is given, which is said on stderr.

    For commands that only look: what ends or removes something wants the run by its name. Raises
    UserError where there is none.
    """
    try:
        if given is not None and (given / "run.json").exists():
            return given
        found = newest_runs(RESULTS if given is None else given)
    except OSError:  # a name that is too long, a folder that is closed: `Run.open` says it
        found = []
    if found:
        click.echo(f"specbench: the newest run: {found[0]}", err=True)
        return found[0]
    if given is None:
        raise UserError("there is no run in results/, give the path of one, such as OUT/RUN-ID")
    return given


def runs_to_name() -> str:
    """`; the newest: RUN (at work), RUN`, for a message that asks for one; "" without any."""
    named = []
    for path in newest_runs()[:SHOWN]:
        try:
            at_work = Run.open(path).is_being_written
        except UserError:
            at_work = False
        named.append(f"{path} (at work)" if at_work else str(path))
    return f"; the newest: {', '.join(named)}" if named else ""
