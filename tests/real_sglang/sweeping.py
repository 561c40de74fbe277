"""Sweeps by the command line on real servers, and what holds for the figures of every one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.real_sglang import build
from tests.real_sglang.serving import FLAGS, named
from tuner.metrics.catalogue import summarise
from tuner.metrics.samples_file import read_samples
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run

TOKENS, REQUESTS, REPEATS = 32, 3, 2
SPECBENCH = (sys.executable, "-m", "tuner")


def sweep_file(folder: Path, release: str, algorithm: str, space: dict[str, object]) -> Path:
    sweep = {
        "name": "on_a_cpu",
        "engine": {"kind": "sglang", "python": str(build.interpreter(release))},
        "model": named(algorithm, build.models()),
        "server": {"flags": FLAGS},
        "baseline": {"launches": 1},  # a launch takes half a minute
        "space": space,
        "workload": {"requests": REQUESTS, "output_tokens": TOKENS, "concurrency": [1, 2]},
        "measure": {"warmup_requests": 1, "repeats": REPEATS},
        "search": {"sampler": "grid"},
        "timeouts": {"launch": "6m", "request": "1m"},
    }
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump(sweep))
    return path


def swept(path: Path) -> tuple[dict[str, object], Run]:
    """The sweep's JSON and its run folder. Fails where the exit code is not 0."""
    out = path.parent / "runs"
    ended = subprocess.run(
        [*SPECBENCH, "sweep", str(path), "--out", str(out), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    result = json.loads(ended.stdout)
    return result, Run.open(Path(result["run"]))


def check_figures(run: Run, record: TrialRecord, release: str) -> None:
    assert (record.outcome, record.engine, record.engine_version) == ("ok", "sglang", release)
    assert record.launch_s is not None
    assert record.launch_s > 1
    assert record.samples is not None
    windows = read_samples(run.path / record.samples)
    for level in (1, 2):
        figures = record.metrics[str(level)]
        assert figures["requests"] == REQUESTS * REPEATS
        assert figures["failed_requests"] == 0
        assert figures["completion_tokens"] == REQUESTS * REPEATS * TOKENS
        assert 0 < figures["output_tok_s_low"] <= figures["output_tok_s"]
        assert figures["output_tok_s"] <= figures["output_tok_s_high"]
        wall = sum(window.wall_s for window in windows[level])
        assert figures["output_tok_s"] == pytest.approx(figures["completion_tokens"] / wall)
        assert 0 < figures["ttft_ms_p50"] <= figures["e2e_ms_p50"]
        assert figures["decode_tok_s"] > 0
        point = record.at
        again = summarise(windows[level], point and point.num_steps, point and point.eagle_topk)
        assert {name: figures[name] for name in again} == json.loads(json.dumps(again))
