"""Which files the models of a run are, so that no launch of it meets others.

A name on the hub is looked up anew at every launch, and may be another commit by then; a folder may
be trained further between a run and its resumption.
"""

import errno
import os
from collections.abc import Mapping
from dataclasses import replace

from tuner.config.loader import LoadedSweep
from tuner.config.schema import Sweep
from tuner.config.yaml_document import Path as Place
from tuner.sglang.models import Hub, Model, Role, digest_model, is_commit, is_comparable, local
from tuner.sglang.server_settings import REVISION_FLAGS, Launches

ModelFacts = dict[str, dict[str, str | None]]
"""`{name, source, revision, digest}` of `target` and `draft`."""


def held_to_revisions(
    loaded: LoadedSweep, environ: Mapping[str, str]
) -> tuple[LoadedSweep, tuple[str, ...]]:
    """The sweep with flags that hold every launch to the commits that the hub's cache has now.

    Without those that the sweep names itself, and without those that could break a launch: where
    servers read another cache than the one that is seen from here, and where SGLang would look for
    another model's tokenizer at the target's commit. With a note on each commit. Raises UserError,
    at its line, for a name that is too long for any file.
    """
    _refuse_too_long(loaded)
    commits: dict[str, str] = {}
    notes = []
    for role, commit in _open_commits(loaded.sweep, environ).items():
        flag = REVISION_FLAGS[role]
        if (why := _unpinnable(role, loaded.sweep, environ)) is not None:
            notes.append(f"not pinned: {flag}: {why}")
        else:
            commits[flag] = commit
            notes.append(f"--{flag} {commit} for every server: what the hub's cache has now")
    return replace(loaded, sweep=_with_flags(loaded.sweep, commits)), tuple(notes)


def held_as_begun(loaded: LoadedSweep, then: ModelFacts, environ: Mapping[str, str]) -> LoadedSweep:
    """The sweep of an earlier run with the commits of its run.json among its server's flags.

    Where the cache's `main` has moved on since, its servers still get what the run began with.
    """
    return replace(loaded, sweep=sweep_as_begun(loaded.sweep, then, environ))


def sweep_as_begun(sweep: Sweep, then: ModelFacts, environ: Mapping[str, str]) -> Sweep:
    """The same of a sweep alone."""
    commits: dict[str, str] = {}
    hub = Hub.of(Launches(sweep, environ).environment)
    for role, flag in REVISION_FLAGS.items():
        facts, name = then.get(role, {}), getattr(sweep.model, role)
        commit = facts.get("revision")
        if commit is None or facts.get("name") != name:
            continue
        if _is_named(sweep, flag) or _unpinnable(role, sweep, environ) is not None:
            continue
        # A folder of that name may have come up since; it goes first.
        if local(role, name, hub).source in ("cache", "not cached"):
            commits[flag] = commit
    return _with_flags(sweep, commits)


def model_facts(sweep: Sweep, environ: Mapping[str, str]) -> ModelFacts:
    """What run.json keeps.

    `revision` is a commit of the hub, `digest` that of a folder (model_digest.py); None where it is
    not known. {} behind `engine.command`.
    """
    if sweep.engine.command:
        return {}
    launches = Launches(sweep, environ)
    is_seen, offline = launches.unsure_of_cache is None, Hub.of(launches.environment).offline
    facts: ModelFacts = {}
    for model in _models(sweep, environ):
        named, commit = str(sweep.server.flags.get(REVISION_FLAGS[model.role])), model.commit
        if model.source == "not cached" and is_commit(named) and not offline:
            commit = named  # the server fetches that one and no other
        is_local = model.folder is not None and model.source in ("folder", "file")
        facts[model.role] = {
            "name": model.name,
            "source": model.source if is_local or is_seen else "elsewhere",
            "revision": commit if is_seen else None,
            "digest": digest_model(model.folder) if is_local and model.folder else None,
        }
    return facts


def changed_models(then: ModelFacts, now: ModelFacts) -> list[str]:
    """A sentence for each role whose files are others or cannot be told to be the same.

    What was not known when the run began, such as a model that was fetched since, is no change.
    """
    changes = [_change(role, then[role], now[role]) for role in then if role in now]
    return [change for change in changes if change is not None]


def _change(role: str, then: Mapping[str, str | None], now: Mapping[str, str | None]) -> str | None:
    known = then["revision"] or then["digest"]
    found = now["revision"] or now["digest"]
    if known is None or (then["name"] == now["name"] and known == found):
        return None
    if found is None:
        if now["source"] == "elsewhere":  # nothing can be told of it, as when it is never seen
            return None
        if then["revision"] is not None:
            todo = f"fetch it (hf download {then['name']} --revision {then['revision']})"
        else:
            todo = "resume from the folder that the run was begun in, or bring it back"
        return f"the {role}, {then['name']}, cannot be found or read from here, {todo}"
    if then["digest"] and now["digest"] and not is_comparable(then["digest"], now["digest"]):
        return None
    both = ""
    if then["revision"] and now["revision"]:
        both = f" (commit {then['revision']} then, {now['revision']} now)"
    begin = f"the {role}'s files have changed since this run began{both}"
    return f"{begin}, restore them or begin a new run"


def _open_commits(sweep: Sweep, environ: Mapping[str, str]) -> dict[Role, str]:
    """The commits in the cache of the models whose revision the sweep leaves open."""
    return {
        model.role: model.commit
        for model in _models(sweep, environ)
        if model.commit is not None and not _is_named(sweep, REVISION_FLAGS[model.role])
    }


def _unpinnable(role: Role, sweep: Sweep, environ: Mapping[str, str]) -> str | None:
    """Why a commit of this model would not be one for every server; None where it is."""
    launches = Launches(sweep, environ)
    if (why := launches.unsure_of_cache) is not None:
        return f"{why}, and servers may read another cache than the hub's own here"
    if role == "target" and (named := launches.other_tokenizer) is not None:
        return f"SGLang would look for tokenizer-path {named} at the target's commit"
    return None


def _models(sweep: Sweep, environ: Mapping[str, str]) -> list[Model]:
    launches = Launches(sweep, environ)
    return [model for model in (launches.target, launches.draft) if model is not None]


def _is_named(sweep: Sweep, flag: str) -> bool:
    return any(
        flag in part for part in (sweep.server.flags, sweep.baseline.flags, sweep.space.flags)
    )


def _with_flags(sweep: Sweep, flags: Mapping[str, str]) -> Sweep:
    server = sweep.server.model_copy(update={"flags": {**sweep.server.flags, **flags}})
    return sweep.model_copy(update={"server": server})


def _refuse_too_long(loaded: LoadedSweep) -> None:
    model, flags = loaded.sweep.model, loaded.sweep.server.flags
    places: list[tuple[Place, object]] = [
        (("model", "target"), model.target),
        (("model", "draft"), model.draft),
        (("server", "flags", "tokenizer-path"), flags.get("tokenizer-path")),
    ]
    for place, name in places:
        if isinstance(name, str) and _is_too_long(name):
            message = f"this name has {len(name)} characters, too long for a folder or a hub name"
            raise loaded.document.error(place, f"{message}, write a shorter one")


def _is_too_long(name: str) -> bool:
    """By the file system's own limits: 255 bytes a part and 4095 in all on Linux."""
    try:
        os.lstat(name)
    except OSError as error:
        return error.errno == errno.ENAMETOOLONG
    except ValueError:  # what no file can be called: other checks say so
        return False
    return False
