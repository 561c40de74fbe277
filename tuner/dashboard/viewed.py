"""The study that `specbench dashboard` shows of a run, whatever state the run is in."""

import os
from contextlib import suppress

from tuner.config.credentials import revealed
from tuner.config.space import Space
from tuner.config.yaml_document import read_document
from tuner.core.errors import UserError
from tuner.dashboard.live import Showing, records_to_show
from tuner.dashboard.study import StoredStudy, find, link_files
from tuner.dashboard.trials import make_schema
from tuner.runs.run import Run
from tuner.search.optuna_storage import Storage, StorageUnusable, open_storage, sqlite_url

IN_MEMORY = "sqlite:///:memory:"


def study_to_view(run: Run) -> tuple[Storage, str | None]:
    """The storage that has the run's study, and a sentence where it is not the run's own.

    The run's own is shown while the run is being written, and afterwards where it has every line
    of the ledger. Else, as with a run that was killed, copied without its study or made by an
    older version, it is made from the ledger in memory: the run folder is not touched. Raises
    UserError for a run that has measured nothing and for a ledger that cannot be read.
    """
    found, why = _own_study(run)
    if found is not None:
        return found, None
    sweep = run.sweep()
    if not run.records():
        raise UserError("this run has measured nothing yet, wait for its baseline", run.path)
    space = Space.from_sweep(sweep, read_document(run.sweep_text(), str(run.sweep_file)))
    layout = make_schema(run, sweep, space.points)
    stored = StoredStudy(IN_MEMORY, layout)
    showing = Showing(run, sweep, layout, stored)
    if showing.lost is not None:
        raise UserError(f"its study cannot be made from the ledger: {showing.lost}", run.path)
    found = stored.storage
    _link(run, found)
    return found, f"{why}: shown from the ledger as it is now, edits in the dashboard are not kept"


def _own_study(run: Run) -> tuple[Storage | None, str]:
    """The storage that the run writes its study to; None, and why, where it is not to be shown."""
    url = run.sweep().search.storage
    if url is not None:
        url = revealed(url, os.environ)  # the run's copy has no password
    name = "search.storage" if url else run.study_file.name
    if url is None and not run.study_file.is_file():
        return None, f"this run has no {name}"
    try:
        storage = open_storage(url or sqlite_url(run.study_file))
        found = find(storage, run.id, run.settings.identity)
    except StorageUnusable as error:
        return None, f"{name} cannot be used ({error})"
    if found is None:
        return None, f"{name} has no study of this run"
    if not run.is_being_written and not (
        found.is_whole and found.trials == len(records_to_show(run.records()))
    ):
        return None, f"{name} is not what the ledger says"
    _link(run, storage)
    return storage, ""


def _link(run: Run, storage: Storage) -> None:
    """Make what the run left for its reader artifacts of the study; a storage to read only has
    those that it has."""
    with suppress(StorageUnusable):
        found = find(storage, run.id, run.settings.identity)
        if found is not None:
            link_files(storage, found.study, [run.relative(file) for file in run.results])
