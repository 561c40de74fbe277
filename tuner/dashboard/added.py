"""Many trials put into an Optuna storage at once, or taken out of it.

Optuna takes some twenty statements to add one, one of which counts all before it, and loads every
attribute of a study to delete it.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy
from optuna.distributions import distribution_to_json
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial

_TABLES = ("trials", "trial_params", "trial_values")


def add_finished(storage: RDBStorage, study: int, trials: Sequence[FrozenTrial]) -> list[int]:
    """Add trials with their parameters and finite values, in this order; returns their ids.

    Their attributes are `attributes.put`'s. Nobody else may add to the study meanwhile. Raises
    KeyError, as Optuna does, where the study is gone.
    """
    if not trials:
        return []
    metadata = sqlalchemy.MetaData()
    with storage.engine.begin() as connection:
        found, params, values = (
            sqlalchemy.Table(name, metadata, autoload_with=connection, resolve_fks=False)
            for name in _TABLES
        )
        studies = sqlalchemy.table("studies", sqlalchemy.column("study_id"))
        there = sqlalchemy.select(studies.c.study_id).where(studies.c.study_id == study)
        if connection.execute(there).first() is None:
            raise KeyError(study)
        own = sqlalchemy.select(found.c.trial_id).where(found.c.study_id == study)
        first = len(connection.execute(own).all())
        rows = [_row(trial, study, number) for number, trial in enumerate(trials, first)]
        connection.execute(sqlalchemy.insert(found), rows)
        later = own.where(found.c.number >= first).order_by(found.c.number)
        ids = list(connection.execute(later).scalars())
        for table, told in ((params, _params(trials, ids)), (values, _values(trials, ids))):
            if rows := list(told):
                connection.execute(sqlalchemy.insert(table), rows)
    return ids


_OF_A_TRIAL = (
    "trial_params",
    "trial_values",
    "trial_user_attributes",
    "trial_system_attributes",
    "trial_intermediate_values",
    "trial_heartbeats",
)
_OF_A_STUDY = ("study_system_attributes", "trials")


def delete(storage: RDBStorage, study: int) -> None:
    """Delete a study with its trials."""
    trials = sqlalchemy.table(
        "trials", sqlalchemy.column("trial_id"), sqlalchemy.column("study_id")
    )
    own = sqlalchemy.select(trials.c.trial_id).where(trials.c.study_id == study)
    with storage.engine.begin() as connection:
        for name in _OF_A_TRIAL:
            table = sqlalchemy.table(name, sqlalchemy.column("trial_id"))
            connection.execute(sqlalchemy.delete(table).where(table.c.trial_id.in_(own)))
        for name in _OF_A_STUDY:
            table = sqlalchemy.table(name, sqlalchemy.column("study_id"))
            connection.execute(sqlalchemy.delete(table).where(table.c.study_id == study))
    storage.delete_study(study)


def _row(trial: FrozenTrial, study: int, number: int) -> dict[str, Any]:
    return {
        "number": number,
        "study_id": study,
        "state": trial.state.name,
        "datetime_start": _stored(trial.datetime_start),
        "datetime_complete": _stored(trial.datetime_complete),
    }


def _params(trials: Sequence[FrozenTrial], ids: Sequence[int]) -> Iterator[dict[str, Any]]:
    texts: dict[int, str] = {}
    for trial, number in zip(trials, ids, strict=True):
        for name, how in trial.distributions.items():
            if id(how) not in texts:  # a handful of objects, which the trials hold on to
                texts[id(how)] = distribution_to_json(how)
            yield {
                "trial_id": number,
                "param_name": name,
                "param_value": how.to_internal_repr(trial.params[name]),
                "distribution_json": texts[id(how)],
            }


def _values(trials: Sequence[FrozenTrial], ids: Sequence[int]) -> Iterator[dict[str, Any]]:
    for trial, number in zip(trials, ids, strict=True):
        for objective, value in enumerate(trial.values or ()):
            row = {"trial_id": number, "objective": objective, "value": value}
            yield {**row, "value_type": "FINITE"}


def _stored(moment: datetime | None) -> datetime | None:
    """As Optuna stores times: UTC without a zone, from this machine's without one."""
    return None if moment is None else moment.astimezone(UTC).replace(tzinfo=None)
