"""Carrying the plug-in (tuner/sglang/plugin) into SGLang's processes, and seeing it arrive."""

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from tuner.config.point import DraftTp
from tuner.core.errors import EngineFailure, Failure, UserError
from tuner.server.base import ServerConfig
from tuner.sglang.releases import Release

CARRIER = Path(__file__).resolve().parent / "plugin"
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


# The draft-TP plug-in as a patch for people who build SGLang themselves.
#
# The plug-in's files become a package inside SGLang. Each changed module calls the package in its
# last lines. All context comes from the given copy: no line of SGLang's is kept here.


PACKAGE = "sglang/srt/specbench_sglang"
_CALL = """

# The draft on its own tensor-parallel size, where SPECBENCH_DRAFT_TP asks for it.
from sglang.srt.specbench_sglang.entry import patch_here as _specbench_patch_here  # noqa: E402

_specbench_patch_here(__name__)
"""


def draft_tp_diff(source: Path) -> str:
    """A unified diff for `git apply -p1` in `source`, which holds `sglang/`. Raises UserError."""
    from tuner.sglang.plugin.specbench_sglang.entry import patches

    if not (source / "sglang/srt").is_dir():
        raise UserError(f"{source} holds no sglang/srt; name the folder above the package")
    if (source / PACKAGE).exists():
        raise UserError(f"{source} has the patch already")
    return "".join((*_new_files(), *_changes(source, list(patches()))))


def _new_files() -> Iterator[str]:
    for file in sorted((CARRIER / "specbench_sglang").glob("*.py")):
        path = f"{PACKAGE}/{file.name}"
        lines = file.read_text().splitlines()
        yield f"diff --git a/{path} b/{path}\nnew file mode 100644\n"
        yield f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{len(lines)} @@\n"
        yield from (f"+{line}\n" for line in lines)


def _changes(source: Path, modules: list[str]) -> Iterator[str]:
    for module in modules:
        path = f"{module.replace('.', '/')}.py"
        if not (source / path).is_file():
            continue  # not in every release
        before = (source / path).read_text()
        if not before.endswith("\n"):
            raise UserError(f"{path} does not end with a line end, which no release does")
        after = before + _CALL
        yield f"diff --git a/{path} b/{path}\n"
        yield from difflib.unified_diff(
            before.splitlines(keepends=True),
            after.splitlines(keepends=True),
            f"a/{path}",
            f"b/{path}",
        )
