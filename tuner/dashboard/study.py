"""The study that optuna-dashboard shows: a trial for each ledger line, added as trials end."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage
from optuna.trial import Trial
from optuna_dashboard import get_note, save_note
from optuna_dashboard.artifact import get_artifact_path

from tuner.analysis.summary import RunSummary
from tuner.analysis.winner import find_answer
from tuner.config.loader import LoadedSweep
from tuner.config.point import Point
from tuner.config.schema import Sweep
from tuner.core.errors import UserError
from tuner.core.secrets import hidden_word
from tuner.dashboard.notes import study_note, trial_note
from tuner.dashboard.run_files import artifact_id, link_files
from tuner.dashboard.trials import make_schema, make_trial, trial_files
from tuner.execution.progress import Phase, Progress, SweepProgress
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run
from tuner.search.optuna_storage import (
    GIVE_URL,
    StorageUnusable,
    database_reason,
    open_storage,
    sqlite_url,
)

CAUGHT_UP = 20
"""Missing trials that a run adds at the end of each trial. One takes about 0.1 s in SQLite."""
_OWNER = "run"
"""User attribute that identifies the run of a study."""


@contextmanager
def _storage_errors() -> Iterator[None]:
    """Raise StorageUnusable for whatever Optuna or the driver of the database raises."""
    try:
        yield
    except StorageUnusable:
        raise
    except Exception as error:
        raise StorageUnusable(database_reason(error)) from error


def count_trials(storage: BaseStorage, run: Run) -> int | None:
    """Return the number of trials of the run's study, or None if the storage has no such study.

    Raises StorageUnusable, also if another run has a study of that name.
    """
    with _storage_errors():
        for summary in optuna.get_all_study_summaries(storage, include_best_trial=False):
            if summary.study_name == run.id:
                if summary.user_attrs.get(_OWNER) != run.settings.identity:
                    raise StorageUnusable(f"it has another run's study {run.id}, remove it there")
                return summary.n_trials
    return None


class RunStudy:
    """A run's study in an Optuna storage. Trial N of the study is line N of the ledger.

    The search works on a study in memory. This one is only written, never read by the search.
    """

    def __init__(
        self, storage: BaseStorage, run: Run, sweep: Sweep, points: Sequence[Point]
    ) -> None:
        """Open the run's study, or create it. A study with more trials than the ledger is
        replaced. Raises StorageUnusable."""
        self.storage, self.sweep, self._run = storage, sweep, run
        self._schema = make_schema(run, sweep, points)
        self._note: str | None = None
        """The study's note that this object wrote."""
        records = run.records()
        with _storage_errors():
            count = count_trials(storage, run)
            if count is not None and count > len(records):
                optuna.delete_study(study_name=run.id, storage=storage)
                count = None
            self._trials = count or 0
            self._study = self._created() if count is None else self._loaded()

    def _created(self) -> optuna.Study:
        study = optuna.create_study(
            storage=self.storage,
            study_name=self._run.id,
            directions=["maximize"] * len(self._schema.objectives),
        )
        study.set_user_attr(_OWNER, self._run.settings.identity)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            study.set_metric_names(list(self._schema.objectives))
        return study

    def _loaded(self) -> optuna.Study:
        return optuna.load_study(study_name=self._run.id, storage=self.storage)

    @property
    def missing(self) -> int:
        """Ledger lines without a trial."""
        return len(self._run.records()) - self._trials

    def extend(self, most: int | None = None) -> None:
        """Add at most `most` missing trials. Raises StorageUnusable."""
        missing = self._run.records()[self._trials :][:most]
        with _storage_errors():
            for record in missing:
                self._add(record)

    def _add(self, record: TrialRecord) -> None:
        self._study.add_trial(make_trial(self._run, self.sweep, self._schema, record))
        trial = self._trial(self._trials)
        self._trials += 1
        links = [
            f"[{file}]({get_artifact_path(trial, artifact_id(file))})"
            for file in trial_files(self._run, record)
        ]
        files = [f"Files: {', '.join(links)}"] if links else []
        save_note(trial, "\n\n".join([trial_note(record, self.sweep), *files]))

    def _trial(self, number: int) -> Trial:
        """Return the handle that `save_note` needs, without reading all trials of the study."""
        study = self._study
        trial_id = self.storage.get_trial_id_from_study_id_trial_number(study._study_id, number)
        return Trial(study, trial_id)

    def describe_so_far(self) -> None:
        """Write the answer by the ledger's lines alone: that takes no longer with more trials."""
        ledger = self._run.ledger()
        best, value = find_answer(ledger, self.sweep.search.objective)
        self._describe(best, value, measured=ledger.baseline is not None)

    def describe(self, summary: RunSummary) -> None:
        """Write the answer of the report."""
        self._describe(summary.best, summary.fastest_value, measured=summary.baseline is not None)

    def _describe(self, best: TrialRecord | None, value: float | None, *, measured: bool) -> None:
        """Write the answer if it changed, and the note unless somebody edited it meanwhile."""
        answer = "no speculation" if measured else "nothing is measured yet"
        if best is not None and value is not None:
            answer = f"trial {best.trial}: {best.label}, {value:.3f} times the baseline"
        with _storage_errors():
            if self._study.user_attrs.get("answer") == answer:
                return
            if self._note in (None, get_note(self._study)):
                self._note = study_note(self._run, self.sweep, answer)
                save_note(self._study, self._note)
            self._study.set_user_attr("answer", answer)

    def show_running(self, text: str) -> None:
        """Write what runs now as an attribute of the study. Raises StorageUnusable."""
        with _storage_errors():
            self._study.set_user_attr("running", text)

    def link(self, files: Sequence[Path]) -> None:
        """Make files of the run folder artifacts of the study. Raises StorageUnusable."""
        with _storage_errors():
            study = self._study._study_id
            there = self.storage.get_study_system_attrs(study)
            for name, value in link_files(map(self._run.relative, files)).items():
                if there.get(name) != value:
                    self.storage.set_study_system_attr(study, name, value)


def open_own_study(
    run: Run, sweep: Sweep, points: Sequence[Point]
) -> tuple[RunStudy | None, str | None]:
    """Return the study in the run's study.db, and a sentence for the user if there was trouble.

    A file that cannot be used is renamed to `study.db.broken` and written anew. Returns None for
    the study if that fails too.
    """
    file = run.study_file

    def opened() -> RunStudy:
        if file.is_symlink():
            raise StorageUnusable("this is a link")
        return RunStudy(open_storage(sqlite_url(file), is_derived=True), run, sweep, points)

    try:
        return opened(), None
    except StorageUnusable as error:
        reason = error
    aside = file.with_name(f"{file.name}.broken")
    try:
        file.replace(aside)
        study = opened()
    except (OSError, StorageUnusable):
        return None, f"{file} cannot be written ({reason}), the run goes on without it"
    return study, f"{file} could not be used ({reason}); it is {aside.name} now and written anew"


class DashboardListener(Progress):
    """Extends the study of a run as trials end.

    The study is derived from the ledger, so no failure of its storage stops or slows the run: the
    first one ends the writing, and `lost` is its reason.
    """

    def __init__(self, study: RunStudy | None) -> None:
        self._study = study
        self._running: int | None = None
        self.lost: str | None = None

    def phase(self, phase: Phase) -> None:
        if phase.doing != "launching" or phase.place is not None or phase.trial == self._running:
            return
        self._running = phase.trial
        what = "no speculation" if phase.point is None else phase.point.label()
        self._write(lambda study: study.show_running(f"trial {phase.trial}: {what}"))

    def recorded(self, record: TrialRecord, standing: SweepProgress) -> None:  # noqa: ARG002
        self._write(lambda study: study.extend(CAUGHT_UP))
        self._write(RunStudy.describe_so_far)

    def stop(self) -> None:
        """Write that nothing runs any more."""
        self._write(lambda study: study.show_running("nothing"))

    def finish(self, summary: RunSummary) -> None:
        """Write the answer of the whole run."""
        self._write(lambda study: study.describe(summary))

    def _write(self, act: Callable[[RunStudy], None]) -> None:
        if self._study is None or self.lost is not None:
            return
        try:
            act(self._study)
        except StorageUnusable as error:
            self.lost = str(error)


def open_dashboard(loaded: LoadedSweep, run: Run, note: Callable[[str], None]) -> DashboardListener:
    """Return the listener of a run that is about to measure.

    Raises UserError for a `search.storage` that cannot be used, but only if the run has measured
    nothing yet. Any other trouble goes to `note`.
    """
    url, points = loaded.sweep.search.storage, loaded.space.points
    if url is None:
        study, trouble = open_own_study(run, loaded.sweep, points)
        if trouble is not None:
            note(trouble)
        return DashboardListener(study)
    try:
        return DashboardListener(RunStudy(open_storage(url), run, loaded.sweep, points))
    except StorageUnusable as error:
        if not run.records():
            raise storage_refused(loaded, error) from error
        shown = hidden_word(url)
        note(f"search.storage: {shown} cannot be used ({error}), the run goes on without it")
        return DashboardListener(None)


def storage_refused(loaded: LoadedSweep, error: StorageUnusable) -> UserError:
    """Return the error for `search.storage`, with its line in the sweep file."""
    url = hidden_word(loaded.sweep.search.storage or "")
    message = f"{url} cannot be used ({error}), {GIVE_URL}"
    return loaded.document.error(("search", "storage"), message)
