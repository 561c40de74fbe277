"""Makers of test data: points, samples, windows, and run folders with known numbers."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tuner.config.loader import LoadedSweep, load_sweep
from tuner.config.point import Point
from tuner.loadgen.client import arrivals
from tuner.metrics.catalogue import summarise
from tuner.metrics.samples import GpuTrace, RequestSample, SpecCounts, Window
from tuner.metrics.samples_file import write_samples
from tuner.metrics.statistics import speedup
from tuner.runs.records import HeldOut, TrialRecord
from tuner.runs.run import Run
from tuner.runs.settings import RunSettings


def make_point(steps: int, **parts: Any) -> Point:
    """Return a chain: a point with topk 1."""
    point = {"eagle_topk": 1, "num_draft_tokens": steps + 1, "draft_tp": "target", **parts}
    return Point(num_steps=steps, **point)


def make_point_json(steps: int, **parts: Any) -> dict[str, Any]:
    """Return a chain as a ledger line has it. Values that `Point` would refuse are kept."""
    point = {"num_steps": steps, "eagle_topk": 1, "num_draft_tokens": steps + 1}
    return {**point, "draft_tp": "target", "env": {}, "flags": {}, **parts}


def make_speedup(value: float, half: float = 0.0) -> dict[str, Any]:
    """Return the figures of a speed-up whose 95 % interval is `half` of the value either way."""
    return {
        "speedup": value,
        "speedup_low": value * (1 - half),
        "speedup_high": value * (1 + half),
    }


def make_record(trial: int, **changes: Any) -> TrialRecord:
    """Return a record that was measured without failure. The default point is a chain."""
    fields = {
        "trial": trial,
        "role": "candidate",
        "point": None if changes.get("role") == "baseline" else make_point_json(trial + 1),
        "outcome": "ok",
        "failure": None,
        "engine": "simulated",
        "engine_version": "0.5.17",
        "launch_id": trial,
        "launch_s": 1.0,
        "started": "2026-11-29T17:37:02Z",
        "metrics": {"1": {"output_tok_s": 94.1 + trial / 3}},
        "samples": None,
    }
    return TrialRecord(**{**fields, **changes})


def make_settings(trials: int = 5) -> RunSettings:
    """Return settings of a run with fixed prompts."""
    return RunSettings(trials=trials, prompts="abc")


def load_sweep_text(folder: Path, text: str, **words: object) -> LoadedSweep:
    """Replace each of `words` in a sweep file's text, write the file to `folder`, and load it."""
    for word, value in words.items():
        assert word in text, f"the sweep file has no {word}"
        text = text.replace(word, str(value))
    path = folder / "sweep.yaml"
    path.write_text(text)
    return load_sweep(path)


def make_sample(
    times: Sequence[float] = (0.5, 1.0, 1.5),
    tokens: Sequence[int] = (1, 2, 2),
    spec: SpecCounts | None = None,
    **changes: Any,
) -> RequestSample:
    """Return a complete request that is sent at 0 and ends with its last chunk."""
    facts: dict[str, Any] = {
        "prompt_id": "p",
        "kind": "chat",
        "sent": 0.0,
        "chunk_times": tuple(times),
        "chunk_tokens": tuple(tokens),
        "ended": times[-1] if times else 0.0,
        "finish_reason": "length",
        "error": None,
        "timed_out": False,
        "prompt_tokens": 10,
        "engine_tokens": sum(tokens),
        "requested_tokens": sum(tokens),
        "spec": spec,
    }
    return RequestSample(**{**facts, **changes})


def make_window(*samples: RequestSample, wall: float = 2.0, cpu: float = 0.1) -> Window:
    """Return a window of one stream."""
    return Window(1, wall, cpu, samples)


def make_queue_window(
    rate: float, seconds: Callable[[int], float], servers: int, count: int = 60, seed: int = 0
) -> Window:
    """Return a window of a queue: request n takes `seconds(n)` on the next free server."""
    free, samples = [0.0] * servers, []
    for number, due in enumerate(arrivals(count, rate, seed)):
        begin = max(due, min(free))
        end = begin + seconds(number)
        free[free.index(min(free))] = end
        times = (begin + (end - begin) / 2, end)
        samples.append(
            make_sample(times, (1, 99), prompt_id=f"p{number}", sent=due, due=due, ended=end)
        )
    return Window(256, samples[-1].ended, 0.1, tuple(samples))


def make_gpu_trace(
    mhz: int = 1980, reasons: int = 0, watts: float = 500.0, gpu: str = "0", idle_mhz: int = 345
) -> GpuTrace:
    """Return readings over 10 s of even load, idle at both ends. The energy is 10 s of `watts`."""
    return GpuTrace(
        gpu=gpu,
        at=(0.0, 0.25, 5.0, 10.0),
        sm_mhz=(idle_mhz, mhz, mhz, idle_mhz),
        temperature_c=(40, 60, 60, 50),
        power_w=(80.0, watts, watts, 80.0),
        reasons=(1, reasons, reasons, 1),
        energy_j=(1000.0, 1000.0 + watts / 4, 1000.0 + 5 * watts, 1000.0 + 10 * watts),
    )


class World:
    """Speeds that vary by prompt, by window, and from request to request (log-normal)."""

    def __init__(self, seed: int, prompts: int, by_window: float, noise: float) -> None:
        self._draw = np.random.default_rng(seed)
        self._by_window, self._noise = by_window, noise
        self._prompts = 100 * np.exp(self._draw.normal(0, 0.2, prompts))

    def windows(self, count: int, faster: float = 1.0, by_prompt: float = 0.0) -> list[Window]:
        """Return windows of a server `faster` times the base, with a factor drawn per prompt."""
        factors = faster * np.exp(self._draw.normal(0, by_prompt, len(self._prompts)))
        return [self._window(self._prompts * factors) for _ in range(count)]

    def _window(self, speeds: np.ndarray[Any, Any]) -> Window:
        drift = np.exp(self._draw.normal(0, self._by_window))
        noise = np.exp(self._draw.normal(0, self._noise, len(speeds)))
        now, samples = 0.0, []
        for index, speed in enumerate(speeds * drift * noise):
            end = now + 0.01 + 127 / float(speed)
            samples.append(
                make_sample((now + 0.01, end), (1, 127), sent=now, prompt_id=f"p{index}", ended=end)
            )
            now = end
        return Window(1, now, 0.1, tuple(samples))


SWEEP = """\
name: trial
engine: {kind: sglang, python: /opt/sglang/bin/python}
model: {target: example/target, draft: example/draft, algorithm: EAGLE3, tp: 4}
baseline: {reference_tok_s: 88.8}
space:
  num_steps: {low: 1, high: 6}
  draft_tp: [target, 1]
  env:
    NCCL_PROTO: [unset, LL]
workload: {requests: 8, output_tokens: 100, concurrency: [1]}
search: {trials: 6}
"""
SIMULATED = SWEEP.replace(
    "{kind: sglang, python: /opt/sglang/bin/python}", "{kind: simulated, preset: quickstart}"
)
CRLF_SWEEP = """\
# é: kept as it is\r
name: trial
engine: {kind: simulated}
model: {target: a/b, draft: c/d, algorithm: EAGLE3}
space: {num_steps: {low: 1, high: 6}, env: {NCCL_PROTO: [unset, LL]}}
workload: {concurrency: [1, 8]}
"""
"""A sweep file with a character that is not ASCII and a Windows line end."""
HOSTILE = (
    "<script>alert(1)</script> \"'><img src=x onerror=alert(1)> </style></title><svg onload=x> "
    "[x](javascript:alert(1)) ![x](http://203.0.113.1/x.png) <http://203.0.113.1> | `a` ``b ```\n"
    "# No heading\n| --- |\n&lt;b&gt; <!-- ]]>"
)
TOKENS = 101
"""Tokens of each request: one in the first chunk, 100 after it."""
TTFT = 0.05


@dataclass(frozen=True)
class Trial:
    """A trial to write: its speed or its failure. `point` None is the baseline."""

    point: Point | None
    tok_s: float | None = None
    """Decode speed of each stream, on average exactly this."""
    failure: str | None = None
    message: str | None = None
    outcome: str = "ok"
    checks: list[dict[str, str]] = field(default_factory=list)
    metrics: dict[str, dict[str, Any]] | None = None
    """Default: computed from the samples."""
    launch_s: float | None = 60.0
    accepted: float = 0.5
    version: str | None = "0.5.17"
    engine: str | None = None
    """Default: the sweep's."""
    command: dict[str, Any] | None = None
    watts: float | None = None
    """Power of its one GPU over 10 s of each window. None: no readings."""
    unseen_tok_s: float | None = None
    """Speed on held-out prompts. None: not measured."""
    role: str | None = None
    """Default: baseline for no point, else candidate."""


def make_run(
    root: Path,
    trials: Sequence[Trial],
    *,
    sweep: str = SWEEP,
    settings: dict[str, Any] | None = None,
    noise: float = 0.002,
    levels: Sequence[int] = (1,),
    keep_samples: bool = True,
) -> Run:
    """Write a finished run to `root`/<run id>, through the real writers."""
    given = {"trials": 6, "prompts": "0123456789abcdef", **(settings or {})}
    run = Run.create(root, sweep, RunSettings(**given))
    below: dict[int, list[Window]] = {}
    unseen: dict[int, list[Window]] = {}
    with run.locked():
        for number, trial in enumerate(trials):
            windows = {}
            if trial.tok_s is not None:
                gpus = None if trial.watts is None else (make_gpu_trace(watts=trial.watts),)
                windows = {
                    level: [
                        replace(window, gpus=gpus)
                        for window in make_windows(trial, level, noise, number)
                    ]
                    for level in levels
                }
            if _role(trial) == "baseline":
                below = below or windows
            metrics = (
                trial.metrics if trial.metrics is not None else _metrics(trial, windows, below)
            )
            samples = None
            if windows and keep_samples:
                samples = run.samples_file(number)
                write_samples(samples, windows)
            run.append(
                TrialRecord(
                    trial=number,
                    role=_role(trial),
                    point=trial.point.to_json() if trial.point else None,
                    outcome=trial.outcome,  # type: ignore[arg-type]
                    failure=trial.failure,
                    message=trial.message,
                    engine=trial.engine or run.sweep().engine.kind,
                    engine_version=trial.version,
                    launch_id=number,
                    launch_s=trial.launch_s,
                    command=trial.command,
                    started=f"2026-11-29T17:{number:02d}:00Z",
                    measured_s=30.0 if windows else None,
                    metrics=metrics,
                    checks=trial.checks,
                    samples=run.relative(samples) if samples else None,
                    held_out=_held_out(run, trial, number, levels, noise, unseen),
                )
            )
    return run


def _held_out(
    run: Run,
    trial: Trial,
    number: int,
    levels: Sequence[int],
    noise: float,
    below: dict[int, list[Window]],
) -> HeldOut | None:
    """Measure the held-out prompts of a trial. The baseline's windows are added to `below`."""
    if trial.unseen_tok_s is None:
        return None
    other = replace(trial, tok_s=trial.unseen_tok_s)
    windows = {level: make_windows(other, level, noise, number + 50) for level in levels}
    if _role(trial) == "baseline":
        below.update(windows)
    path = run.held_out_file(number)
    write_samples(path, windows)
    metrics = _metrics(trial, windows, below)
    return HeldOut(prompts=8, metrics=metrics, samples=run.relative(path))


def _role(trial: Trial) -> Any:
    return trial.role or ("baseline" if trial.point is None else "candidate")


def _metrics(
    trial: Trial, windows: dict[int, list[Window]], below: dict[int, list[Window]]
) -> dict[str, dict[str, Any]]:
    steps, topk = (trial.point.num_steps, trial.point.eagle_topk) if trial.point else (None, None)
    metrics = {}
    for level, measured in windows.items():
        figures = summarise(measured, steps, topk)
        if trial.point is not None and below:
            bounds = speedup(below[level], measured, "output_tok_s")
            assert bounds is not None
            figures |= {"speedup": bounds.value}
            figures |= {"speedup_low": bounds.low, "speedup_high": bounds.high}
        metrics[str(level)] = figures
    return metrics


def make_windows(trial: Trial, level: int, noise: float, seed: int) -> list[Window]:
    """Return three windows of eight prompts. The noise cancels out over all of them."""
    assert trial.tok_s is not None
    seconds = (TOKENS - 1) / trial.tok_s
    windows = []
    for row in range(3):
        samples, clock = [], 0.0
        for column in range(8):
            wobble = (column % 2 * 2 - 1) * (1 + (column // 2 + seed) % 3) + (row - 1)
            took = seconds * (1 + noise * wobble)
            samples.append(_sample(trial, column, clock, took))
            clock += TTFT + took
        windows.append(Window(level, clock / level, 0.01, tuple(samples)))
    return windows


def _sample(trial: Trial, column: int, sent: float, took: float) -> RequestSample:
    spec = None
    if trial.point is not None and trial.point.num_steps:
        verifies = 50
        counts = [verifies]
        for _ in range(trial.point.num_steps):
            counts.append(round(counts[-1] * trial.accepted))
        histogram = tuple(a - b for a, b in zip(counts, [*counts[1:], 0], strict=True))
        spec = SpecCounts(verifies, sum(counts[1:]), verifies * trial.point.num_steps, histogram)
    return RequestSample(
        prompt_id=f"p{column}",
        kind=("chat", "code")[column % 2],
        sent=sent,
        chunk_times=(sent + TTFT, sent + TTFT + took),
        chunk_tokens=(1, TOKENS - 1),
        ended=sent + TTFT + took,
        finish_reason="length",
        error=None,
        timed_out=False,
        prompt_tokens=20,
        engine_tokens=TOKENS,
        requested_tokens=TOKENS,
        spec=spec,
    )


def make_hostile_run(root: Path) -> Run:
    """Write a run whose free texts are `HOSTILE`. A name is one line of it."""
    quoted, name = json.dumps(HOSTILE), json.dumps(" ".join(HOSTILE.split("\n")))
    sweep = SIMULATED.replace("example/target", name).replace("example/draft", name)
    sweep = sweep.replace("[unset, LL]", f"[unset, {quoted}]")
    trials = [
        Trial(None, 90.0, version=HOSTILE),
        Trial(make_point(2, env=(("NCCL_PROTO", HOSTILE),)), 99.0),
        Trial(make_point(3, env=(("NCCL_PROTO", HOSTILE),)), 98.9, checks=[hostile_warning()]),
        Trial(make_point(4), outcome="failed", failure="OOM", message=HOSTILE),
    ]
    run = make_run(root, trials, sweep=sweep)
    machine = {"cpu": HOSTILE, "hostname": HOSTILE, "env": {"NCCL_DEBUG_FILE": HOSTILE}}
    run.machine_file.write_text(json.dumps(machine))
    return run


def hostile_warning() -> dict[str, str]:
    """Return a warning with a hostile text."""
    return {"level": "doubt", "check": HOSTILE, "message": HOSTILE}


def make_compared_run(
    root: Path, name: str, baseline: float = 90.0, best: float = 100.0, **given: Any
) -> Run:
    """Write a run `name` whose best candidate is the chain of two steps."""
    trials = [Trial(None, baseline), Trial(make_point(1), best - 9), Trial(make_point(2), best)]
    return make_run(root / name, trials, **given)
