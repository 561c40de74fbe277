"""The shapes of a sweep's models, from the files that its servers would read."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.engine.models import Model, Role, config_data
from tuner.engine.sglang.launches import Launches
from tuner.engine.topology import visible_gpus
from tuner.memory.shape import Shape, read_shape
from tuner.sweep.model import Sweep

GIB = 2**30


@dataclass(frozen=True)
class Pair:
    """Target and draft; a text says why a shape is not known."""

    target: Shape | str
    draft: Shape | str | None
    """None: the algorithm has no draft model, or the draft is a part of the target's files."""


Configs = Mapping[Role, Mapping[str, Any]]
"""The objects in the models' config.json."""


def pair_of(
    sweep: Sweep, inherited: Mapping[str, str] = os.environ, kept: Configs | None = None
) -> Pair:
    """The shapes of the sweep's models, as far as their files are here.

    `kept` goes before the files, for models that were somewhere else or are something else now.
    """
    launches, known = Launches(sweep, inherited), kept or {}
    draft = launches.draft
    return Pair(_shape(launches.target, known), None if draft is None else _shape(draft, known))


def configs_here(sweep: Sweep, inherited: Mapping[str, str] = os.environ) -> Configs:
    """Those of the sweep's models that are here and can be read."""
    launches = Launches(sweep, inherited)
    found = {}
    for model in (launches.target, launches.draft):
        data = None if model is None else _config(model)
        if model is not None and isinstance(data, Mapping):
            found[model.role] = data
    return found


def _shape(model: Model, kept: Configs) -> Shape | str:
    data = kept.get(model.role) or _config(model)
    return data if isinstance(data, str) else read_shape(data)


def _config(model: Model) -> Mapping[str, Any] | str:
    """The object in its config.json, or why it is not known."""
    if model.folder is None or not model.folder.is_dir():
        return f"{model.name} is not on this machine"
    try:
        return config_data(model.folder)
    except (OSError, ValueError, RecursionError):
        return f"{model.name} has no config.json that can be read"


def gpu_bytes(sweep: Sweep, inherited: Mapping[str, str] = os.environ) -> int | None:
    """The memory of the smallest GPU that the sweep's servers can use; None where not known."""
    launches = Launches(sweep, inherited)
    elsewhere = sweep.engine.kind != "sglang" or sweep.engine.command
    if elsewhere or "CUDA_VISIBLE_DEVICES" in launches.varied or not launches.takes_gpus:
        return None
    found = visible_gpus(launches.environment)
    return min((card.total for card in found.cards), default=None) if found else None
