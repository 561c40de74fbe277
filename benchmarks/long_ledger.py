"""Time and memory of `sweep --resume` and `report` for a run of 10,000 trials.

    python -m benchmarks.long_ledger [--trials N] [--json]

A small sweep runs on the simulated engine. The ledger line of its candidate is then written once
for each of N points of a large space, with the metrics scaled. Only the baseline has raw samples.
`resume` ends when the next trial would start. Each command runs in a process of its own; seconds
are CPU time, and memory is the largest resident set.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from tuner.config.loader import load_sweep
from tuner.config.point import Point
from tuner.engines import make_engine
from tuner.runner.sweep_run import begin_run, run_sweep
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run

TRIALS = 10_000
SWEEP = """
name: long
engine: {{kind: simulated, preset: quickstart, startup_scale: 0.001}}
model: {{target: some/model, draft: some/draft, algorithm: EAGLE3, tp: 4}}
space:
  num_steps: {steps}
  env:
    NCCL_NTHREADS: [64, 128, 256, 512]
    NCCL_BUFFSIZE: [1048576, 2097152, 4194304, 8388608, 16777216]
    NCCL_PROTO: [unset, LL, Simple]
    NCCL_ALGO: [unset, Ring, Tree]
    NCCL_MIN_NCHANNELS: [1, 2, 4, 8, 16]
workload: {{requests: 4, output_tokens: 32, concurrency: [1, 4]}}
measure: {{warmup_requests: 1, repeats: 2}}
search: {{sampler: tpe, stages: [], trials: {trials}, seed: 0}}
baseline: {{launches: 2}}
timeouts: {{launch: 60s, request: 60s}}
"""
"""With 16 steps the space has 14,400 points."""


class Quiet:
    """A listener that prints nothing."""

    def phase(self, phase: Any) -> None: ...

    def recorded(self, record: Any, standing: Any) -> None: ...

    def step(self, message: str) -> None: ...

    def note(self, message: str) -> None: ...


def measured_run(folder: Path) -> Run:
    """Measure one candidate between two launches of the baseline."""
    file = folder / "small.yaml"
    file.write_text(SWEEP.format(steps="[3]", trials=1), encoding="utf-8")
    config = load_sweep(file)
    run = begin_run(folder / "small", config, None)
    run_sweep(config, run, make_engine(config.sweep), Quiet())
    return run


def long_run(folder: Path, trials: int) -> Run:
    """Write a run of so many candidates below `folder`, with points left to measure."""
    file = folder / "long.yaml"
    file.write_text(SWEEP.format(steps="{low: 1, high: 16}", trials=trials), encoding="utf-8")
    config = load_sweep(file)
    run = begin_run(folder / "runs", config, None)
    run.extend_to(len(config.space.points))
    with run.locked():
        for records in _batches(measured_run(folder), run, config.space.points, trials):
            run.append(*records)
    return run


def _batches(
    small: Run, run: Run, points: tuple[Point, ...], trials: int
) -> Iterator[list[TrialRecord]]:
    first, candidate, last = (r for r in small.records() if r.role in ("baseline", "candidate"))
    draw = random.Random(0)
    chosen = draw.sample(points, trials)
    yield [_with_samples(small, run, first, 0)]
    numbered = enumerate(chosen, start=1)
    while batch := list(islice(numbered, 1000)):
        yield [_as_point(candidate, point, n, draw.lognormvariate(0, 0.1)) for n, point in batch]
    yield [_with_samples(small, run, last, trials + 1)]


def _as_point(like: TrialRecord, point: Point, trial: int, factor: float) -> TrialRecord:
    metrics = {
        level: {n: v * factor if isinstance(v, float) else v for n, v in figures.items()}
        for level, figures in like.metrics.items()
    }
    changes = {"trial": trial, "launch_id": trial, "point": point.to_json(), "metrics": metrics}
    return like.model_copy(update={**changes, "samples": f"samples/{trial:04d}.jsonl.gz"})


def _with_samples(small: Run, run: Run, source: TrialRecord, trial: int) -> TrialRecord:
    assert source.samples is not None and source.held_out is None
    shutil.copyfile(small.path / source.samples, run.samples_file(trial))
    changes = {"trial": trial, "launch_id": trial, "samples": run.relative(run.samples_file(trial))}
    return source.model_copy(update=changes)


def measure(command: str, run: Path) -> dict[str, Any]:
    """Run a command of specbench in a child; return its CPU seconds and its peak memory."""
    began = time.monotonic()
    words = [sys.executable, "-m", "benchmarks.long_ledger", "--child", command, str(run)]
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{command} ended with exit code {child.returncode}")
    return {
        "wall_s": round(time.monotonic() - began, 2),
        "cpu_s": round(used.ru_utime + used.ru_stime, 2),
        "peak_mb": round(used.ru_maxrss * 1024 / 1e6),
    }


def _child(command: str, run: str) -> None:
    from tuner.cli import main
    from tuner.runner import candidates

    def end(*_: Any) -> None:
        os._exit(0)

    candidates._Candidates._begin = end  # type: ignore[method-assign]
    main({"resume": ["sweep", "--resume", run], "report": ["report", run]}[command])


def main() -> None:
    """Print the time and memory of each command."""
    if sys.argv[1:2] == ["--child"]:
        _child(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = long_run(Path(folder), options.trials)
        found = {command: measure(command, run.path) for command in ("resume", "report")}
    if options.json:
        print(json.dumps({"trials": options.trials, **found}, indent=2))
        return
    for command, used in found.items():
        print(f"{command}: {used['cpu_s']} s of CPU, {used['wall_s']} s, {used['peak_mb']} MB")


if __name__ == "__main__":
    main()
