"""Small sweeps on the simulated engine, for the tests that launch real processes."""

from dataclasses import replace
from pathlib import Path

from tuner.config.loader import LoadedSweep, load_sweep
from tuner.engines import make_engine
from tuner.execution.trial import TrialRunner
from tuner.runner.sweep_run import begin_run
from tuner.runs.records import TrialRecord
from tuner.server.memory import MemoryGuard
from tuner.simulator.presets import preset_numbers

HURRY = 4.0
HURRIED = (
    "overrides: {"
    + ", ".join(
        f"{name}: {number.value / HURRY:.4g}"
        for name, number in preset_numbers("quickstart").items()
        if name.endswith("_ms")
    )
    + "}"
)
"""For `engine`: the same machine with all its times a quarter. For what is not about speeds."""

TINY = """
name: tiny
engine: {kind: simulated, preset: quickstart, faults: [FAULTS]}
model: {target: some/model, draft: some/draft, algorithm: EAGLE3, tp: 4}
space:
  num_steps: [STEPS]
  env: {NCCL_PROTO: [unset, LL]}
workload: {requests: 3, output_tokens: 24, concurrency: [1]}
measure: {warmup_requests: 1, repeats: 2}
search: {SEARCH}
timeouts: {launch: 30s, request: 3s}
baseline: {launches: BASELINES}
"""


def tiny_sweep(
    folder: Path,
    faults: str = "",
    search: str = "trials: 3",
    steps: str = "1, 2, 3",
    baselines: int = 1,
) -> LoadedSweep:
    """The tiny sweep with these faults, search section and steps, as a file in `folder`.

    Without stages unless `search` names some: they would end a search that has seen enough.
    """
    if "stages" not in search:
        search = f"stages: [], {search}"
    path = folder / "tiny.yaml"
    text = TINY.replace("FAULTS", faults).replace("SEARCH", search).replace("STEPS", steps)
    text = text.replace("BASELINES", str(baselines))
    path.write_text(text)
    return load_sweep(path)


def tiny_runner(folder: Path, faults: str = "", guard: MemoryGuard | None = None) -> TrialRunner:
    """Return the trial runner of a new run of the tiny sweep."""
    loaded = tiny_sweep(folder, faults)
    run = begin_run(folder / "runs", loaded, None)
    runner = TrialRunner.prepare(make_engine(loaded.sweep), loaded, run, lambda phase: None)
    return replace(runner, guard=guard)


class Listener:
    """Collects what a run says."""

    def __init__(self) -> None:
        self.phases: list = []
        self.records: list[TrialRecord] = []
        self.standings: list = []
        self.steps: list[str] = []
        self.notes: list[str] = []

    def phase(self, phase) -> None:
        self.phases.append(phase)

    def recorded(self, record, standing) -> None:
        self.records.append(record)
        self.standings.append(standing)

    def step(self, message) -> None:
        self.steps.append(message)

    def note(self, message) -> None:
        self.notes.append(message)
