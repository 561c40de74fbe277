"""The whole of a sweep: baseline, candidates until enough, and what came of it."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tuner.engine.base import Engine
from tuner.errors import UserError
from tuner.ledger.machine import machine_facts
from tuner.ledger.record import TrialRecord
from tuner.ledger.run import Run, RunSettings
from tuner.measure.samples_file import read_samples
from tuner.result import Result, fastest_candidate, objective_of, summarise_run
from tuner.search.stored import StoredStudy, sqlite_url
from tuner.search.study import Study, Verdict
from tuner.sweep.door import LoadedSweep
from tuner.sweep.model import ObjectiveSpec
from tuner.sweep.workload import content_hash
from tuner.trial import Bench, Phase, Windows


@dataclass(frozen=True)
class Standing:
    """How far the run is, after a trial."""

    done: int
    """Candidates recorded."""
    wanted: int
    """Candidates in all: what was asked for, or the whole space where that is smaller."""
    value: float | None
    """This trial's objective, None where it has none."""
    best: TrialRecord | None
    """The fastest candidate so far, also where the baseline is faster."""
    best_value: float | None


class Progress(Protocol):
    """Who listens to a run; a terminal, a log, a test."""

    def phase(self, phase: Phase) -> None:
        """A trial does something else now."""

    def recorded(self, record: TrialRecord, standing: Standing) -> None:
        """A trial ended and is in the ledger."""

    def note(self, message: str) -> None:
        """Something that the user should know; one sentence."""


def begin_run(root: Path, loaded: LoadedSweep, engine: str | None) -> Run:
    """A new run folder in `root`. `engine` is what `--engine` said, None without it."""
    builtin = loaded.sweep.workload.prompts.startswith("builtin:")
    settings = RunSettings(
        engine=engine,
        trials=loaded.sweep.search.trials,
        prompts=content_hash(loaded.prompts),
        beside=None if builtin else str(loaded.path.resolve().parent),
    )
    return Run.create(root, loaded.text, settings)


def reopen_run(path: Path, loaded: LoadedSweep, engine: str | None) -> Run:
    """An earlier run, to go on with. Raises UserError where it is another question now.

    `Run.extend_to` wants more candidates of it.
    """
    run = Run.open(path)
    if run.sweep_file.read_bytes() != loaded.text.encode("utf-8"):
        message = f"the sweep file has changed since this run began, use {run.sweep_file} or begin"
        raise UserError(f"{message} a new run", loaded.path)
    if run.settings.engine != engine:
        was = f"--engine {run.settings.engine}" if run.settings.engine else "no --engine"
        raise UserError(f"the run was begun with {was}, resume it with the same", path)
    if run.settings.prompts != content_hash(loaded.prompts):
        message = "the prompts have changed since this run began, restore them or begin a new run"
        raise UserError(message, path)
    then, now = run.machine().get("gpus"), machine_facts()["gpus"]
    if loaded.sweep.engine.kind == "sglang" and then != now:
        message = f"this machine has other GPUs than the run began on ({then}), begin a new run"
        raise UserError(message, path)
    return run


def run_sweep(loaded: LoadedSweep, run: Run, engine: Engine, progress: Progress) -> Result:
    """Measure the baseline, then candidates; what the ledger has already is not repeated.

    Ends when the wanted number of candidates is recorded, the space is exhausted, the time budget
    (of this call) is spent, or `search.max_failures` candidates in a row failed. Raises
    EngineFailure where the baseline fails, UserError where the run is locked or its files are
    broken. KeyboardInterrupt passes through and leaves a run that can be resumed.
    """
    budget = _Budget(loaded.sweep.search.time_budget)
    with run.locked() as note:
        if note is not None:
            progress.note(note)
        bench = Bench.prepare(engine, loaded, run, progress.phase)
        if loaded.sweep.engine.kind == "endpoint":
            _measure_endpoint(bench, progress)
        else:
            wanted = _wanted(loaded, run)
            baseline = _baseline(bench, wanted, progress)
            _search(_Search(loaded, bench, baseline, wanted, budget, progress))
    return summarise_run(run)


def _measure_endpoint(bench: Bench, progress: Progress) -> None:
    """The server as it is, once; nothing to compare it with."""
    if any(record.outcome == "ok" for record in bench.run.ledger().records):
        progress.note("the server has been measured in this run, begin a new one to repeat that")
        return
    measured = bench.measure("candidate", None, None)
    progress.recorded(measured.record, Standing(1, 1, None, measured.record, None))
    if measured.failure is not None:
        raise measured.failure


class _Budget:
    """The time in which candidates may be begun, from now on; None: any."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    def is_spent(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end


def _wanted(loaded: LoadedSweep, run: Run) -> int:
    """Candidates in all."""
    points = len(loaded.space.points)
    if loaded.sweep.search.sampler == "grid":
        return points
    return min(points, run.settings.wanted)


def _baseline(bench: Bench, wanted: int, progress: Progress) -> Windows:
    """The windows of the baseline, measured unless the ledger has it."""
    known = bench.run.ledger().baseline
    if known is not None:
        assert known.samples is not None
        return read_samples(bench.run.path / known.samples)
    measured = bench.measure("baseline", None, None)
    progress.recorded(measured.record, _standing(bench, wanted, measured.record))
    if measured.failure is not None:
        raise measured.failure
    return measured.windows


@dataclass(frozen=True)
class _Search:
    """What the search over candidates needs."""

    loaded: LoadedSweep
    bench: Bench
    baseline: Windows
    wanted: int
    budget: _Budget
    progress: Progress


def _search(search: _Search) -> None:
    """Candidates, one launch each, until enough."""
    bench, progress, spec = search.bench, search.progress, search.loaded.sweep.search
    study = _study(search.loaded, bench.run, progress)
    failures_in_a_row = 0
    while len(bench.run.ledger().candidates) < search.wanted:
        if search.budget.is_spent():
            progress.note("the time budget is spent, no new candidate is begun")
            break
        proposal = study.propose()
        if proposal is None:
            break
        record = bench.measure("candidate", proposal.point, search.baseline).record
        study.tell(proposal, verdict_of(record, spec.objective))
        progress.recorded(record, _standing(bench, search.wanted, record))
        failures_in_a_row = failures_in_a_row + 1 if record.outcome == "failed" else 0
        if failures_in_a_row >= spec.max_failures:
            progress.note(f"{failures_in_a_row} trials in a row failed, the run stops")
            break
    if study.storage_lost is not None:
        progress.note(
            f"the dashboard's study is not complete ({study.storage_lost}), the ledger is; "
            "a resumed run writes the study anew"
        )


def _study(loaded: LoadedSweep, run: Run, progress: Progress) -> Study:
    """The study where the ledger left it. The stored copy is made anew: it is derived."""
    spec, candidates = loaded.sweep.search, run.ledger().candidates
    url = spec.storage or sqlite_url(run.study_file)
    stored = StoredStudy(url, run.id, run.settings.identity)
    study = Study(loaded.space, spec, run.settings.trials, stored)
    measured = [
        (point, verdict_of(record, spec.objective))
        for record in candidates
        if (point := record.at) is not None
    ]
    if differing := study.replay(measured):
        progress.note(
            f"{differing} of {len(measured)} earlier points are not what this version of Optuna "
            "proposes; they count, but the run is not what an undisturbed one would have been"
        )
    return study


def verdict_of(record: TrialRecord, spec: ObjectiveSpec) -> Verdict:
    """What a ledger line says to the search."""
    if record.outcome == "infeasible":
        return Verdict("infeasible", reason=f"{record.failure}: {record.message}")
    if record.outcome != "ok":
        return Verdict("failed", reason=f"{record.failure}: {record.message}")
    value = objective_of(record, spec)
    if value is None:
        return Verdict("failed", reason=f"{spec.metric} was not measured")
    return Verdict("ok", value, attributes=dict(_flat_metrics(record)))


def _standing(bench: Bench, wanted: int, record: TrialRecord) -> Standing:
    ledger, spec = bench.run.ledger(), bench.sweep.search.objective
    best, best_value = fastest_candidate(ledger, spec)
    return Standing(len(ledger.candidates), wanted, objective_of(record, spec), best, best_value)


def _flat_metrics(record: TrialRecord) -> Iterator[tuple[str, Any]]:
    for level, figures in record.metrics.items():
        for name, value in figures.items():
            if isinstance(value, int | float):
                yield f"c{level}.{name}", value
