"""Run folders with as many trials as asked for, made of a few that were measured.

A small sweep is run on the simulated engine, every launch and request of it real. Its candidate's
ledger lines are then written once for each point of a large space, in a random order, with that
point's own command and the figures scaled by a factor of the point. The baseline, at the beginning
and at the end, and its samples are as they were measured. Of the candidates the first `SAMPLED`
have samples, copies of those that were measured; the others' are gone, as where somebody has
cleared the folder of a large run to have its disk space back: what is timed is the harness with
the ledger, not gzip with as many files.
"""

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tuner.config.loader import LoadedSweep, load_sweep
from tuner.config.point import Point
from tuner.engines import make_engine
from tuner.execution import executor
from tuner.execution.executor import JobResult, LaunchJob, perform
from tuner.execution.launch import LaunchContext, LaunchResult, phase_config
from tuner.execution.progress import Phase
from tuner.metrics.samples import Request
from tuner.runner.sweep_run import begin_run, run_sweep
from tuner.runs.records import AskedLine, TrialRecord
from tuner.runs.run import Run
from tuner.search.samplers import combination
from tuner.server.base import server_config

SAMPLED = 200
"""Candidates that have raw samples."""
BATCH = 1000
"""Lines that are written at once; a real run writes one and waits for the disk each time."""
AXES: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("num_steps", tuple(range(1, 17))),
    ("env.NCCL_NTHREADS", (64, 128, 256, 512)),
    ("env.NCCL_BUFFSIZE", (1048576, 2097152, 4194304, 8388608, 16777216)),
    ("env.NCCL_PROTO", ("unset", "LL", "Simple")),
    ("env.NCCL_ALGO", ("unset", "Ring", "Tree")),
    ("env.NCCL_MIN_NCHANNELS", (1, 2, 4, 8, 16)),
    ("flags.disable-custom-all-reduce", ("false", "true")),
    ("draft_tp", ("target", 1)),
    ("flags.enable-nccl-nvls", ("false", "true")),
)
"""115,200 points; smaller runs have the first axes alone."""
SWEEP = """
name: scale
engine: {{kind: simulated, preset: quickstart, startup_scale: 0.001}}
model: {{target: some/model, draft: some/draft, algorithm: EAGLE3, tp: 4}}
space:
{space}
workload: {{requests: 4, output_tokens: 32, concurrency: [1, 4]}}
measure: {{warmup_requests: 1, repeats: 2}}
search: {{sampler: {sampler}, stages: [], trials: {trials}, seed: 0}}
baseline: {{launches: 2}}
timeouts: {{launch: 60s, request: 60s}}
"""


def sweep_text(trials: int, sampler: str, points: int | None = None) -> str:
    """A sweep whose space has at least `points` points, by default a tenth more than trials."""
    wanted, shown, count = points or trials * 11 // 10, dict[str, Any](), 1
    for name, values in AXES:
        if count >= wanted:
            break
        shown[name], count = values, count * len(values)
    lines = []
    for kind in ("", "env", "flags"):
        of_kind = {
            n: v for n, v in shown.items() if n.partition(".")[0] == kind or not (kind or "." in n)
        }
        if kind and of_kind:
            lines.append(f"  {kind}:")
        for name, values in of_kind.items():
            indent, key = ("    ", name.partition(".")[2]) if kind else ("  ", name)
            lines.append(f"{indent}{key}: [{', '.join(map(str, values))}]")
    return SWEEP.format(space="\n".join(lines), sampler=sampler, trials=trials)


class Quiet:
    """A listener that says nothing."""

    def phase(self, phase: Any) -> None: ...

    def recorded(self, record: Any, standing: Any) -> None: ...

    def step(self, message: str) -> None: ...

    def note(self, message: str) -> None: ...


def measured_run(folder: Path) -> Run:
    """A run of two candidates and two launches of the baseline, really measured."""
    file = folder / "small.yaml"
    file.write_text(sweep_text(2, "random", points=16), encoding="utf-8")
    loaded = load_sweep(file)
    run = begin_run(folder / "small", loaded, None)
    run_sweep(loaded, run, make_engine(loaded.sweep), Quiet())
    return run


def large_run(
    folder: Path, trials: int, sampler: str = "tpe", seed: int = 0, small: Run | None = None
) -> Path:
    """A run folder in `folder` with so many candidates in its ledger, and room for more.

    `small`: what `measured_run` gave, where it is there already.
    """
    file = folder / "scale.yaml"
    file.write_text(sweep_text(trials, sampler), encoding="utf-8")
    loaded = load_sweep(file)
    with tempfile.TemporaryDirectory() as scratch:
        small = small or measured_run(Path(scratch))
        run = begin_run(folder / "runs", loaded, None)
        run.extend_to(len(loaded.space.points))
        with run.locked():
            records = _records(small, run, loaded, trials, seed)
            while batch := list(islice(records, BATCH)):
                run.append(*batch)
    return run.path


def _records(
    small: Run, run: Run, loaded: LoadedSweep, trials: int, seed: int
) -> Iterator[TrialRecord]:
    records = small.records()
    first, last = (each for each in records if each.role == "baseline")
    like = next(each for each in records if each.role == "candidate" and each.outcome == "ok")
    yield _with_samples(small, run, first, first, 0)
    points = list(loaded.space.points)
    draw = random.Random(seed)
    draw.shuffle(points)
    for number, point in enumerate(points[:trials], start=1):
        record = _candidate(like, loaded, point, number, draw.lognormvariate(0.0, 0.1))
        if number <= SAMPLED:
            record = _with_samples(small, run, like, record, number)
        yield record
    again = last.model_copy(update={"trial": trials + 1, "launch_id": trials + 1})
    yield _with_samples(small, run, last, again, trials + 1)


def _with_samples(
    small: Run, run: Run, source: TrialRecord, record: TrialRecord, trial: int
) -> TrialRecord:
    assert source.samples is not None
    to = run.samples_file(trial)
    shutil.copyfile(small.path / source.samples, to)
    update: dict[str, Any] = {"samples": run.relative(to)}
    if record.held_out is not None:
        held = run.held_out_file(trial)
        shutil.copyfile(small.path / record.held_out.samples, held)
        update["held_out"] = record.held_out.model_copy(update={"samples": run.relative(held)})
    return record.model_copy(update=update)


def _candidate(
    like: TrialRecord, loaded: LoadedSweep, point: Point, number: int, factor: float
) -> TrialRecord:
    """The measured candidate as another point, its figures `factor` times what they were."""
    engine = make_engine(loaded.sweep)
    phase = Phase(number, "candidate", point, "launching")
    values, sizes = combination(loaded.space, point), loaded.space.dimensions
    drawn = [[sizes[name].index(value) for name, value in values.items()]]
    metrics = {
        level: {n: v * factor if isinstance(v, float) else v for n, v in figures.items()}
        for level, figures in like.metrics.items()
    }
    return like.model_copy(
        update={
            "trial": number,
            "launch_id": number,
            "point": point.to_json(),
            "command": engine.command(phase_config(loaded.sweep, phase)).to_json(),
            "metrics": metrics,
            "samples": f"samples/{number:04d}.jsonl.gz",
            "asked": AskedLine(number=number - 1, after=number - 1, drawn=drawn),
        }
    )


@contextmanager
def instant_launches(folder: Path) -> Iterator[None]:
    """Launches here are over at once, with what one of the baseline and one of a candidate have
    brought on the simulated engine; all that comes of them is done as ever."""
    found: dict[bool, LaunchResult] = {}

    def kept(rig: LaunchContext, job: LaunchJob, report: Callable[[Phase], None]) -> JobResult:
        performed = perform(rig, job, report)
        found[job.phase.point is None] = performed.attempt
        return performed

    def instant(rig: LaunchContext, job: LaunchJob, _report: Callable[[Phase], None]) -> JobResult:
        before = found[job.phase.point is None]
        (taken,) = before.taken.values()
        attempt = replace(before, launch_id=job.launch_id, taken={job.phase.point: taken})
        rig.run.log_file(job.launch_id).touch()
        return JobResult(attempt)

    with patch.object(executor, "perform", kept):
        measured_run(folder)
    with patch.object(executor, "perform", instant):
        yield


@contextmanager
def a_server() -> Iterator[str]:
    """The URL of a simulated server."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "server.yaml"
        text = sweep_text(1, "random", points=16).replace("requests: 4", "requests: 64")
        file.write_text(text.replace("[1, 4]", "[64]"), encoding="utf-8")
        loaded = load_sweep(file)
        engine = make_engine(loaded.sweep)
        server = engine.launch(server_config(loaded.sweep, None), Path(folder) / "log", 1)
        try:
            yield server.url
        finally:
            server.stop()


def prompts_of(count: int) -> list[Request]:
    """So many different requests."""
    return [Request(f"scale-{n}", "chat", (n, *range(1, 64))) for n in range(count)]
