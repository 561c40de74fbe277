"""Models held to the files that they were when the run began."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tuner.config.loader import LoadedSweep, load_sweep
from tuner.core.errors import UserError
from tuner.execution.trial import TrialRunner
from tuner.runner.sweep_run import as_begun, begin_run, reopen_run
from tuner.server.base import server_config
from tuner.sglang.engine import SglangEngine
from tuner.sglang.revisions import changed_models, held_to_revisions, model_facts
from tuner.sglang.tokenizer import Tokeniser

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


def pinned(loaded: LoadedSweep, environ: dict[str, str]) -> dict[str, object]:
    """The server's flags that the sweep file does not have."""
    held, _ = held_to_revisions(loaded, environ)
    given = loaded.sweep.server.flags
    return {name: value for name, value in held.sweep.server.flags.items() if name not in given}


def checked(path: Path):  # type: ignore[no-untyped-def]
    sweep = load_sweep(path).sweep
    engine = SglangEngine(sweep.engine, sweep.timeouts, sweep.server)
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


def test_prompts_are_tokenised_at_the_commit_of_the_servers(
    tmp_path: Path, hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the engine was made with has no commit: `main` may move between two launches."""
    cached(hub, "org/target", FIRST)
    sweep = load_sweep(sweep_file(tmp_path, "org/target", "org/draft")).sweep
    engine = SglangEngine(sweep.engine, sweep.timeouts, sweep.server)
    loaded = engine.check(load_sweep(tmp_path / "sweep.yaml")).loaded
    asked: list[dict[str, object]] = []

    def answer(_: Tokeniser, order: dict[str, object]) -> dict[str, object]:
        asked.append(order)
        return {"error": "played"}

    monkeypatch.setattr(Tokeniser, "_ask_child", answer)
    cached(hub, "org/target", SECOND)
    run = begin_run(tmp_path / "results", loaded, None)
    TrialRunner.prepare(engine, loaded, run, lambda _: None)
    assert [each["revision"] for each in asked] == [FIRST]


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
    assert pinned(load_sweep(path), {"HF_HUB_CACHE": str(hub)}) == {}
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
    (change,) = changed_models(now, model_facts(load_sweep(path).sweep, environ))
    assert "the target's files have changed since this run began" in change
    assert FIRST in change and SECOND in change


@pytest.mark.parametrize(
    "server",
    [
        {"flags": {"download-dir": "/models"}},
        {"env": {"SGLANG_USE_MODELSCOPE": "true"}},
    ],
)
def test_no_pin_where_servers_read_another_cache(
    tmp_path: Path, hub: Path, server: dict[str, dict[str, str]]
) -> None:
    """The commit of a cache that the server never opens need not be in the one that it does."""
    cached(hub, "org/target", FIRST)
    cached(hub, "org/draft", SECOND)
    found = checked(sweep_file(tmp_path, "org/target", "org/draft", **server))
    flags = server_config(found.loaded.sweep, None).flags
    assert "revision" not in flags
    assert "speculative-draft-model-revision" not in flags
    assert any(note.startswith("not pinned: revision: ") for note in found.notes)
    facts = model_facts(found.loaded.sweep, {"HF_HUB_CACHE": str(hub)})
    assert facts["target"]["revision"] is None


@pytest.mark.parametrize(("tokenizer", "pins"), [("org/other", False), ("org/target", True),
                                                 ("folder", True)])  # fmt: skip
def test_no_pin_beside_a_tokenizer_from_elsewhere_on_the_hub(
    tmp_path: Path, hub: Path, tokenizer: str, pins: bool
) -> None:
    """SGLang looks for it at --revision; no server would start."""
    cached(hub, "org/target", FIRST)
    cached(hub, "org/draft", SECOND)
    if tokenizer == "folder":
        tokenizer = str(tmp_path)
    server = {"flags": {"tokenizer-path": tokenizer}}
    found = checked(sweep_file(tmp_path, "org/target", "org/draft", **server))
    flags = server_config(found.loaded.sweep, None).flags
    assert ("revision" in flags) == pins
    assert flags["speculative-draft-model-revision"] == SECOND


def test_the_pin_is_of_the_cache_that_the_servers_environment_names(
    tmp_path: Path, hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that the file removes is not there for the server either."""
    cached(hub, "org/target", FIRST)
    cached(tmp_path / "home" / "hub", "org/target", SECOND)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    given = {"env": {"HF_HUB_CACHE": "unset"}}
    found = checked(sweep_file(tmp_path, "org/target", "org/draft", **given))
    assert server_config(found.loaded.sweep, None).flags["revision"] == SECOND


def test_a_broken_ref_pins_nothing(tmp_path: Path, hub: Path) -> None:
    """A download that was cut off must not end as `--revision snapshots`."""
    for text in ("", "..", "not-a-commit"):
        cached(hub, "org/target", FIRST)
        (hub / "models--org--target" / "refs" / "main").write_text(text)
        (hub / "models--org--target" / "snapshots" / "not-a-commit").mkdir(exist_ok=True)
        loaded = load_sweep(sweep_file(tmp_path, "org/target", "org/draft"))
        assert pinned(loaded, {"HF_HUB_CACHE": str(hub)}) == {}


def test_a_name_too_long_for_any_file_is_refused_at_its_line(tmp_path: Path) -> None:
    """`File name too long` alone does not say which of the file's names."""
    path = sweep_file(tmp_path, "a" * 300, "org/draft")
    with pytest.raises(UserError, match=r"sweep\.yaml:\d+: model\.target: .* 300 characters"):
        checked(path)
    path = sweep_file(tmp_path, "org/t", "org/d", flags={"tokenizer-path": "a" * 300})
    with pytest.raises(UserError, match=r"server\.flags\.tokenizer-path: .* 300 characters"):
        checked(path)


@pytest.mark.parametrize("home", ["~nosuchuser/x", None])
def test_a_home_that_nobody_has_is_no_traceback(tmp_path: Path, home: str | None) -> None:
    """Containers run as users that no password file knows; huggingface_hub takes it too."""
    path = sweep_file(tmp_path, "org/target", "org/draft")
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "XDG_", "HOME"))}
    environ |= {"HF_HOME": home} if home else {}
    lines = "import pwd, sys; from tuner.cli import main; pwd.getpwuid = {}.__getitem__; "
    command = [sys.executable, "-c", f"{lines}sys.exit(main())", "plan", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# Resumption


def add_tokens(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{"eos_token": "x"}')


def other_template(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ other }}")


def other_sampling(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": 2}')


def other_part(folder: Path) -> None:
    (folder / "part" / "model.safetensors").write_bytes(b"other")


@pytest.mark.parametrize("change", [add_tokens, other_template, other_sampling, other_part])
def test_other_files_of_a_folder_are_seen(
    tmp_path: Path, hub: Path, change: Callable[[Path], None]
) -> None:
    """Other tokens or an other template are other prompts, whatever the weights are."""
    folder = tmp_path / "draft"
    (folder / "part").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "part" / "model.safetensors").write_bytes(b"first")
    path = sweep_file(tmp_path, "org/target", str(folder))
    run = begin_run(tmp_path / "results", load_sweep(path), None)
    os.utime(folder / "config.json", (0, 0))
    (folder / "README.md").write_text("read, and not served")
    reopen_run(run.path, load_sweep(path), None)
    change(folder)
    with pytest.raises(UserError, match="the draft's files have changed since this run began"):
        reopen_run(run.path, load_sweep(path), None)


def resumed(run_path: Path, path: Path):  # type: ignore[no-untyped-def]
    """What `sweep --resume` does before it measures: the sweep with its pins."""
    from tuner.runs.run import Run

    loaded = as_begun(load_sweep(path), Run.open(run_path))
    sweep = loaded.sweep
    found = SglangEngine(sweep.engine, sweep.timeouts, sweep.server).check(loaded)
    reopen_run(run_path, found.loaded, None)
    return server_config(found.loaded.sweep, None).flags


def test_a_run_keeps_the_configs_of_its_own_commit(tmp_path: Path, hub: Path) -> None:
    """Otherwise its report would reckon another model's memory, and search with its sizes."""
    cached(hub, "org/target", FIRST)
    path = sweep_file(tmp_path, "org/target", "org/draft")
    run = begin_run(tmp_path / "results", checked(path).loaded, None)
    cached(hub, "org/target", SECOND)
    config = hub / "models--org--target" / "snapshots" / SECOND / "config.json"
    config.write_text('{"hidden_size": 2}')
    with run.locked():
        assert run.configs() == {"target": {}}


def test_a_run_goes_on_with_its_own_commit_where_main_has_moved_on(
    tmp_path: Path, hub: Path
) -> None:
    """Any `hf download` in between would end the run otherwise."""
    cached(hub, "org/target", FIRST)
    path = sweep_file(tmp_path, "org/target", "org/draft")
    run = begin_run(tmp_path / "results", checked(path).loaded, None)
    cached(hub, "org/target", SECOND)
    assert resumed(run.path, path)["revision"] == FIRST
    (hub / "models--org--target" / "snapshots" / FIRST / "config.json").unlink()
    (hub / "models--org--target" / "snapshots" / FIRST).rmdir()
    assert resumed(run.path, path)["revision"] == FIRST  # the server fetches that one


def test_what_is_gone_is_said_to_be_gone(
    tmp_path: Path, hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Restore them` sends a user who stands in another folder after files that are whole."""
    cached(hub, "org/target", FIRST)
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    path = sweep_file(tmp_path, "org/target", "draft")
    run = begin_run(tmp_path / "results", checked(path).loaded, None)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    with pytest.raises(UserError, match=r"draft, cannot be found .* from the folder that the run"):
        resumed(run.path, path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "empty"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match=f"hf download org/target --revision {FIRST}"):
        resumed(run.path, path)


def test_a_digest_of_an_older_specbench_stops_no_run(tmp_path: Path, hub: Path) -> None:
    """It covered other files, so it says nothing about these."""
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "config.json").write_text("{}")
    path = sweep_file(tmp_path, "org/target", str(tmp_path / "draft"))
    run = begin_run(tmp_path / "results", load_sweep(path), None)
    settings = json.loads(run.settings_file.read_text())
    settings["models"]["draft"]["digest"] = "0123456789abcdef"
    run.settings_file.write_text(json.dumps(settings))
    reopen_run(run.path, load_sweep(path), None)
