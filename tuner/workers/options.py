"""Joining a search that several hosts share: what must be alike, and who one is."""

import hashlib
import re
import socket
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from tuner.config.credentials import without_secrets
from tuner.config.loader import LoadedSweep
from tuner.config.prompts import content_hash
from tuner.config.task_dataset import task_hash
from tuner.config.yaml_document import shortened
from tuner.core.errors import UserError
from tuner.core.secrets import hidden_word, learn_url
from tuner.runs.machine import machine_facts
from tuner.runs.run import Run
from tuner.runs.settings import WorkerSettings
from tuner.search.optuna_storage import GIVE_URL, StorageUnusable
from tuner.server.base import Engine
from tuner.workers.joining import UnlikeWorkersError, join
from tuner.workers.shared_study import SharedStudy

MOST_LETTERS = 500
"""Of a study's name; Optuna's tables have room for some more."""


@dataclass(frozen=True)
class WorkerOptions:
    """What the command line says of a worker."""

    storage: str
    """An Optuna storage URL."""
    study: str | None = None
    """None: the sweep's name."""
    heartbeat_s: int | None = None
    """None: as the other workers have it."""

    def __post_init__(self) -> None:
        """Hide the URL's password from now on, whatever becomes of it."""
        learn_url(self.storage)


def worker_settings(
    options: WorkerOptions, loaded: LoadedSweep, earlier: Run | None
) -> WorkerSettings:
    """Who this worker is. Raises UserError where an earlier run is no worker's, or was one of
    another study."""
    study = loaded.sweep.name if options.study is None else options.study
    if not (0 < len(study) <= MOST_LETTERS and study.isprintable()):
        raise UserError(
            f"--study '{shortened(study)}' is no name of a study, give 1 to {MOST_LETTERS} "
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
    """Raises UserError where a run is a worker's and is resumed without the others."""
    if run.settings.worker is not None:
        raise UserError(
            f"this run is one of several workers on study {run.settings.worker.study}, go on with "
            f"{run.resume_command}",
            run.path,
        )


def join_fleet(
    options: WorkerOptions, settings: WorkerSettings, loaded: LoadedSweep, engine: Engine
) -> SharedStudy:
    """This worker's side of the shared study. Raises UserError where it cannot be used or is of
    another question."""
    if not loaded.sweep.engine.launches_servers:
        raise loaded.document().error(
            ("engine", "kind"), "an endpoint has nothing to share with others, use specbench sweep"
        )
    where = hidden_word(options.storage)
    try:
        return join(
            options.storage,
            settings.study,
            worker_identity(loaded, engine),
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
    """What all workers of a search must have alike, in the words of a refusal."""
    release = getattr(engine, "release", None)
    text = f"{loaded.sweep.engine.kind}\n{without_secrets(loaded.text)}"
    return {
        "the sweep file (its hash)": hashlib.sha256(text.encode("utf-8")).hexdigest()[:16],
        "the prompts (their hash)": content_hash(loaded.prompts),
        "the task (its hash)": task_hash(loaded.task),
        "the release": None if release is None else release.asked,
        "the GPUs": sorted(str(gpu.get("name")) for gpu in machine_facts()["gpus"]),
    }
