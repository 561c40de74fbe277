"""`specbench doctor`: what would stop a sweep is said before it, and nothing else is called so."""

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from tests.sweeps import tiny_sweep
from tuner.config.loader import load_sweep
from tuner.preflight import interpreter, machine, models
from tuner.preflight.finding import Finding, exit_code, softened
from tuner.preflight.models import ModelPair
from tuner.server import gpu
from tuner.server.gpu import Gpu, Gpus, Link
from tuner.sglang.interpreter import Installed, installed_packages
from tuner.sglang.models import Config, Hub, Model, local, read_config
from tuner.sglang.releases import parse_version
from tuner.sglang.server_settings import Launches

GIB = 2**30
CARDS = tuple(Gpu(str(index), "H200", 140 * GIB, GIB) for index in range(2))
TWO = Gpus("580.95", "13.0", CARDS, (Link(("0", "1"), "NVLink", True),))
LLAMA = Config("LlamaForCausalLM", 4096, 128256, 32, 32, 8)
DRAFT = Config("LlamaForCausalLMEagle3", 4096, 128256, 1, 32, 8, draft_vocab_size=32000)
NOW = parse_version("0.5.17")


def levels(summary: Iterable[Finding]) -> list[str]:
    return [each.level for each in summary]


def pair(draft: Config = DRAFT, target: Config = LLAMA, **more: Any) -> ModelPair:
    return ModelPair(target, draft, **{"algorithm": "EAGLE3", "release": NOW, **more})


# The machine


@pytest.mark.parametrize(
    ("found", "wanted", "told"),
    [
        (TWO, 2, ["ok", "ok"]),
        (TWO, None, ["ok", "ok"]),
        (TWO, 4, ["stop", "ok"]),
        (replace(TWO, cards=()), 1, ["stop"]),
        (replace(TWO, cards=()), None, ["ok"]),
        (None, None, ["ok"]),
        (None, 2, ["doubt"]),  # another vendor's GPUs, or a container without NVML
    ],
)
def test_gpus_are_counted_against_tp(found: Gpus | None, wanted: int | None, told: list) -> None:
    """A launch of ten minutes would end with `invalid device ordinal`."""
    assert levels(machine.gpus(found, wanted)) == told


def test_memory_that_others_hold_and_unequal_gpus_are_doubts() -> None:
    busy = replace(TWO, cards=(CARDS[0], Gpu("1", "L40", 48 * GIB, 20 * GIB)))
    found = [each for each in machine.gpus(busy, 2) if each.level == "doubt"]
    assert [each.what for each in found] == ["GPUs", "GPU memory"]
    assert "GPU 1: 20 of 48 GiB" in found[1].message


@pytest.mark.parametrize(
    ("link", "level", "words"),
    [
        (Link(("0", "1"), "NVLink", True), "ok", "NVLink, P2P"),
        (Link(("0", "1"), "a PCIe host bridge (PHB)", False), "doubt", "without P2P"),
        (Link(("0", "1"), None, None), "doubt", "way not told"),
    ],
)
def test_the_way_between_gpus_is_told(link: Link, level: str, words: str) -> None:
    """Without P2P a draft on tensor parallelism can lose to no speculation."""
    (found,) = machine.links(replace(TWO, links=(link,)))
    assert (found.level, words in found.message) == (level, True)
    assert not list(machine.links(None))


def test_ports_and_disk() -> None:
    assert (machine.ports(None).level, machine.ports("no free port").level) == ("ok", "stop")
    here = Path("results")
    assert machine.disk(machine.Disk(here, 5 * GIB, True)).level == "ok"
    assert machine.disk(machine.Disk(here, GIB // 2, True)).level == "doubt"
    assert machine.disk(machine.Disk(here, 5 * GIB, False)).level == "stop"


def test_inherited_settings_are_told_unless_the_sweep_has_a_word_on_them() -> None:
    """They speed or slow every server and stand in no sweep file."""
    inherited = {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring", "CUDA_VISIBLE_DEVICES": "0"}
    found = machine.variables(inherited, {"NCCL_ALGO"})
    assert found.level == "doubt"
    assert "NCCL_PROTO=LL" in found.message
    assert "NCCL_ALGO" not in found.message
    assert machine.variables({"CUDA_VISIBLE_DEVICES": "0"}, ()).level == "ok"


class FakeNvml(SimpleNamespace):
    """Two GPUs without NVLink, whose driver tells P2P or, as under some hypervisors, does not.

    Its constants are those of nvidia-ml-py; numbers go to the driver by ctypes, as there.
    """

    class NVMLError(Exception):
        pass

    def nvmlDeviceGetP2PStatus(self, _first: Any, _second: Any, kind: int) -> int:  # noqa: N802
        if self.mute:
            raise self.NVMLError
        return 0 if ctypes.c_uint(kind).value == 0 else 1

    def nvmlDeviceGetTopologyCommonAncestor(self, _first: Any, _second: Any) -> int:  # noqa: N802
        if self.mute:
            raise self.NVMLError
        return 30


@pytest.mark.parametrize(
    ("mute", "way", "peer"), [(False, "a PCIe host bridge (PHB)", True), (True, None, None)]
)
def test_a_driver_that_does_not_tell_gives_none(
    mute: bool, way: str | None, peer: bool | None
) -> None:
    """`No P2P` is a cause to look for, `not told` is none."""
    constants = {name: value for name, value in vars(pynvml).items() if name.startswith("NVML_")}
    nvml = FakeNvml(mute=mute, **constants)
    assert list(gpu._links(nvml, {"0": 0, "1": 1})) == [Link(("0", "1"), way, peer)]


# The interpreter


def test_packages_are_read_without_importing_them(tmp_path: Path) -> None:
    """Importing takes half a minute and opens the GPU."""
    for name, version in (("sglang", "0.5.17"), ("torch", "2.9.1")):
        (tmp_path / f"{name}-{version}.dist-info").mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (tmp_path / f"{name}-{version}.dist-info" / "METADATA").write_text(metadata)
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('imported')")
    entries = "[sglang.srt.plugins]\nmine = my_plugin.entry:patch\n"
    (tmp_path / "sglang-0.5.17.dist-info" / "entry_points.txt").write_text(entries)
    found = installed_packages(sys.executable, {"PYTHONPATH": str(tmp_path)})
    assert found is not None
    assert (found.sglang, found.torch) == ("0.5.17", "2.9.1")
    assert "my_plugin.entry:patch" in found.plugins
    assert installed_packages("/no/such/python") is None


def test_an_interpreter_stops_only_a_sweep_that_needs_it() -> None:
    told = interpreter.interpreter
    assert levels(told("/no/python", None, needed=True)) == ["stop"]
    assert levels(told("python", Installed("3.12", "0.5.17", "2.9"), needed=True)) == ["ok", "ok"]
    assert levels(told("python", Installed("3.12", "0.5.17", None), needed=True)) == ["ok", "doubt"]
    assert levels(told("python", Installed("3.12", None, None), needed=False)) == ["ok", "ok"]


def test_the_release_is_known_or_doubted() -> None:
    assert interpreter.release(NOW, "0.5.17").level == "ok"
    assert interpreter.release(NOW, None).level == "ok"
    assert interpreter.release(NOW, "0.5.8").level == "doubt"
    assert interpreter.release(parse_version("0.9.0"), "0.9.0").level == "doubt"


@pytest.mark.parametrize(
    ("whole", "seen", "version", "level"),
    [
        (True, True, "0.5.17", "ok"),
        (True, None, "0.5.17", "ok"),
        (True, True, "0.5.10", "ok"),
        (True, True, "0.5.12", "ok"),
        (True, True, "0.5.12.post1", "doubt"),  # read against it, never run
        (True, True, "0.9.0", "doubt"),
        (True, False, "0.5.17", "doubt"),
        (False, None, "0.5.17", "stop"),
    ],
)
def test_the_plugin_is_found_or_not(
    whole: bool, seen: bool | None, version: str, level: str
) -> None:
    """Without it every point with draft_tp costs a launch that ends as NOT_PATCHED."""
    carrier = interpreter.Carrier(Path("plugin"), whole, seen)
    assert interpreter.plugin(carrier, parse_version(version)).level == level


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("0.5.23", "found, and run on SGLang 0.5.23 on a CPU; on GPUs proven with 0.5.17 only"),
        ("0.5.12", "found, and run on SGLang 0.5.12 on a CPU; on GPUs proven with 0.5.17 only"),
        ("0.5.12.post1", "0.5.12.post1, never run on it; on GPUs proven with 0.5.17 only"),
        ("0.5.23.post9", "which 0.5.23.post9 is not; on GPUs proven with 0.5.17 only"),
    ],
)
def test_it_says_where_the_plugin_was_run(version: str, says: str) -> None:
    """`run on 0.5.23 only` as a doubt about 0.5.23 says nothing."""
    carrier = interpreter.Carrier(Path("plugin"), True, True)
    assert interpreter.plugin(carrier, parse_version(version)).message.endswith(says)


# Models


def model_folder(folder: Path, **config: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_config_json_is_read_also_where_the_text_model_is_nested(tmp_path: Path) -> None:
    """Kimi-K2.5 keeps its sizes in text_config."""
    eagle = {"eagle_aux_hidden_state_layer_ids": [1, 29, 57]}
    inner = {"hidden_size": 7168, "vocab_size": 163840, "num_hidden_layers": 61}
    folder = model_folder(
        tmp_path / "model", architectures=["Kimi"], text_config=inner, eagle_config=eagle
    )
    assert read_config(folder) == Config(
        "Kimi", 7168, 163840, 61, uses_aux_layers=True, aux_layers=(1, 29, 57)
    )


@pytest.mark.parametrize("text", ["", "[]", '{"hidden_size": "many", "architectures": 3}'])
def test_a_broken_config_is_a_doubt_and_no_traceback(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    hub = Hub(tmp_path / "hub", offline=False)
    found = local("target", str(tmp_path), hub)
    assert "stop" not in levels(models.presence(found, hub, loads_weights=False))
    assert found.config is None or found.config.hidden_size is None


def test_names_are_looked_up_as_the_hub_does(tmp_path: Path) -> None:
    """A revision that is not cached is another model."""
    commit = "0123456789" * 4
    repo = tmp_path / "models--org--name"
    model_folder(repo / "snapshots" / commit, hidden_size=64)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    hub = Hub(tmp_path, offline=True)
    found = local("target", "org/name", hub)
    assert (found.source, found.commit) == ("cache", commit)
    assert local("target", "org/name", hub, commit).source == "cache"
    assert local("target", "org/name", hub, "v2").source == "not cached"


@pytest.mark.parametrize("offline", [True, False])
def test_a_revision_is_fetched_as_the_sweep_names_it(tmp_path: Path, offline: bool) -> None:
    """What `hf download org/name` brings is another commit, and the servers fail as before."""
    hub = Hub(tmp_path, offline)
    model = local("target", "org/name", hub, "v2")
    (found,) = models.presence(model, hub, loads_weights=False)
    assert f"neither a folder nor in {tmp_path} at v2" in found.message
    assert "hf download org/name --revision v2" in (found.todo or "")


@pytest.mark.parametrize("offline", [True, False])
@pytest.mark.parametrize(
    ("name", "todo"),
    [
        ("models/llama8b-target", "make or copy it there, where specbench is started"),
        ("./models/llama8b-target", "make or copy it there, or mend model.target"),
        ("/models/llama8b-target", "make or copy it there, or mend model.target"),
        ("org/name", "hf download org/name"),
    ],
)
def test_a_folder_that_is_not_there_yet_is_not_looked_for_on_the_hub(
    tmp_path: Path, name: str, todo: str, offline: bool
) -> None:
    """`hf download models/llama8b-target` is a 404 to whoever types what doctor says."""
    hub = Hub(tmp_path, offline)
    (found,) = models.presence(local("target", name, hub), hub, loads_weights=False)
    assert todo in (found.todo or "")
    assert ("hf download" in (found.todo or "")) == (name == "org/name")


@pytest.mark.parametrize(
    ("name", "offline", "level"),
    [
        ("org/name", True, "stop"),
        ("org/name", False, "doubt"),
        ("/no/such/model", False, "stop"),
        ("./no/such/model", False, "stop"),
        ("s3://bucket/model", True, "doubt"),
    ],
)
def test_a_model_that_is_not_here(tmp_path: Path, name: str, offline: bool, level: str) -> None:
    """A download in the first launch runs into timeouts.launch; offline there is none."""
    hub = Hub(tmp_path, offline)
    found = local("draft", name, hub)
    assert levels(models.presence(found, hub, loads_weights=True)) == [level]


def test_hub_settings_are_those_of_the_servers_environment() -> None:
    assert Hub.of({"HF_HOME": "/data"}) == Hub(Path("/data/hub"), False)
    assert Hub.of({"HF_HUB_CACHE": "/c", "HF_HOME": "/d", "HF_HUB_OFFLINE": "1"}) == Hub(
        Path("/c"), True
    )
    assert Hub.of({"XDG_CACHE_HOME": "/x", "HF_HUB_OFFLINE": "0"}) == Hub(
        Path("/x/huggingface/hub"), False
    )


@pytest.mark.parametrize(
    "environment",
    [
        {"HF_HOME": ""},
        {"HF_HOME": "~nosuchuser/x"},
        {"HF_HOME": "~/x", "HOME": "/h/"},
        {"HOME": "/h"},
        {"XDG_CACHE_HOME": "", "HOME": "/h"},
        {"XDG_CACHE_HOME": "~/c", "HOME": "/"},
        {"HF_HUB_CACHE": "$DATA/${MORE}/$NONE", "DATA": "/d", "MORE": "m"},
        {"HUGGINGFACE_HUB_CACHE": "~/old", "HOME": "/h"},
        {},
    ],
)
def test_odd_hub_settings_are_read_as_huggingface_hub_reads_them(
    environment: dict[str, str],
) -> None:
    """Else doctor looks in another folder than the server, or ends in a traceback."""
    # The lines of huggingface_hub/constants.py, under that environment.
    lines = """
import os
home = os.path.join(os.path.expanduser("~"), ".cache")
home = os.path.join(os.getenv("XDG_CACHE_HOME", home), "huggingface")
home = os.path.expandvars(os.path.expanduser(os.getenv("HF_HOME", home)))
cache = os.getenv("HUGGINGFACE_HUB_CACHE", os.path.join(home, "hub"))
print(os.path.expandvars(os.path.expanduser(os.getenv("HF_HUB_CACHE", cache))))
"""
    command = [sys.executable, "-I", "-c", lines]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert Hub.of(environment).cache == Path(done.stdout.rstrip("\n"))


def test_an_environment_without_a_home_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers run as users that no password file knows."""
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    assert Hub.of({}).cache == Path("~/.cache/huggingface/hub")


@pytest.mark.parametrize("name", ["a" * 300, "org/" + "a" * 97, "org/a--b", "org/name.git"])
def test_what_the_hub_never_looks_up_is_absent(tmp_path: Path, name: str) -> None:
    """huggingface_hub refuses such names itself, at the first launch."""
    assert local("target", name, Hub(tmp_path, offline=False)).source == "absent"


def test_weights_and_chat_template(tmp_path: Path) -> None:
    """Without a template acceptance is measured on prompts that nobody sends."""
    folder = model_folder(tmp_path / "model", hidden_size=64)
    hub = Hub(tmp_path, offline=False)
    bare = local("target", str(folder), hub)
    assert levels(models.presence(bare, hub, loads_weights=True)) == ["ok", "doubt"]
    assert levels(models.presence(bare, hub, loads_weights=False)) == ["ok"]
    assert models.template(bare).level == "doubt"
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    (folder / "model.safetensors").write_bytes(b"")
    whole = local("target", str(folder), hub)
    assert levels(models.presence(whole, hub, loads_weights=True)) == ["ok"]
    assert models.template(whole).level == "ok"
    assert models.template(Model("target", "org/name", "not cached")).level == "doubt"


# Target and draft


@pytest.mark.parametrize(
    ("config", "sizes", "plain", "told"),
    [
        (LLAMA, {8}, True, ["ok"]),
        (replace(LLAMA, heads=9, kv_heads=3), {2}, True, ["stop"]),
        (replace(LLAMA, heads=9, kv_heads=3), {2}, False, ["doubt"]),  # CPU, DP attention
        (replace(LLAMA, heads=9, kv_heads=3), {1}, True, ["ok"]),
        (replace(LLAMA, heads=24, kv_heads=6), {4}, True, ["stop"]),
        (replace(LLAMA, heads=9, kv_heads=3), {1, 2}, True, ["doubt"]),  # draft_tp 1 can run
        (replace(LLAMA, architecture="Other", heads=9), {2}, True, ["doubt"]),
        (Config(), {2}, True, []),
    ],
)
def test_heads_over_tp(config: Config, sizes: set[int], plain: bool, told: list[str]) -> None:
    assert levels(models.heads("draft", config, sizes, plain)) == told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (pair(), ["ok", "ok"]),
        (pair(replace(DRAFT, hidden_size=2048)), ["ok", "stop"]),
        (pair(replace(DRAFT, hidden_size=2048, target_hidden_size=4096)), ["ok", "ok"]),
        (pair(replace(DRAFT, hidden_size=2048, architecture="Other")), ["ok", "doubt"]),
        (pair(replace(DRAFT, vocab_size=32000)), ["doubt", "ok"]),
        (pair(replace(LLAMA, vocab_size=32000), algorithm="STANDALONE"), ["stop"]),
        (
            pair(
                replace(LLAMA, vocab_size=32000),
                algorithm="STANDALONE",
                release=parse_version("0.5.8"),
            ),
            ["doubt"],
        ),
        (pair(replace(LLAMA, hidden_size=64), algorithm="STANDALONE"), ["ok"]),
        (ModelPair(LLAMA, None, "EAGLE3", NOW), []),
    ],
)
def test_a_draft_of_another_target_is_told(given: ModelPair, told: list[str]) -> None:
    """It would load for minutes and die, or accept nothing."""
    assert levels(models.sizes(given)) == told


@pytest.mark.parametrize(
    ("layers", "release", "told"),
    [(1, "0.5.8", []), (2, "0.5.11", ["stop"]), (2, "0.5.12", []), (2, "0.5.11.dev1", ["doubt"])],
)
def test_eagle3_drafts_of_several_layers(layers: int, release: str, told: list[str]) -> None:
    given = pair(replace(DRAFT, layers=layers), release=parse_version(release))
    assert levels(models.draft_layers(given)) == told


@pytest.mark.parametrize(
    ("draft", "layers", "told"),
    [
        (DRAFT, 32, ["ok"]),
        (DRAFT, 6, ["doubt"]),
        (replace(DRAFT, aux_layers=(1, 15, 28)), 32, ["ok"]),
        (replace(DRAFT, aux_layers=(1, 29, 57)), 32, ["stop"]),
        (replace(DRAFT, aux_layers=(1, 57)), 32, ["doubt"]),
        (replace(DRAFT, aux_layers=(1, 15, 31)), 32, ["doubt"]),
        (replace(DRAFT, uses_aux_layers=False, aux_layers=(99,)), 32, ["ok"]),
    ],
)
def test_aux_layers_of_an_eagle3_draft(draft: Config, layers: int, told: list[str]) -> None:
    """Wired to layers that are not there, it dies after loading or accepts nothing."""
    given = pair(draft, replace(LLAMA, layers=layers))
    assert levels(models.aux_layers(given)) == told


# What is uncertain from here

SERVED = """
name: served
engine: {kind: sglang, python: PYTHON}
model: {target: TARGET, draft: DRAFT, algorithm: EAGLE3, tp: 2}
space: {num_steps: [1, 2], draft_tp: [target, 1]}
"""


def launches(folder: Path, more: str = "", **inherited: str) -> Launches:
    path = folder / "served.yaml"
    path.write_text(SERVED + more)
    return Launches(load_sweep(path).sweep, inherited)


@pytest.mark.parametrize(
    "more",
    [
        "server: {flags: {json-model-override-args: '{}'}}",
        "server: {env: {SGLANG_USE_MODELSCOPE: 1}}",
        "baseline: {env: {HF_HOME: /elsewhere}}",
        "baseline: {flags: {load-format: dummy}}",
    ],
)
def test_what_may_change_the_models_makes_their_stops_doubts(tmp_path: Path, more: str) -> None:
    """A stop that a sweep would have survived costs the user the sweep."""
    assert launches(tmp_path).unsure_of_models is None
    why = launches(tmp_path, more).unsure_of_models
    stop = [Finding("stop", "target", "gone")]
    assert why is not None
    assert (exit_code(stop), exit_code(softened(stop, why))) == (1, 0)
    assert softened(stop, None) == stop


def test_gpus_are_not_counted_where_servers_take_none_or_others(tmp_path: Path) -> None:
    assert launches(tmp_path).takes_gpus
    assert not launches(tmp_path, "server: {flags: {device: cpu}}").takes_gpus
    assert not launches(tmp_path, SGLANG_USE_CPU_ENGINE="1").takes_gpus
    assert launches(tmp_path).unsure_of_gpus is None
    assert launches(tmp_path, "server: {flags: {nnodes: 2}}").unsure_of_gpus
    assert launches(tmp_path, "baseline: {env: {CUDA_VISIBLE_DEVICES: '0'}}").unsure_of_gpus


def test_the_servers_environment_is_the_files_over_the_shells(tmp_path: Path) -> None:
    more = "server: {env: {HF_HOME: /models, HF_HUB_OFFLINE: unset}}"
    made = launches(tmp_path, more, HF_HOME="/shell", HF_HUB_OFFLINE="1", OTHER="x")
    assert made.environment == {"HF_HOME": "/models", "OTHER": "x"}
    assert made.draft_sizes == {1, 2}
    assert made.moves_draft


def test_a_storage_is_opened_but_not_made(tmp_path: Path) -> None:
    """Looking must not leave a file."""
    file = tmp_path / "study.db"
    assert machine.storage(None).level == "ok"
    assert machine.storage(f"sqlite:///{file}").level == "ok"
    assert not file.exists()
    file.write_text("this is no database, and long enough to be seen as none " * 20)
    assert machine.storage(f"sqlite:///{file}").level == "stop"
    assert machine.storage(f"sqlite:///{tmp_path}/no/study.db").level == "stop"
    assert machine.storage("nonsense").level == "stop"


# The command


def specbench(*words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tuner", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, **env}
    )


def test_a_simulated_sweep_is_ready_anywhere(tmp_path: Path) -> None:
    tiny_sweep(tmp_path)
    done = specbench("doctor", tmp_path / "tiny.yaml", "--out", tmp_path / "out", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout
    assert {"level", "what", "message", "todo"} == set(found[0])
    assert [each["message"] for each in found if each["what"] == "simulated"] == [
        "interpreter, GPUs and models are not looked at"
    ]
    assert not (tmp_path / "out").exists()


def test_without_a_sweep_the_machine_is_looked_at() -> None:
    done = specbench("doctor", NCCL_ALGO="Ring")
    assert done.returncode == 0, done.stdout
    assert "doubt  variables: " in done.stdout
    assert "NCCL_ALGO=Ring" in done.stdout


def test_what_the_sweep_refuses_is_a_stop_in_its_own_words(tmp_path: Path) -> None:
    """Doctor and sweep must not contradict each other."""
    path = tmp_path / "served.yaml"
    path.write_text(SERVED.replace("PYTHON", "/no/such/python"))
    done = specbench("doctor", path, "--json")
    refused = specbench("sweep", path, "--out", tmp_path / "out")
    (stop,) = [each for each in json.loads(done.stdout) if each["what"] == "sweep"]
    assert (done.returncode, refused.returncode, stop["level"]) == (1, 2, "stop")
    assert refused.stderr.strip() == f"specbench: {stop['message']}"
    path.write_text("name: served\nnonsense: 1\n")
    assert specbench("doctor", path).returncode == 2


def test_a_pair_that_fits_has_no_stop(tmp_path: Path) -> None:
    """A user with a working set-up must not be sent away."""
    site = tmp_path / "site"
    for name, version in (("sglang", "0.5.17"), ("torch", "2.9.1")):
        (site / f"{name}-{version}.dist-info").mkdir(parents=True)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (site / f"{name}-{version}.dist-info" / "METADATA").write_text(metadata)
    (site / "sglang.py").write_text("raise RuntimeError('imported')")
    sizes = {"hidden_size": 64, "vocab_size": 512, "num_attention_heads": 4}
    for name, architecture, layers in (
        ("TARGET", "LlamaForCausalLM", 8),
        ("DRAFT", "LlamaForCausalLMEagle3", 1),
    ):
        config = {"architectures": [architecture], "num_hidden_layers": layers, **sizes}
        model_folder(tmp_path / name, **config)
    text = SERVED.replace("PYTHON", sys.executable)
    for name in ("TARGET", "DRAFT"):
        text = text.replace(name, str(tmp_path / name))
    path = tmp_path / "served.yaml"
    # On a CPU: this machine's GPUs are not the matter here.
    path.write_text(f"{text}server: {{flags: {{device: cpu}}, env: {{PYTHONPATH: {site}}}}}\n")
    done = specbench("doctor", path, "--json", "--out", tmp_path / "out")
    found = {each["what"]: each["level"] for each in json.loads(done.stdout)}
    assert done.returncode == 0, done.stdout
    for what in ("sweep", "SGLang", "torch", "plug-in", "hidden size", "vocabulary", "aux layers"):
        assert found[what] == "ok", what
