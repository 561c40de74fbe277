"""The copy of the study that optuna-dashboard shows: derived from the ledger, never read back."""

from collections.abc import Iterable
from pathlib import Path

import optuna


class StorageUnusable(Exception):
    """An Optuna storage could not be opened or written. str() is the reason, without the URL."""


def sqlite_url(path: Path) -> str:
    """The Optuna storage URL of a SQLite file."""
    return f"sqlite:///{path}"


def open_storage(url: str) -> optuna.storages.BaseStorage:
    """The storage behind a URL; its tables are made where there are none.

    Raises StorageUnusable.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        return optuna.storages.get_storage(url)
    except Exception as error:  # whatever the database's driver raises, it is one answer here
        raise StorageUnusable(_reason(error)) from error


_OWNER = "run"


class StoredStudy:
    """An Optuna study in a storage, kept equal to the one that the search works on.

    The search itself works in memory: a storage is slow (a transaction for each parameter) and
    a run must not depend on it. A storage that breaks in the middle of a run therefore stops the
    copying and not the run; `lost` then says why.
    """

    def __init__(self, url: str, name: str, owner: str, objectives: int = 1) -> None:
        """Create the study, in the place of an earlier one that `owner` made.

        `owner` identifies the run, each of the `objectives` is maximised. Raises StorageUnusable
        where the storage cannot be used or has another owner's study of that name.
        """
        self.lost: str | None = None
        storage = open_storage(url)
        try:
            for each in storage.get_all_studies():
                if each.study_name == name and each.user_attrs.get(_OWNER) == owner:
                    optuna.delete_study(study_name=name, storage=storage)
            self._study = optuna.create_study(
                storage=storage, study_name=name, directions=["maximize"] * objectives
            )
            self._study.set_user_attr(_OWNER, owner)
        except optuna.exceptions.DuplicatedStudyError as error:
            raise StorageUnusable(f"it has another run's study {name}, remove it there") from error
        except Exception as error:  # as in open_storage
            raise StorageUnusable(_reason(error)) from error
        self._copied = 0

    def copy(self, trials: Iterable[optuna.trial.FrozenTrial]) -> None:
        """Add the finished trials that are not there yet, up to the first unfinished one."""
        if self.lost is not None:
            return
        try:
            for trial in list(trials)[self._copied :]:
                if not trial.state.is_finished():
                    return
                self._study.add_trial(trial)
                self._copied += 1
        except KeyError:  # Optuna's way to say that the study was deleted, in the dashboard say
            self.lost = "the study is gone"
        except Exception as error:  # as in open_storage; the run goes on and says it
            self.lost = _reason(error)


def open_own_study(
    file: Path, name: str, owner: str, objectives: int = 1
) -> tuple[StoredStudy | None, str | None]:
    """The study in a run's own SQLite file, and a sentence where that was not plain.

    The file is derived, so nothing about it stops a run: a broken one is set aside (`.broken`) and
    written anew; where that fails too, there is no copy, None.
    """
    try:
        return StoredStudy(sqlite_url(file), name, owner, objectives), None
    except StorageUnusable as error:
        first = error
    aside = file.with_name(f"{file.name}.broken")
    try:
        file.replace(aside)
        stored = StoredStudy(sqlite_url(file), name, owner, objectives)
    except (OSError, StorageUnusable):
        return None, f"{file} cannot be written ({first}), the run goes on without it"
    return stored, f"{file} could not be used ({first}); it is {aside.name} now and written anew"


def _reason(error: Exception) -> str:
    """The database's own sentence, without Optuna's list of likely causes around it."""
    cause: BaseException = error
    while cause.__cause__ is not None or cause.__context__ is not None:
        cause = cause.__cause__ or cause.__context__ or cause
    return (str(cause).splitlines() or [type(cause).__name__])[0]
