"""Attributes of an Optuna storage, many in one transaction; Optuna takes one for each.

A trial has some forty figures for each concurrency. The tables are those of Optuna's schema, which
it migrates and so does not change lightly; the tests read all of it back through Optuna.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal

import sqlalchemy
from optuna.storages import RDBStorage

NOTE_PART = 2045
"""Characters of a note in one attribute, as optuna-dashboard cuts it."""

Kind = Literal["study", "study_user", "trial_user", "trial_system"]
Attributes = Mapping[int, Mapping[str, Any]]
"""By the id of their trial or study, then by name."""


def _table(name: str, owner: str) -> sqlalchemy.TableClause:
    columns = (owner, "key", "value_json")
    return sqlalchemy.table(name, *(sqlalchemy.column(each) for each in columns))


_TABLES: Mapping[Kind, sqlalchemy.TableClause] = {
    "study": _table("study_system_attributes", "study_id"),
    "study_user": _table("study_user_attributes", "study_id"),
    "trial_user": _table("trial_user_attributes", "trial_id"),
    "trial_system": _table("trial_system_attributes", "trial_id"),
}
_PARAMS = sqlalchemy.table("trial_params", sqlalchemy.column("trial_id"))


def put(storage: RDBStorage, values: Mapping[Kind, Attributes], *, are_new: bool = False) -> None:
    """Set attributes of every kind in one transaction. `are_new`: there are none of these names
    yet, so nothing is looked for."""
    with storage.engine.begin() as connection:
        for kind, attributes in values.items():
            if not are_new:
                _forget(connection, _TABLES[kind], attributes)
            _put(connection, _TABLES[kind], attributes)


def _put(
    connection: sqlalchemy.Connection, table: sqlalchemy.TableClause, values: Attributes
) -> None:
    owner = table.c[0]
    rows = [
        {owner.name: number, "key": key, "value_json": json.dumps(value)}
        for number, attributes in values.items()
        for key, value in attributes.items()
    ]
    if rows:
        connection.execute(sqlalchemy.insert(table), rows)


def _forget(
    connection: sqlalchemy.Connection, table: sqlalchemy.TableClause, values: Attributes
) -> None:
    owner = table.c[0]
    for number, attributes in values.items():
        keys = list(attributes)
        for start in range(0, len(keys), 500):  # a statement holds so many values anywhere
            some = table.c.key.in_(keys[start : start + 500])
            connection.execute(sqlalchemy.delete(table).where(owner == number, some))


def forget_params(storage: RDBStorage, trial: int) -> None:
    """Take a trial's parameters away, for others to be set."""
    with storage.engine.begin() as connection:
        connection.execute(sqlalchemy.delete(_PARAMS).where(_PARAMS.c.trial_id == trial))


def note_attributes(text: str, trial: int | None, version: int) -> dict[str, Any]:
    """The system attributes of a study that are a note of it, or of its trial of that id.

    `optuna_dashboard.save_note` reads all notes to write one: 1,000 trials have thousands.
    """
    place = "dashboard:" if trial is None else f"dashboard:{trial}:"
    parts = [text[start : start + NOTE_PART] for start in range(0, len(text), NOTE_PART)]
    return {
        f"{place}note_ver": version,
        **{f"{place}note_str:{number}": part for number, part in enumerate(parts)},
    }
