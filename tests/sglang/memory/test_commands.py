"""Plan, doctor and sweep say the same of a server that cannot fit, and say it before a launch."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.sglang.memory.configs import load_memory_sweep
from tuner.cli.commands import specbench
from tuner.core.errors import UserError
from tuner.preflight.doctor import examine_sweep
from tuner.server.gpu import Gpu, Gpus

GIB = 2**30


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch):
    def seen(gib: float) -> None:
        cards = tuple(Gpu(str(i), "GPU", int(gib * GIB), 0) for i in range(2))
        found = Gpus("1", "13.0", cards, ())
        monkeypatch.setattr(
            "tuner.sglang.memory.model_shape.visible_gpus", lambda environment: found
        )
        monkeypatch.setattr("tuner.preflight.servers.visible_gpus", lambda environment: found)

    return seen


@pytest.fixture
def launchable(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were an interpreter with SGLang: the next thing after it is the memory."""
    monkeypatch.setattr("tuner.sglang.engine.SglangEngine.refuse", lambda self, loaded: None)


def test_the_plan_shows_each_distinct_server(tmp_path: Path) -> None:
    sweep = load_memory_sweep(tmp_path, "mem-fraction-static: 0.6")
    words = ["plan", str(sweep.path), "--gpu-memory", "140.4"]
    shown = CliRunner().invoke(specbench, words, catch_exceptions=False).output
    assert "memory, GiB on each GPU of 140.4 (--gpu-memory):" in shown
    assert (
        "no speculation: target 7.5, KV cache 75.4 (1,236,025 tokens), other about 2.3: " in shown
    )
    assert "1 step, 2 tokens, draft TP 1 and 1 more: target 7.5, draft 2.1, " in shown


@pytest.mark.usefixtures("launchable")
def test_the_machines_own_gpus_are_asked(tmp_path: Path, gpus) -> None:
    sweep = load_memory_sweep(tmp_path)
    gpus(9.2)
    output = CliRunner().invoke(specbench, ["plan", str(sweep.path)], catch_exceptions=False).output
    assert "2 dropped: the weights of target and draft take 9.6 GiB, a GPU has 9.2" in output
    assert "(NVML)" in output
    found = [each for each in examine_sweep(sweep, tmp_path) if each.what == "memory"]
    assert [each.level for each in found] == ["doubt", "ok"]
    assert "2 points are left out: the weights of target and draft" in found[0].message


@pytest.mark.usefixtures("launchable")
def test_a_sweep_that_cannot_run_leaves_no_folder(tmp_path: Path, gpus) -> None:
    sweep = load_memory_sweep(tmp_path)
    gpus(6.0)
    words = ["sweep", str(sweep.path), "--out", str(tmp_path / "out")]
    with pytest.raises(UserError, match=r"the target's weights take 7\.5 GiB, a GPU has 6\.0"):
        CliRunner().invoke(specbench, words, catch_exceptions=False)
    assert not (tmp_path / "out").exists()
    stop = next(each for each in examine_sweep(sweep, tmp_path) if each.what == "sweep")
    assert stop.level == "stop"
    assert "the target's weights take 7.5 GiB" in stop.message


@pytest.mark.usefixtures("launchable")
def test_an_estimate_that_leaves_no_room_is_a_doubt_and_no_stop(tmp_path: Path, gpus) -> None:
    sweep = load_memory_sweep(tmp_path, "mem-fraction-static: 0.55")
    gpus(17.5)
    [found] = [each for each in examine_sweep(sweep, tmp_path) if each.what == "memory"]
    assert found.level == "doubt"
    assert "IT MAY NOT START" in found.message
