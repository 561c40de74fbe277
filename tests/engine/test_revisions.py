"""Models held to the files that they were when the run began."""

from pathlib import Path

import pytest
import yaml

from tuner.campaign.campaign import begin_run, reopen_run
from tuner.engine.base import server_config
from tuner.engine.sglang.engine import SglangEngine
from tuner.engine.sglang.revisions import changed_models, model_facts, pinned_revisions
from tuner.errors import UserError
from tuner.sweep.door import load_sweep

FIRST, SECOND = "a" * 40, "b" * 40


def cached(hub: Path, name: str, commit: str) -> None:
    """What huggingface_hub leaves of a download: the commit's folder, and where main is."""
    repo = hub / f"models--{name.replace('/', '--')}"
    (repo / "snapshots" / commit).mkdir(parents=True, exist_ok=True)
    (repo / "snapshots" / commit / "config.json").write_text("{}")
    (repo / "refs").mkdir(exist_ok=True)
    (repo / "refs" / "main").write_text(commit)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def write_sweep(folder: Path, **parts: object) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump({"name": "s", "space": {"num_steps": [3]}, **parts}))
    return path


def sweep_file(folder: Path, target: str, draft: str, **server: object) -> Path:
    return write_sweep(
        folder,
        engine={"kind": "sglang", "release": "0.5.17"},
        model={"target": target, "draft": draft, "algorithm": "EAGLE3"},
        server=server,
    )


def checked(path: Path):  # type: ignore[no-untyped-def]
    sweep = load_sweep(path).sweep
    engine = SglangEngine(sweep.engine, sweep.timeouts, sweep.model, sweep.server)
    return engine.check(load_sweep(path))


def test_every_launch_gets_the_commit_that_the_cache_has(tmp_path: Path, hub: Path) -> None:
    """Otherwise a push to the hub in the middle of a run would change what is compared."""
    cached(hub, "org/target", FIRST)
    cached(hub, "org/draft", SECOND)
    found = checked(sweep_file(tmp_path, "org/target", "org/draft"))
    for point in (None, found.loaded.space.points[0]):
        flags = server_config(found.loaded.sweep, point).flags
        assert flags["revision"] == FIRST
        assert flags["speculative-draft-model-revision"] == SECOND
    assert any(FIRST in note for note in found.notes)


def test_a_revision_of_the_file_stays(tmp_path: Path, hub: Path) -> None:
    """The user's word counts, and is resolved for the ledger."""
    cached(hub, "org/target", FIRST)
    (hub / "models--org--target" / "refs" / "v2").write_text(FIRST)
    path = sweep_file(tmp_path, "org/target", "org/draft", flags={"revision": "v2"})
    found = checked(path)
    assert server_config(found.loaded.sweep, None).flags["revision"] == "v2"
    assert model_facts(found.loaded.sweep, {"HF_HUB_CACHE": str(hub)})["target"] == {
        "name": "org/target", "source": "cache", "revision": FIRST, "digest": None,
    }  # fmt: skip


def test_nothing_is_pinned_of_another_machine(tmp_path: Path, hub: Path) -> None:
    """Behind ssh or docker the cache that is seen from here says nothing."""
    cached(hub, "org/target", FIRST)
    path = write_sweep(
        tmp_path,
        engine={"kind": "sglang", "release": "0.5.17", "command": ["env"]},
        model={"target": "org/target", "draft": "org/draft", "algorithm": "EAGLE3"},
    )
    assert pinned_revisions(load_sweep(path).sweep, {"HF_HUB_CACHE": str(hub)}) == {}
    assert model_facts(load_sweep(path).sweep, {"HF_HUB_CACHE": str(hub)}) == {}


def test_a_run_is_not_resumed_on_other_weights(tmp_path: Path, hub: Path) -> None:
    """Otherwise half of a run's candidates would be another model's."""
    folder = tmp_path / "draft"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    weights = bytearray(3 * 2**20)
    (folder / "model.safetensors").write_bytes(weights)
    path = sweep_file(tmp_path, "org/target", str(folder))
    run = begin_run(tmp_path / "results", load_sweep(path), None)
    assert reopen_run(run.path, load_sweep(path), None).settings.models["draft"]["digest"]
    weights[-1] = 1  # trained on: the same size, other numbers
    (folder / "model.safetensors").write_bytes(weights)
    with pytest.raises(UserError, match="the draft's files have changed since this run began"):
        reopen_run(run.path, load_sweep(path), None)


def test_what_was_fetched_meanwhile_is_no_change(tmp_path: Path, hub: Path) -> None:
    """The first launch may download a model; its run must still be resumable."""
    path = sweep_file(tmp_path, "org/target", "org/draft")
    environ = {"HF_HUB_CACHE": str(hub)}
    then = model_facts(load_sweep(path).sweep, environ)
    assert then["target"]["source"] == "not cached"
    cached(hub, "org/target", FIRST)
    now = model_facts(load_sweep(path).sweep, environ)
    assert changed_models(then, now) == []
    cached(hub, "org/target", SECOND)
    assert changed_models(now, model_facts(load_sweep(path).sweep, environ)) == ["target"]
