"""The copy of the study that optuna-dashboard shows: derived from the ledger, never read back."""

from collections.abc import Iterable
from pathlib import Path

import optuna
from sqlalchemy.exc import SQLAlchemyError

from tuner.errors import UserError


def sqlite_url(path: Path) -> str:
    """The Optuna storage URL of a SQLite file."""
    return f"sqlite:///{path}"


_OWNER = "run"


class StoredStudy:
    """An Optuna study in a storage, kept equal to the one that the search works on.

    The search itself works in memory: a storage is slow (a transaction for each parameter) and
    a run must not depend on it. A storage that breaks in the middle of a run therefore stops the
    copying and not the run; `lost` then says why.
    """

    def __init__(self, url: str, name: str, owner: str) -> None:
        """Create the study, in the place of an earlier one that `owner` made.

        `owner` identifies the run. Raises UserError where the storage cannot be used or has
        another owner's study of that name.
        """
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.lost: str | None = None
        try:
            storage = optuna.storages.get_storage(url)
            for each in storage.get_all_studies():
                if each.study_name == name and each.user_attrs.get(_OWNER) == owner:
                    optuna.delete_study(study_name=name, storage=storage)
            self._study = optuna.create_study(
                storage=storage, study_name=name, direction="maximize"
            )
            self._study.set_user_attr(_OWNER, owner)
        except optuna.exceptions.DuplicatedStudyError as error:
            message = f"search.storage: {url} has a study {name} already, remove it there"
            raise UserError(message) from error
        except (SQLAlchemyError, optuna.exceptions.OptunaError, ImportError, ValueError) as error:
            reason = str(error).splitlines()[0]
            message = f"search.storage: {url} cannot be used ({reason}), give an Optuna storage URL"
            raise UserError(message) from error
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
        except (SQLAlchemyError, optuna.exceptions.OptunaError) as error:
            self.lost = str(error).splitlines()[0]
