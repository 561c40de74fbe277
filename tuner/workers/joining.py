"""Joining a shared search: who a worker is, what all workers must have alike, the study."""

import hashlib
import json
import random
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import optuna
from optuna.storages import RDBStorage
from optuna.study import Study, StudyDirection

from tuner.config.loader import LoadedSweep
from tuner.config.prompts import content_hash
from tuner.config.space import Space
from tuner.config.task_dataset import task_hash
from tuner.config.yaml_document import shortened
from tuner.core.errors import UserError
from tuner.core.secrets import hidden_word, learn_url
from tuner.runs.machine import machine_facts
from tuner.runs.run import Run
from tuner.runs.settings import WorkerSettings
from tuner.search.optuna_storage import GIVE_URL, StorageUnusable, open_storage
from tuner.server.base import Engine
from tuner.workers.shared_study import SharedStudy, reaching_database

GRACE = 4
"""Heartbeats that a worker may miss before it is taken for dead."""
UNSAID_S = 10.0
"""Seconds that a study may be without an identity while its creator lives."""
HEARTBEAT_S = 30
"""Default of `--heartbeat`."""
FORMAT = 1
"""Of the observations that workers exchange: a worker of another version could not read them."""
MAX_NAME = 500
"""Letters of a study's name; Optuna's tables have room for some more."""
_IDENTITY = "specbench identity"
_FORMAT, _HEARTBEAT = "the format of specbench's findings", "--heartbeat"


class UnlikeWorkersError(Exception):
    """The study is of another question. str() names the difference."""


@dataclass(frozen=True)
class WorkerOptions:
    """Options of `specbench worker`."""

    storage: str
    """An Optuna storage URL."""
    study: str | None = None
    """None: the sweep's name."""
    heartbeat_s: int | None = None
    """None: as the other workers have it."""

    def __post_init__(self) -> None:
        """Hide the URL's password from now on."""
        learn_url(self.storage)


def worker_settings(
    options: WorkerOptions, loaded: LoadedSweep, earlier: Run | None
) -> WorkerSettings:
    """Return this worker's settings.

    Raises UserError if the earlier run is not a worker's or has another study.
    """
    study = loaded.sweep.name if options.study is None else options.study
    if not (0 < len(study) <= MAX_NAME and study.isprintable()):
        raise UserError(
            f"--study '{shortened(study)}' is no name of a study, give 1 to {MAX_NAME} "
            "characters of one line"
        )
    if earlier is None:
        host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:60]
        return WorkerSettings(study=study, name=f"{host}-{uuid4().hex[:8]}")
    known = earlier.settings.worker
    if known is None:
        message = "this run is no worker's, resume it with specbench sweep --resume"
        raise UserError(message, earlier.path)
    if options.study is not None and options.study != known.study:
        message = f"this run is of study {known.study}, resume it with the same or leave --study"
        raise UserError(f"{message} out", earlier.path)
    return known


def refuse_worker_alone(run: Run) -> None:
    """Raise UserError if the run is a worker's, which is not resumed without the others."""
    if run.settings.worker is not None:
        raise UserError(
            f"this run is one of several workers on study {run.settings.worker.study}, go on with "
            f"{run.resume_command}",
            run.path,
        )


def join_fleet(
    options: WorkerOptions, settings: WorkerSettings, loaded: LoadedSweep, engine: Engine
) -> SharedStudy:
    """Return this worker's side of the shared study.

    Raises UserError if the storage cannot be used or the study is of another question.
    """
    if not loaded.sweep.engine.launches_servers:
        raise loaded.document.error(
            ("engine", "kind"), "an endpoint has nothing to share with others, use specbench sweep"
        )
    where, identity = hidden_word(options.storage), worker_identity(loaded, engine)
    try:
        return join(
            options.storage,
            settings.study,
            identity,
            settings.name,
            loaded.space,
            options.heartbeat_s,
        )
    except StorageUnusable as error:
        message = f"--storage {where} cannot be used ({error}), {GIVE_URL}"
        raise UserError(message) from error
    except UnlikeWorkersError as error:
        raise UserError(
            f"study {settings.study} of {where} is another search: {error}; give another --study "
            "or what its workers have"
        ) from error


def worker_identity(loaded: LoadedSweep, engine: Engine) -> dict[str, Any]:
    """Return what all workers of a search must have alike, by its name in an error message."""
    release = getattr(engine, "release", None)
    text = f"{loaded.sweep.engine.kind}\n{loaded.text_without_secrets}"
    return {
        "the sweep file (its hash)": hashlib.sha256(text.encode("utf-8")).hexdigest()[:16],
        "the prompts (their hash)": content_hash(loaded.prompts),
        "the task (its hash)": task_hash(loaded.task),
        "the release": None if release is None else release.asked,
        "the GPUs": sorted(str(gpu.get("name")) for gpu in machine_facts()["gpus"]),
    }


def join(
    url: str,
    name: str,
    identity: Mapping[str, Any],
    worker: str,
    space: Space,
    heartbeat_s: int | None = None,
) -> SharedStudy:
    """Return this worker's side of the study `name`, which the first worker creates.

    All workers have the same `identity` and the same `heartbeat_s`: a worker that beats less often
    than another one expects would be dead to that one. None: the study's heartbeat. Raises
    StorageUnusable, and UnlikeWorkersError if the study was begun with something else.
    """
    storage = _opened(url, heartbeat_s or HEARTBEAT_S)
    identity = {**identity, _FORMAT: FORMAT, _HEARTBEAT: heartbeat_s or HEARTBEAT_S}
    with reaching_database():
        study, known = _begun(storage, name, identity)
    if known is None:
        raise UnlikeWorkersError("it is no study of specbench workers")
    beats_s = known.get(_HEARTBEAT)
    if heartbeat_s is None and isinstance(beats_s, int) and beats_s > 0:
        identity[_HEARTBEAT] = beats_s
        storage.heartbeat_interval, storage.grace_period = beats_s, GRACE * beats_s
    differing = [name for name, value in identity.items() if known.get(name) != value]
    if differing:
        first = differing[0]
        raise UnlikeWorkersError(
            f"its workers have {first} {_shown(known.get(first))}, this one has "
            f"{_shown(identity[first])}"
        )
    return SharedStudy(study, storage, worker, space, identity[_HEARTBEAT])


def _begun(
    storage: RDBStorage, name: str, identity: Mapping[str, Any]
) -> tuple[Study, Mapping[str, Any] | None]:
    """Create or load the study, and return it with the identity that it was begun with.

    The creator writes the identity; everybody else waits for it. The identity is None if the study
    is not one of specbench workers.
    """
    try:
        study = optuna.create_study(storage=storage, study_name=name, direction="maximize")
        study.set_user_attr(_IDENTITY, dict(identity))
    except optuna.exceptions.DuplicatedStudyError:
        study = optuna.load_study(storage=storage, study_name=name)
    end = time.monotonic() + UNSAID_S
    while (known := study.user_attrs.get(_IDENTITY)) is None:
        if study.get_trials(deepcopy=False) or study.directions != [StudyDirection.MAXIMIZE]:
            return study, None
        if time.monotonic() > end:  # its creator was killed in that moment
            study.set_user_attr(_IDENTITY, dict(identity))
        time.sleep(0.1)
    return study, known


def _opened(url: str, heartbeat_s: int) -> RDBStorage:
    """Open the storage, in several tries: workers that begin together in an empty database create
    its tables at the same time, and the database refuses one of them."""
    for wait in (0.5, 1.5, 3.0):
        try:
            return open_storage(url, heartbeat_s=heartbeat_s, grace_s=GRACE * heartbeat_s)
        except StorageUnusable as error:
            if error.is_of_url:
                raise
            time.sleep(wait * random.uniform(0.5, 1.5))
    return open_storage(url, heartbeat_s=heartbeat_s, grace_s=GRACE * heartbeat_s)


def _shown(value: Any) -> str:
    return "none" if value in (None, [], "") else json.dumps(value).strip('"')
