"""`specbench dashboard`: the study to show of a run, and the server."""

import os
from collections.abc import Sequence
from contextlib import suppress

import optuna_dashboard
from optuna.storages import BaseStorage, InMemoryStorage

from tuner.analysis.summary import summarise_run
from tuner.config.credentials import revealed
from tuner.config.point import Point
from tuner.config.schema import Sweep
from tuner.core.errors import UserError
from tuner.dashboard.run_files import RunFiles
from tuner.dashboard.study import CAUGHT_UP, RunStudy, count_trials, open_own_study
from tuner.runs.run import Run
from tuner.search.optuna_storage import StorageUnusable, open_storage, sqlite_url

MOST_WRITTEN = 300
"""Missing trials that are written to a storage. More are shown from memory: to write one takes
about 0.1 s in SQLite, to add one in memory a few milliseconds."""


def study_to_view(run: Run) -> tuple[BaseStorage, str | None]:
    """Return a storage with the run's study, and a sentence for the user if it is not plain.

    While another process measures, its study is shown as it is. Otherwise the study is brought up
    to date with the ledger, or written anew. A study that cannot be written, or that lacks very
    many trials, is made in memory. Raises UserError for a run without measurements.
    """
    if not run.records():
        raise UserError("this run has measured nothing yet, wait for its baseline", run.path)
    sweep, note = run.sweep(), None
    points = run.space.points
    try:
        if run.is_being_written:
            return _running_study(run, sweep), None
        study, note = _own_study(run, sweep, points)
    except StorageUnusable as error:
        note = f"{error}: shown from the ledger as it is now, edits in the dashboard are not kept"
        study = RunStudy(InMemoryStorage(), run, sweep, points)
        study.extend()
    with suppress(StorageUnusable):  # a read-only study is shown as it is
        _describe(study, run)
        study.link(run.results)
        study.show_running("nothing")
    return study.storage, note


def _describe(study: RunStudy, run: Run) -> None:
    """Write the answer, also if samples are broken: `specbench report` names those."""
    try:
        summary = summarise_run(run, study.sweep)
    except UserError:
        study.describe_so_far()
    else:
        study.describe(summary)


def _running_study(run: Run, sweep: Sweep) -> BaseStorage:
    """Return the storage that another process writes. Raises StorageUnusable if it is behind."""
    name, url = _named_url(sweep)
    if url is None and not run.study_file.is_file():
        raise StorageUnusable(f"this run has no {name}")
    storage = open_storage(url or sqlite_url(run.study_file))
    count = count_trials(storage, run)
    if count is None or len(run.records()) - count > CAUGHT_UP:
        raise StorageUnusable(f"{name} lacks trials of the ledger")
    return storage


def _own_study(run: Run, sweep: Sweep, points: Sequence[Point]) -> tuple[RunStudy, str | None]:
    """Return the study in the run's storage, up to date. Raises StorageUnusable."""
    name, url = _named_url(sweep)
    if url is None:
        study, note = open_own_study(run, sweep, points)
        if study is None:
            raise StorageUnusable(f"{name} cannot be used")
    else:
        try:
            study, note = RunStudy(open_storage(url), run, sweep, points), None
        except StorageUnusable as error:
            raise StorageUnusable(f"{name} cannot be used ({error})") from error
    if study.missing > MOST_WRITTEN:
        raise StorageUnusable(f"{name} lacks {study.missing:,} trials")
    study.extend()
    return study, note


def _named_url(sweep: Sweep) -> tuple[str, str | None]:
    """Return the name of the run's storage for messages, and its URL unless it is study.db."""
    if (url := sweep.search.storage) is None:
        return "study.db", None
    return "search.storage", revealed(url, os.environ)  # the run's copy has no password


def serve(storage: BaseStorage, run: Run, host: str, port: int) -> None:
    """Serve the dashboard of a storage until Ctrl-C. Raises UserError for a port in use."""
    try:
        optuna_dashboard.run_server(
            storage, host=host, port=port, artifact_store=RunFiles(run.path)
        )
    except OSError as error:
        raise UserError(f"{host}:{port}: {error.strerror}, choose another --port") from error
