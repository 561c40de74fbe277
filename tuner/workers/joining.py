"""Joining a shared search: the study of a storage that all its workers found or begin."""

import json
import random
import time
from collections.abc import Mapping
from typing import Any

import optuna
from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from sqlalchemy.exc import ArgumentError

from tuner.config.space import Space
from tuner.search.optuna_storage import StorageUnusable, database_reason, open_storage
from tuner.workers.shared_study import SharedStudy

GRACE = 4
"""Heartbeats that a worker may miss before it is taken for dead."""
_OF_THE_URL = (ArgumentError, ImportError, ValueError)
"""A URL that means nothing here, or a driver that is missing: the next try brings the same."""
UNSAID_S = 10.0
"""That a study is without an identity, at the most, while its creator lives."""
HEARTBEAT_S = 30
"""Where nobody says another."""
FORMAT = 1
"""Of what workers tell each other (`Told`): one of another version could not read it."""
_IDENTITY = "specbench identity"
_FORMAT, _HEARTBEAT = "the format of specbench's findings", "--heartbeat"


class UnlikeWorkersError(Exception):
    """The study is of another question. str() says what differs."""


def join(
    url: str,
    name: str,
    identity: Mapping[str, Any],
    worker: str,
    space: Space,
    heartbeat_s: int | None = None,
) -> SharedStudy:
    """This worker's side of the study `name`, which the first worker creates.

    `identity`: what all workers must have alike, by its name in a refusal. `heartbeat_s`: whoever
    beats less often than another one expects would be dead to that one, so it is the study's; None:
    as that has it. Raises StorageUnusable, and UnlikeWorkersError where the study was begun with
    something else.
    """
    storage = _opened(url, heartbeat_s or HEARTBEAT_S)
    identity = {**identity, _FORMAT: FORMAT, _HEARTBEAT: heartbeat_s or HEARTBEAT_S}
    try:
        number, known = _begun(storage, name, identity)
    except UnlikeWorkersError:
        raise
    except Exception as error:
        raise StorageUnusable(database_reason(error)) from error
    beats_s = known.get(_HEARTBEAT)
    if heartbeat_s is None and isinstance(beats_s, int) and beats_s > 0:
        identity = {**identity, _HEARTBEAT: beats_s}
        storage.heartbeat_interval, storage.grace_period = beats_s, GRACE * beats_s
    differing = [name for name, value in identity.items() if known.get(name) != value]
    if differing:
        first = differing[0]
        raise UnlikeWorkersError(
            f"its workers have {first} {_shown(known.get(first))}, this one has "
            f"{_shown(identity[first])}"
        )
    return SharedStudy(storage, number, worker, space, identity[_HEARTBEAT])


def _begun(
    storage: RDBStorage, name: str, identity: Mapping[str, Any]
) -> tuple[int, Mapping[str, Any]]:
    """The study, and the identity that it was begun with; one that is not there is begun here.

    Who creates it says what it is of; everybody else waits for that, not to say something else.
    """
    directions = [StudyDirection.MAXIMIZE]
    try:
        number = storage.create_new_study(directions, name)
        storage.set_study_user_attr(number, _IDENTITY, dict(identity))
    except optuna.exceptions.DuplicatedStudyError:
        number = storage.get_study_id_from_name(name)
    end = time.monotonic() + UNSAID_S
    while (known := storage.get_study_user_attrs(number).get(_IDENTITY)) is None:
        if storage.get_n_trials(number) or storage.get_study_directions(number) != directions:
            raise UnlikeWorkersError("it is no study of specbench workers")
        if time.monotonic() > end:  # whoever created it was killed in that moment
            storage.set_study_user_attr(number, _IDENTITY, dict(identity))
        time.sleep(0.1)
    return number, known


def _opened(url: str, heartbeat_s: int) -> RDBStorage:
    """The storage; tried again, since workers that begin together in an empty database make its
    tables at the same time, and one of them is refused."""
    for wait in (0.5, 1.5, 3.0):
        try:
            return open_storage(url, heartbeat_s=heartbeat_s, grace_s=GRACE * heartbeat_s)
        except StorageUnusable as error:
            if error.__cause__ is None or isinstance(error.__cause__, _OF_THE_URL):
                raise
            time.sleep(wait * random.uniform(0.5, 1.5))
    return open_storage(url, heartbeat_s=heartbeat_s, grace_s=GRACE * heartbeat_s)


def _shown(value: Any) -> str:
    return "none" if value in (None, [], "") else json.dumps(value).strip('"')
