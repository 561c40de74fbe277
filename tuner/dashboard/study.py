"""The study that optuna-dashboard shows: written from the ledger, never read back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import optuna
from optuna.storages import RDBStorage
from optuna.trial import TrialState

from tuner.dashboard.added import add_finished, delete
from tuner.dashboard.attributes import Attributes, Kind, forget_params, note_attributes, put
from tuner.dashboard.run_files import artifact_id, linked
from tuner.dashboard.shown import DashboardSchema, DashboardTrial
from tuner.search.optuna_storage import StorageUnusable, database_reason, open_storage, sqlite_url

VERSION = 1
"""Of what is written of a trial. A study of another one is not shown but made anew."""
_OWNER, _VERSION = "run", "specbench study"
_CUT_OFF = "cut off"
"""Of a trial that is no line of the ledger."""


_P = ParamSpec("_P")


def _kept(
    act: Callable[Concatenate["StoredStudy", _P], None],
) -> Callable[Concatenate["StoredStudy", _P], None]:
    """Whatever goes wrong in the method is `lost`; a run goes on and says it."""

    @wraps(act)
    def guarded(study: "StoredStudy", /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        if study.lost is not None:
            return
        try:
            act(study, *args, **kwargs)
        except KeyError:  # Optuna's way to say that the study was deleted, in the dashboard say
            study.lost = "the study is gone"
        except Exception as error:  # as in open_storage
            study.lost = database_reason(error)

    return guarded


class StoredStudy:
    """An Optuna study in a storage, with a trial for each line of the ledger, in its order.

    The search itself works in memory: a storage is slow (a transaction for each parameter) and
    a run must not depend on it. A storage that breaks in the middle of a run therefore stops the
    showing and not the run; `lost` then says why.
    """

    def __init__(self, url: str, layout: DashboardSchema, *, is_derived: bool = False) -> None:
        """Create the study, in the place of an earlier one of the same owner.

        `is_derived`: see `open_storage`. Raises StorageUnusable where the storage cannot be used
        or has another owner's study of that name.
        """
        self.lost: str | None = None
        self._storage = open_storage(url, is_derived=is_derived)
        self._distributions = layout.distributions()
        self._running: int | None = None
        self._begun: Mapping[str, Any] = {}
        self._described: tuple[int, Mapping[str, Any]] = (0, {})
        try:
            for each in self._storage.get_all_studies():
                if each.study_name == layout.name and each.user_attrs.get(_OWNER) == layout.owner:
                    delete(self._storage, each._study_id)
            self._study = optuna.create_study(
                storage=self._storage,
                study_name=layout.name,
                directions=["maximize"] * len(layout.objectives),
            )
            self._id = self._study._study_id
            self._study.set_user_attr(_OWNER, layout.owner)
            self._study.set_user_attr(_VERSION, VERSION)
            self._storage.set_study_system_attr(
                self._id, "study:metric_names", list(layout.objectives)
            )
        except optuna.exceptions.DuplicatedStudyError as error:
            reason = f"it has another run's study {layout.name}, remove it there"
            raise StorageUnusable(reason) from error
        except Exception as error:  # as in open_storage
            raise StorageUnusable(database_reason(error)) from error

    @property
    def storage(self) -> RDBStorage:
        """Where the study is."""
        return self._storage

    @_kept
    def add(self, trials: Sequence[DashboardTrial]) -> None:
        """Add finished trials."""
        notes: dict[str, Any] = {}
        attributes: dict[int, Mapping[str, Any]] = {}
        system: dict[int, Mapping[str, Any]] = {}
        frozen = [each.frozen(self._distributions, linked(each.files)) for each in trials]
        numbers = add_finished(self._storage, self._id, frozen)
        for trial, told, number in zip(trials, frozen, numbers, strict=True):
            notes |= self._note(trial, number)
            attributes[number], system[number] = trial.attributes, told.system_attrs
        put(self._storage, {"trial_user": attributes, "trial_system": system}, are_new=True)
        put(self._storage, {"study": {self._id: notes}}, are_new=True)

    @_kept
    def begin(self, trial: DashboardTrial) -> None:
        """Show a trial that has just begun; `finish` or `give_up` ends it."""
        self.give_up("another trial began")
        frozen = trial.frozen(self._distributions, linked(trial.files))
        self._running = self._storage.create_new_trial(self._id, template_trial=frozen)
        self._begun = trial.params
        note = self._note(trial, self._running)
        known = {self._running: trial.attributes}
        put(self._storage, {"trial_user": known, "study": {self._id: note}})

    @_kept
    def finish(self, trial: DashboardTrial) -> None:
        """Show the trial that was begun as what it became; `add` it where none was.

        Its state is written last: who sees it finished sees all of it.
        """
        if self._running is None:
            self.add([trial])
            return
        number, self._running = self._running, None
        if trial.params != self._begun:
            self._set_params(number, trial.params)
        attributes: dict[Kind, Attributes] = {
            "trial_user": {number: trial.attributes},
            "trial_system": {number: {**trial.constraints, **linked(trial.files)}},
            "study": {self._id: self._note(trial, number, version=2)},
        }
        put(self._storage, attributes)
        self._storage.set_trial_state_values(number, trial.optuna_state, list(trial.values) or None)

    @_kept
    def give_up(self, why: str) -> None:
        """Show that the trial that was begun, if any, will not be finished."""
        if self._running is None:
            return
        number, self._running = self._running, None
        put(self._storage, {"trial_user": {number: {"reason": why, _CUT_OFF: True}}})
        self._storage.set_trial_state_values(number, TrialState.FAIL)

    @_kept
    def describe(self, note: str, attributes: Mapping[str, Any]) -> None:
        """Say what the study is, once more when that has changed; a user's own edit is left."""
        version, written = self._described
        if written:
            found = self._storage.get_study_user_attrs(self._id)
            if found.get("answer") == attributes.get("answer"):
                return
            now = self._storage.get_study_system_attrs(self._id)
            if any(now.get(key) != value for key, value in written.items()):
                return
        text = note_attributes(note, None, version + 1)
        stale = {key: "" for key in written if key not in text}
        note_and_rest = {**text, **stale}
        put(
            self._storage,
            {"study": {self._id: note_and_rest}, "study_user": {self._id: attributes}},
        )
        self._described = version + 1, {**text, **stale}

    def _set_params(self, number: int, params: Mapping[str, Any]) -> None:
        """In the place of those that the trial was begun with: Optuna keeps the first ones."""
        forget_params(self._storage, number)
        for name, value in params.items():
            how = self._distributions[name]
            self._storage.set_trial_param(number, name, how.to_internal_repr(value), how)

    def _note(self, trial: DashboardTrial, number: int, version: int = 1) -> dict[str, Any]:
        """A trial's note, with links to its files, as attributes of the study."""
        links = [f"[{f}](/artifacts/{self._id}/{number}/{artifact_id(f)})" for f in trial.files]
        files = [f"Files: {', '.join(links)}"] if links else []
        return note_attributes("\n\n".join([trial.note, *files]), number, version)


def open_own_study(file: Path, layout: DashboardSchema) -> tuple[StoredStudy | None, str | None]:
    """The study in a run's own SQLite file, and a sentence where that was not plain.

    The file is derived, so nothing about it stops a run: a broken one is set aside (`.broken`) and
    written anew; where that fails too, there is no study, None.
    """
    try:
        return StoredStudy(sqlite_url(file), layout, is_derived=True), None
    except StorageUnusable as error:
        first = error
    aside = file.with_name(f"{file.name}.broken")
    try:
        file.replace(aside)
        stored = StoredStudy(sqlite_url(file), layout, is_derived=True)
    except (OSError, StorageUnusable):
        return None, f"{file} cannot be written ({first}), the run goes on without it"
    return stored, f"{file} could not be used ({first}); it is {aside.name} now and written anew"


@dataclass(frozen=True)
class Found:
    """A study that a storage has."""

    study: int
    trials: int
    """Less those that were cut off."""
    is_whole: bool
    """This version of specbench wrote it, and no trial of it is unfinished."""


def find(storage: RDBStorage, name: str, owner: str) -> Found | None:
    """A run's study in a storage; None where it has none. Raises StorageUnusable."""
    try:
        for each in storage.get_all_studies():
            if each.study_name == name and each.user_attrs.get(_OWNER) == owner:
                there = storage.get_all_trials(each._study_id, deepcopy=False)
                whole = all(trial.state.is_finished() for trial in there)
                written = each.user_attrs.get(_VERSION) == VERSION
                count = sum(not trial.user_attrs.get(_CUT_OFF) for trial in there)
                return Found(each._study_id, count, whole and written)
    except Exception as error:  # as in open_storage
        raise StorageUnusable(database_reason(error)) from error
    return None


def link_files(storage: RDBStorage, study: int, files: Sequence[str]) -> None:
    """Make files of the run folder artifacts of the study. Raises StorageUnusable."""
    try:
        there = storage.get_study_system_attrs(study)
        for key, value in linked(tuple(files)).items():
            if there.get(key) != value:
                storage.set_study_system_attr(study, key, value)
    except Exception as error:  # as in open_storage
        raise StorageUnusable(database_reason(error)) from error
