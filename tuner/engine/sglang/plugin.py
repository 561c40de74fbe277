"""Carrying the plug-in (tuner/plugin) into SGLang's processes, and seeing it arrive."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tuner.engine.base import ServerConfig
from tuner.engine.sglang.releases import Release
from tuner.errors import EngineFailure, Failure
from tuner.sweep.point import DraftTp

CARRIER = Path(__file__).resolve().parents[2] / "plugin"
"""Holds the package and its entry point; SGLang's interpreter need not have specbench."""
SITECUSTOMIZE = CARRIER / "sitecustomize"
FIRST_WITH_PLUGINS = "0.5.11"
"""Earlier releases look for no entry points; there a sitecustomize starts the plug-in."""
_PROOF = re.compile(r"specbench: draft TP (\d+) of target TP (\d+), ranks \[[\d, ]+\]")
_STEPS_PROOF = re.compile(r"specbench: chain lengths \[([\d, ]+)\] built, (\d+) pinned")


def moves_draft(config: ServerConfig) -> bool:
    """True where the point wants the draft on another TP size than the target's."""
    return is_moved(config.point.draft_tp if config.point else None, config.model.tp)


def is_moved(draft_tp: DraftTp | None, tp: int) -> bool:
    """True where `draft_tp` is another size than `tp`."""
    return draft_tp not in (None, "target", tp)


def python_path(release: Release, inherited: str | None) -> str:
    """PYTHONPATH with the carrier in front of what is there."""
    folders = [str(CARRIER)]
    if not release.at_least(FIRST_WITH_PLUGINS):
        folders.insert(0, str(SITECUSTOMIZE))
    return os.pathsep.join([*folders, inherited] if inherited else folders)


def carried(
    config: ServerConfig, release: Release, environment: Mapping[str, str] = os.environ
) -> ServerConfig:
    """`config` with the carrier on PYTHONPATH where it moves the draft or switches lengths."""
    if not moves_draft(config) and not config.warm_steps:
        return config
    inherited = None if "PYTHONPATH" in config.unset else environment.get("PYTHONPATH")
    path = python_path(release, config.env.get("PYTHONPATH", inherited))
    return replace(
        config, env={**config.env, "PYTHONPATH": path}, unset=config.unset - {"PYTHONPATH"}
    )


def require_proof(config: ServerConfig, log: Path) -> None:
    """Raises EngineFailure(NOT_PATCHED) unless every scheduler of this host said its lines."""
    point = config.point
    if point is None or not (moves_draft(config) or config.warm_steps):
        return
    text = log.read_text(errors="replace")
    if moves_draft(config):
        wanted = (str(point.draft_tp), str(config.model.tp))
        _require(config, f"draft_tp {point.draft_tp}", wanted, _PROOF.findall(text))
    if config.warm_steps:
        steps = ", ".join(map(str, config.warm_steps))
        built = (steps, str(max(config.warm_steps)))
        _require(config, f"chains of {steps}", built, _STEPS_PROOF.findall(text))


def _require(
    config: ServerConfig, asked: str, wanted: tuple[str, ...], found: list[tuple[str, ...]]
) -> None:
    nodes = config.flags.get("nnodes", 1)
    schedulers = config.model.tp // (nodes if isinstance(nodes, int) else 1)
    if len(found) < schedulers or any(each != wanted for each in found):
        raise EngineFailure(
            Failure.NOT_PATCHED,
            f"{asked} was asked for and {len(found)} of {schedulers} schedulers "
            f"show it; PYTHONPATH must reach SGLang's interpreter with {CARRIER}",
        )
