"""What the winner's settings give without speculation is measured, told apart and acted on."""

import json
import re
from pathlib import Path

import pytest

from tests.factories import SWEEP, Trial, make_point, make_run
from tests.sweeps import Listener, tiny_sweep
from tuner.analysis.summary import summarise_run
from tuner.config.loader import load_sweep
from tuner.config.point import Point
from tuner.engines import make_engine
from tuner.report.best_per_level import adaptive
from tuner.report.report import write_report
from tuner.runner.sweep_run import begin_run, reopen_run, run_sweep
from tuner.server.base import plain_config, server_config

LL = (("NCCL_PROTO", "LL"),)
ALONE = Point(env=LL)
SPLIT = [
    Trial(None, 100.0),
    Trial(make_point(2, env=LL), 145.0),
    Trial(make_point(1), 101.0),
    Trial(ALONE, 112.0, role="plain"),
]


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.report.report.draw_figures", lambda summary, folder: [])


def test_the_report_splits_the_gain(tmp_path: Path) -> None:
    """Otherwise communication's gain is taken for speculation's."""
    run = make_run(tmp_path, SPLIT)
    result = summarise_run(run)
    assert result.best is not None and result.best.at == make_point(2, env=LL)
    assert result.to_json()["settings_alone"]["1"]["value"] == pytest.approx(1.115, abs=0.01)
    report = write_report(summarise_run(run)).read_text()
    assert "Split by a launch of `no speculation, NCCL_PROTO=LL` (trial 3): of 1.4" in report
    assert re.search(r"1\.1\d\d \(.*\) comes from the settings alone and 1\.2\d\d", report)
    assert "was not measured; it is part of the speed-up" not in report
    assert "| **no speculation, NCCL\\_PROTO=LL** |" in report or "NCCL_PROTO=LL**" in report


def test_settings_that_are_faster_without_speculation_are_the_answer(tmp_path: Path) -> None:
    """Otherwise best.sh launches a draft that costs speed."""
    trials = [*SPLIT[:3], Trial(ALONE, 150.0, role="plain")]
    run = make_run(tmp_path, trials, sweep=SWEEP)
    result = summarise_run(run)
    assert result.best is not None and (result.best.role, result.best.at) == ("plain", ALONE)
    shown = json.loads(json.dumps(result.to_json()))
    assert shown["best"] == ALONE.to_json() and shown["best"]["num_steps"] is None
    assert result.verdict.startswith("no speculation, NCCL_PROTO=LL: 1.4")
    report = write_report(summarise_run(run)).read_text()
    assert "**Run `no speculation, NCCL_PROTO=LL`.**" in report
    script = run.best_sh.read_text()
    assert "NCCL_PROTO=LL" in script and "speculative" not in script.split("set -eu")[1]
    again = load_sweep(run.best_yaml)
    assert again.space.points == (make_point(2, env=LL),)
    assert again.sweep.baseline.env == {"NCCL_PROTO": "LL"}
    assert "baseline here has them too" in run.best_yaml.read_text()
    made = adaptive(summarise_run(run))
    assert not isinstance(made, str)
    assert made.longest.point == make_point(1), "the other chain loses to its own settings"


def test_a_plain_launch_that_failed_takes_nothing_away(tmp_path: Path) -> None:
    """Otherwise one crash at the end turns the answer over."""
    failed = Trial(ALONE, failure="CRASH", message="exit status -9", outcome="failed", role="plain")
    result = summarise_run(make_run(tmp_path, [*SPLIT[:3], failed]))
    assert result.best is not None and result.best.role == "candidate"
    assert result.plain is None


def test_the_plain_server_has_the_settings_and_no_speculation(tmp_path: Path) -> None:
    """Otherwise it measures the baseline again, or a server with a draft."""
    sweep = tiny_sweep(tmp_path).sweep
    config = plain_config(sweep, ALONE)
    assert (config.point, dict(config.env)) == (None, {"NCCL_PROTO": "LL"})
    assert server_config(sweep, None).unset == {"NCCL_PROTO"}
    flags = (("disable-custom-all-reduce", True), ("speculative-attention-mode", "decode"))
    assert Point(num_steps=1, flags=flags).settings == Point(flags=flags[:1])
    assert Point(num_steps=1, flags=flags[1:]).settings is None


def test_a_winner_with_settings_is_launched_without_speculation_once(tmp_path: Path) -> None:
    """Also after a resume, and without disturbing it."""
    loaded = tiny_sweep(tmp_path, search="sampler: grid", steps="2")
    run = begin_run(tmp_path / "runs", loaded, None)
    result = run_sweep(loaded, run, make_engine(loaded.sweep), Listener())
    *_, last = run.records()
    assert (last.role, last.at, last.outcome) == ("plain", ALONE, "ok")
    assert last.metrics["1"]["accept_length"] is None and last.metrics["1"]["speedup"] > 0
    assert last.command is not None
    assert "--speculative-algorithm" not in last.command["argv"]
    assert last.command["env"]["NCCL_PROTO"] == "LL"
    assert result.plain == last
    listener = Listener()
    opened = reopen_run(run.path, loaded, None)
    assert run_sweep(loaded, opened, make_engine(loaded.sweep), listener) == result
    assert listener.records == []
    write_report(summarise_run(run))
