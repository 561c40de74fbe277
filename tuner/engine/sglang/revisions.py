"""Which files the models of a run are, so that no launch of it meets others.

A name on the hub is looked up anew at every launch, and may be another commit by then; a folder may
be trained further between a run and its resumption.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from tuner.engine.models import WEIGHTS, Hub, Model, local
from tuner.sweep.door import LoadedSweep
from tuner.sweep.model import UNSET, Sweep

_FLAGS: Mapping[Literal["target", "draft"], str] = {
    "target": "revision",
    "draft": "speculative-draft-model-revision",
}
ModelFacts = dict[str, dict[str, str | None]]
"""`{name, source, revision, digest}` of `target` and `draft`."""

_SAMPLES, _SAMPLE_BYTES = 16, 2**16
"""Of each weight file: whole checkpoints have up to a terabyte."""


def held_to_revisions(
    loaded: LoadedSweep, environ: Mapping[str, str]
) -> tuple[LoadedSweep, tuple[str, ...]]:
    """The sweep with `pinned_revisions` among its server's flags, and a note on each."""
    sweep, commits = loaded.sweep, pinned_revisions(loaded.sweep, environ)
    server = sweep.server.model_copy(update={"flags": {**sweep.server.flags, **commits}})
    notes = (f"--{name} {commit} for every server: what the hub's cache has now"
             for name, commit in commits.items())  # fmt: skip
    return replace(loaded, sweep=sweep.model_copy(update={"server": server})), tuple(notes)


def pinned_revisions(sweep: Sweep, environ: Mapping[str, str]) -> dict[str, str]:
    """Flags that hold every launch to the commits that the hub's cache has now.

    Without those that the sweep names itself. {} behind `engine.command`, where the cache may be
    another machine's.
    """
    if sweep.engine.command:
        return {}
    return {
        _FLAGS[model.role]: model.commit
        for model in _models(sweep, environ)
        if model.commit is not None and not _is_named(sweep, _FLAGS[model.role])
    }


def model_facts(sweep: Sweep, environ: Mapping[str, str]) -> ModelFacts:
    """What run.json keeps.

    `revision` is a commit of the hub, `digest` of a folder's config.json, names, sizes and samples
    of its weights; None where that is not known. {} behind `engine.command`.
    """
    if sweep.engine.command:
        return {}
    return {
        model.role: {
            "name": model.name,
            "source": model.source,
            "revision": model.commit,
            "digest": _digest(model.folder) if model.source == "folder" else None,
        }
        for model in _models(sweep, environ)
    }


def changed_models(then: ModelFacts, now: ModelFacts) -> list[str]:
    """Roles whose files are known to be others; what was fetched meanwhile is not."""
    known = {role: facts for role, facts in then.items() if facts["revision"] or facts["digest"]}
    return [role for role, facts in known.items() if role in now and now[role] != facts]


def _models(sweep: Sweep, environ: Mapping[str, str]) -> list[Model]:
    hub = Hub.of({**environ, **{k: v for k, v in sweep.server.env.items() if v != UNSET}})
    names: dict[Literal["target", "draft"], str | None]
    names = {"target": sweep.model.target, "draft": sweep.model.draft}
    return [
        local(role, name, hub, str(sweep.server.flags.get(_FLAGS[role]) or "main"))
        for role, name in names.items()
        if name is not None
    ]


def _is_named(sweep: Sweep, flag: str) -> bool:
    return any(
        flag in part for part in (sweep.server.flags, sweep.baseline.flags, sweep.space.flags)
    )


def _digest(folder: Path | None) -> str | None:
    """None where a file cannot be read."""
    if folder is None:
        return None
    found = hashlib.sha256()
    weights = {path for pattern in WEIGHTS for path in folder.glob(pattern)}
    try:
        for path in [folder / "config.json", *sorted(weights)]:
            if path.is_file():
                found.update(f"{path.name}\0{path.stat().st_size}\0".encode())
                _add_samples(found, path)
    except OSError:
        return None
    return found.hexdigest()[:16]


def _add_samples(found: Any, path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        for index in range(_SAMPLES):
            file.seek(max(0, size - _SAMPLE_BYTES) * index // (_SAMPLES - 1))
            found.update(file.read(_SAMPLE_BYTES))
