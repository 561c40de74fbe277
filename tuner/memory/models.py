"""The shapes of a sweep's models, from the files that its servers would read."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tuner.engine.models import Hub, config_data, local
from tuner.engine.topology import visible_gpus
from tuner.memory.shape import Shape, read_shape
from tuner.sweep.model import UNSET, ServerFlag, Sweep

GIB = 2**30


@dataclass(frozen=True)
class Pair:
    """Target and draft; a text says why a shape is not known."""

    target: Shape | str
    draft: Shape | str | None
    """None: the algorithm has no draft model, or the draft is a part of the target's files."""


def pair_of(sweep: Sweep, inherited: Mapping[str, str] = os.environ) -> Pair:
    """The shapes of the sweep's models, as far as their files are here."""
    hub, flags = Hub.of(_environment(sweep, inherited)), sweep.server.flags
    target = _shape("target", sweep.model.target, hub, flags.get("revision"))
    draft = None
    if sweep.model.draft is not None:
        revision = flags.get("speculative-draft-model-revision")
        draft = _shape("draft", sweep.model.draft, hub, revision)
    return Pair(target, draft)


def _shape(
    role: Literal["target", "draft"], name: str, hub: Hub, revision: ServerFlag | None
) -> Shape | str:
    model = local(role, name, hub, revision if isinstance(revision, str) else "main")
    if model.folder is None or not model.folder.is_dir():
        return f"{name} is not on this machine"
    try:
        return read_shape(config_data(model.folder))
    except (OSError, ValueError, RecursionError):
        return f"{name} has no config.json that can be read"


def gpu_bytes(sweep: Sweep, inherited: Mapping[str, str] = os.environ) -> int | None:
    """The memory of the smallest GPU that the sweep's servers can use; None where not known."""
    variable = "CUDA_VISIBLE_DEVICES"
    elsewhere = sweep.engine.kind != "sglang" or sweep.engine.command
    varied = variable in sweep.space.env or variable in sweep.baseline.env
    environment = _environment(sweep, inherited)
    on_cpu = sweep.server.flags.get("device") not in (None, "cuda")
    on_cpu = on_cpu or environment.get("SGLANG_USE_CPU_ENGINE", "0").lower() in ("1", "true")
    if elsewhere or varied or on_cpu:
        return None
    found = visible_gpus(environment)
    return min((card.total for card in found.cards), default=None) if found else None


def _environment(sweep: Sweep, inherited: Mapping[str, str]) -> dict[str, str]:
    own = sweep.server.env
    kept = {name: value for name, value in inherited.items() if name not in own}
    return kept | {name: value for name, value in own.items() if value != UNSET}
