"""The whole of a sweep: baseline, candidates until enough, and what came of it."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tuner.engine import gpu
from tuner.engine.base import Engine
from tuner.engine.sglang.revisions import ModelFacts, changed_models, model_facts
from tuner.errors import UserError
from tuner.ledger.machine import machine_facts
from tuner.ledger.record import TrialRecord
from tuner.ledger.run import Run, RunSettings
from tuner.measure.samples_file import read_samples
from tuner.result import Result, fastest_candidate, objective_of, summarise_run
from tuner.search.stored import StorageUnusable, StoredStudy, open_own_study, open_storage
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
    """A new run folder in `root`. `engine` is what `--engine` said, None without it.

    Raises UserError, without a folder, where `search.storage` cannot be used.
    """
    builtin = loaded.sweep.workload.prompts.startswith("builtin:")
    beside = None if builtin else _written_path(loaded.path.resolve().parent)
    if (url := loaded.sweep.search.storage) is not None:
        try:
            open_storage(url)
        except StorageUnusable as error:
            raise _storage_refused(loaded, error) from error
    settings = RunSettings(
        engine=engine,
        trials=loaded.sweep.search.trials,
        prompts=content_hash(loaded.prompts),
        beside=beside,
        models=_models(loaded),
    )
    return Run.create(root, loaded.text, settings)


def _written_path(path: Path) -> str:
    """A path as run.json, which is UTF-8, can hold it. Raises UserError for any other."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError as error:
        message = "this name is no UTF-8 text here, rename the folder or set LC_ALL=C.UTF-8"
        raise UserError(message, path) from error
    return str(path)


def _storage_refused(loaded: LoadedSweep, error: StorageUnusable) -> UserError:
    message = f"{loaded.sweep.search.storage} cannot be used ({error}), give an Optuna storage URL"
    return loaded.document().error(("search", "storage"), message)


def reopen_run(path: Path, loaded: LoadedSweep, engine: str | None) -> Run:
    """An earlier run, to go on with. Raises UserError where it is another question now.

    `Run.extend_to` wants more candidates of it.
    """
    run = Run.open(path)
    if run.sweep_text() != loaded.text:
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
    for role in changed_models(run.settings.models, _models(loaded)):
        message = f"the {role}'s files have changed since this run began, restore them or begin"
        raise UserError(f"{message} a new run", path)
    return run


def _models(loaded: LoadedSweep) -> ModelFacts:
    if loaded.sweep.engine.kind != "sglang":
        return {}
    return model_facts(loaded.sweep, os.environ)


def run_sweep(loaded: LoadedSweep, run: Run, engine: Engine, progress: Progress) -> Result:
    """Hold the run and measure; see `measure_all`. Raises UserError where another one holds it."""
    with run.locked() as note:
        if note is not None:
            progress.note(note)
        return measure_all(loaded, run, engine, progress)


def measure_all(loaded: LoadedSweep, run: Run, engine: Engine, progress: Progress) -> Result:
    """Measure the baseline, then candidates; what the ledger has already is not repeated.

    Only inside `run.locked`. Ends when the wanted number of candidates is recorded, the space is
    exhausted, the time budget (of this call) is spent, or `search.max_failures` candidates in a
    row failed. Raises EngineFailure where the baseline fails, UserError where the run's files are
    broken or a new run's `search.storage` is. KeyboardInterrupt passes through and leaves a run
    that can be resumed.
    """
    budget = _Budget(loaded.sweep.search.time_budget)
    if loaded.sweep.engine.kind == "sglang":
        for crowd in gpu.crowded({**os.environ, **loaded.sweep.server.env}):
            progress.note(f"{crowd}, before the first launch")
    bench = Bench.prepare(engine, loaded, run, progress.phase)
    if loaded.sweep.engine.kind == "endpoint":
        _measure_endpoint(bench, progress)
    else:
        wanted = _wanted(loaded, run)
        # Before the first launch: a storage that does not work is a mistake in the sweep file.
        study = _study(loaded, run, progress)
        baseline = _baseline(bench, wanted, progress)
        _search(_Search(study, bench, baseline, wanted, budget, progress))
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

    study: Study
    bench: Bench
    baseline: Windows
    wanted: int
    budget: _Budget
    progress: Progress


def _search(search: _Search) -> None:
    """Candidates, one launch each, until enough."""
    study, bench, progress = search.study, search.bench, search.progress
    spec = bench.sweep.search
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
    stored = _stored_study(loaded, run, progress)
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


def _stored_study(loaded: LoadedSweep, run: Run, progress: Progress) -> StoredStudy | None:
    """The copy for the dashboard; None where there cannot be one, which does not stop a run.

    A `search.storage` that does not work stops a run that has measured nothing yet: then the
    mistake in the sweep file can still be mended.
    """
    url, owner = loaded.sweep.search.storage, run.settings.identity
    if url is None:
        stored, note = open_own_study(run.study_file, run.id, owner)
        if note is not None:
            progress.note(note)
        return stored
    try:
        return StoredStudy(url, run.id, owner)
    except StorageUnusable as error:
        if not run.ledger().records:
            raise _storage_refused(loaded, error) from error
        progress.note(f"search.storage: {url} cannot be used ({error}), the run goes on without it")
        return None


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
