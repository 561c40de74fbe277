"""The whole of a sweep: baseline, candidates until enough, and what came of it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tuner.analysis.summary import RunSummary, summarise_run
from tuner.config.credentials import without_secrets
from tuner.config.loader import LoadedSweep
from tuner.config.prompts import content_hash
from tuner.config.task_dataset import task_hash
from tuner.core.errors import UserError
from tuner.dashboard.study import open_dashboard, storage_refused
from tuner.execution.executor import Executor, ExecutorFactory
from tuner.execution.launch import portable
from tuner.execution.progress import Listeners, Progress
from tuner.execution.schedule import closing_launches
from tuner.execution.slots import SlotExecutor, lay_out_slots
from tuner.execution.trial import TrialRunner
from tuner.runner.budget import CLOCK, Budget, Clock
from tuner.runner.conversations import with_conversations
from tuner.runner.observations import refuse_missing_library
from tuner.runner.stages import comes_too_late, measure_endpoint, search_all
from tuner.runner.status_writer import StatusWriter
from tuner.runs.machine import Facts, machine_facts
from tuner.runs.run import Run
from tuner.runs.settings import RunSettings, WorkerSettings
from tuner.runs.status import told_end
from tuner.search.optuna_storage import StorageUnusable, open_storage
from tuner.server import gpu
from tuner.server.base import Engine
from tuner.server.memory import MemoryGuard
from tuner.server.process import interrupts_deferred
from tuner.sglang.revisions import ModelFacts, changed_models, held_as_begun, model_facts
from tuner.sglang.server_settings import Launches
from tuner.workers.shared_study import SharedStudy
from tuner.workers.worker import taking_part


def begin_run(
    root: Path,
    loaded: LoadedSweep,
    engine: str | None,
    machine: Facts | None = None,
    worker: WorkerSettings | None = None,
) -> Run:
    """A new run folder in `root`. `engine` is what `--engine` said, None without it; `machine` is
    what measures, None: this one; `worker` where the run is to be one of several on a search.

    Raises UserError, without a folder, where `search.storage` or `search.sampler` cannot be used.
    """
    refuse_missing_library(loaded)
    alone = loaded.sweep.workload.prompts.startswith("builtin:") and not loaded.task
    beside = None if alone else _written_path(loaded.path.resolve().parent)
    if (url := loaded.sweep.search.storage) is not None:
        try:
            open_storage(url)
        except StorageUnusable as error:
            raise storage_refused(loaded, error) from error
    settings = RunSettings(
        engine=engine,
        worker=worker,
        trials=loaded.sweep.search.trials,
        prompts=content_hash(loaded.prompts),
        prompts_there=len(loaded.prompts),
        prompts_read=loaded.prompts_read,
        task=task_hash(loaded.task),
        beside=beside,
        models=_models(loaded),
    )
    text = loaded.text_without_secrets
    document = loaded.document if text == loaded.text else None
    return Run.create(root, text, settings, machine, document)


def _written_path(path: Path) -> str:
    """A path as run.json, which is UTF-8, can hold it. Raises UserError for any other."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError as error:
        message = "this name is no UTF-8 text here, rename the folder or set LC_ALL=C.UTF-8"
        raise UserError(message, path) from error
    return str(path)


def reopen_run(
    path: Path, loaded: LoadedSweep, engine: str | None, machine: Facts | None = None
) -> Run:
    """Open the run at `path` to resume it. Raises UserError as `refuse_changed` does."""
    run = Run.open(path)
    refuse_changed(run, loaded, engine, machine)
    return run


def refuse_changed(
    run: Run, loaded: LoadedSweep, engine: str | None, machine: Facts | None = None
) -> None:
    """Raise UserError if `run` cannot be resumed with this sweep file, engine, or machine.

    Results before and after such a change would not be comparable.
    """
    refuse_missing_library(loaded)
    path = run.path
    # The copy of a run of an older version has the secrets; another key is the same question.
    if without_secrets(run.sweep_text(), run.document.root) != loaded.text_without_secrets:
        message = f"the sweep file has changed since this run began, use {run.sweep_file} or begin"
        raise UserError(f"{message} a new run", loaded.path)
    if run.settings.engine != engine:
        was = f"--engine {run.settings.engine}" if run.settings.engine else "no --engine"
        raise UserError(f"the run was begun with {was}, resume it with the same", path)
    if run.settings.prompts != content_hash(loaded.prompts):
        message = "the prompts have changed since this run began, restore them or begin a new run"
        raise UserError(message, path)
    if run.settings.task != task_hash(loaded.task):
        message = "the task has changed since this run began, restore it or begin a new run"
        raise UserError(message, path)
    then, now = run.machine().get("gpus"), (machine or machine_facts())["gpus"]
    if loaded.sweep.engine.uses_gpus and then != now:
        what = "this machine" if machine is None else "the cluster"
        message = f"{what} has other GPUs than the run began on ({then}), begin a new run"
        raise UserError(message, path)
    for change in changed_models(run.settings.models, _models(loaded)):
        raise UserError(change, path)


def as_begun(loaded: LoadedSweep, run: Run) -> LoadedSweep:
    """The sweep of `run` with the models' commits that it began with; before an engine's check."""
    if not loaded.sweep.engine.uses_gpus:
        return loaded
    return held_as_begun(loaded, run.settings.models, os.environ)


def _models(loaded: LoadedSweep) -> ModelFacts:
    if not loaded.sweep.engine.uses_gpus:
        return {}
    return model_facts(loaded.sweep, os.environ)


def run_sweep(
    loaded: LoadedSweep, run: Run, engine: Engine, progress: Progress, clock: Clock = CLOCK
) -> RunSummary:
    """Hold the run and measure; see `measure_all`. Raises UserError where another one holds it."""
    with run.locked() as note:
        if note is not None:
            progress.note(note)
        return measure_all(loaded, run, engine, progress, clock)


def measure_all(
    loaded: LoadedSweep,
    run: Run,
    engine: Engine,
    progress: Progress,
    clock: Clock = CLOCK,
    elsewhere: ExecutorFactory | None = None,
    fleet: SharedStudy | None = None,
    guard: MemoryGuard | None = None,
) -> RunSummary:
    """Measure the baseline, then candidates; what the run's files have already is not repeated.

    With a `fleet` the run is one of several workers, which measure the wanted number together.

    In between, communication settings are timed that points differ in (`narrowed_by_comm`).

    With `server.step_switch` a launch measures a whole block of candidates, and the winner once
    more alone. The baseline is launched again as `baseline.launches` says. Only inside
    `run.locked`. Ends when the wanted number of candidates is recorded, the space is exhausted, the
    time budget (of this call) or the deadline leaves no room, `specbench stop` was asked for, or
    `search.max_failures` candidates in a row failed. Raises EngineFailure where the first baseline
    fails, UserError where the run's files are broken or a new run's `search.storage` is.
    KeyboardInterrupt passes through and leaves a run that can be resumed.
    """
    with told_end(run):
        budget = Budget(loaded.sweep.search, run.stop_file, clock)
        shared, scored = loaded.sweep.server.step_switch, bool(loaded.task)
        closing = closing_launches(loaded.sweep, shared=shared, scored=scored)
        progress = Listeners(StatusWriter(run, budget, closing), progress)
        if budget.ends is not None:
            progress.note(budget.ends)
        if loaded.sweep.engine.uses_gpus and elsewhere is None:
            for crowd in gpu.gpu_in_use(Launches(loaded.sweep, os.environ).environment):
                progress.note(f"{crowd}, before the first launch")
        if not loaded.sweep.engine.launches_servers:
            loaded = with_conversations(loaded, run, engine, progress.phase)
            bench = TrialRunner.prepare(engine, loaded, run, progress.phase)
            measure_endpoint(bench, budget, progress)
            return summarise_run(run)
        # Before the first launch: a storage that does not work is a mistake in the sweep file.
        dashboard = open_dashboard(loaded, run, progress.note)
        watched = Listeners(dashboard, progress)
        try:
            with taking_part(fleet, run, watched.note, watched.step) as own:
                if not comes_too_late(own, loaded, run):
                    loaded = with_conversations(loaded, run, engine, watched.phase)
                    bench = TrialRunner.prepare(engine, loaded, run, watched.phase)
                    bench = replace(bench, guard=guard)
                    with with_executor(bench, loaded, watched, elsewhere) as there:
                        search_all(
                            there, loaded, budget, watched, clock, own, here=elsewhere is None
                        )
        finally:
            dashboard.stop()
            if dashboard.lost is not None:
                progress.note(
                    f"the dashboard's study is not complete ({dashboard.lost}), the ledger is; "
                    "`specbench dashboard` completes the study"
                )
        summary = summarise_run(run)
        dashboard.finish(summary)
        return summary


@contextmanager
def with_executor(
    bench: TrialRunner, loaded: LoadedSweep, progress: Progress, make: ExecutorFactory | None
) -> Iterator[TrialRunner]:
    """The runner with its executor until the block is through: the one that `make` returns, one
    with the slots of the sweep, or this process."""
    executor: Executor
    if make is not None:
        executor = make(bench, progress.phase)
    else:
        slots = lay_out_slots(loaded, os.environ)
        if len(slots) < 2:
            yield bench
            return
        for slot in slots:
            progress.note(slot.words())
        executor = SlotExecutor(portable(bench), slots, progress.phase)
    try:
        yield replace(bench, concurrent=executor)
    finally:
        with interrupts_deferred():
            executor.close()
