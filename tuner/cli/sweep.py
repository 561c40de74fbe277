"""`specbench sweep`: every step of a run by name."""

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click

from tuner.analysis.summary import RunSummary, summarise_run
from tuner.cli.arguments import TrialCount, unused_trials
from tuner.cli.cluster import joined, refuse_unplaced
from tuner.cli.on_finish import run_on_finish
from tuner.cli.progress import ProgressLine, watch
from tuner.cli.result import print_summary
from tuner.cli.terminal import end_on_signals, interrupts_said
from tuner.config.loader import LoadedSweep, load_sweep, with_deadline, with_slots, with_trials
from tuner.core.errors import EngineFailure, UserError
from tuner.engines import make_engine
from tuner.report.report import write_report
from tuner.runner.budget import refuse_past
from tuner.runner.sweep_run import as_begun, begin_run, measure_all, refuse_changed
from tuner.runs.gpu_lock import GpuClaims, claimed, gpus_used
from tuner.runs.run import Run
from tuner.runs.run_folder import RESULTS
from tuner.runs.settings import WorkerSettings, read_settings
from tuner.server.base import Checked, Engine
from tuner.server.memory import MemoryGuard, without_misfits
from tuner.server.process import interrupts_deferred
from tuner.workers.joining import WorkerOptions, join_fleet, refuse_worker_alone, worker_settings
from tuner.workers.shared_study import SharedStudy


@dataclass(frozen=True)
class SweepOptions:
    """What the command line says."""

    file: Path | None
    out: Path | None
    engine: str | None
    trials: TrialCount | None
    resume: Path | None
    slots: int | Literal["auto"] | None
    as_json: bool
    deadline: str | None = None
    share_gpus: bool = False
    ray: str | None = None
    ray_resource: str | None = None
    worker: WorkerOptions | None = None
    """Where it is to be one of several on a search."""


def run(options: SweepOptions) -> int:
    """Run or resume a sweep, write its report and print the answer. Returns the exit code."""
    earlier = None if options.resume is None else Run.open(options.resume)
    config = load_config(options, earlier)
    engine = make_engine(config.sweep)
    checked = _check(engine, config, options)  # refusals come before a folder is made
    with (
        joined(checked.loaded, options.ray, options.ray_resource) as place,
        _claimed(checked.loaded, options) as claims,
    ):
        memory = engine.estimate_memory(config.sweep, place.gpu_gib)
        checked = without_misfits(checked, memory)
        study, worker = _join_workers(options, checked.loaded, engine, earlier)
        run = _open_run(options, checked.loaded, earlier, place.machine, worker)
        claims.tell(run.path)
        checked = replace(checked, notes=(*checked.notes, *place.notes, *claims.notes))
        end_on_signals(outlive_terminal=True)  # after Ray, which sets a handler of its own
        guard = None if memory is None else MemoryGuard(memory)
        measure = partial(measure_all, elsewhere=place.executor, fleet=study, guard=guard)
        return _measure_and_report(options, checked, run, engine, measure).exit_code


def load_config(options: SweepOptions, earlier: Run | None) -> LoadedSweep:
    """Read the sweep file once, with what the command line changes. Raises UserError."""
    loaded = _load_new(options) if earlier is None else _load_again(earlier, options)
    if options.deadline is not None:
        loaded = with_deadline(loaded, options.deadline)
    refuse_past(loaded.sweep.search)
    return loaded if options.slots is None else with_slots(loaded, options.slots)


def _check(engine: Engine, config: LoadedSweep, options: SweepOptions) -> Checked:
    """Apply the rules of the release, the machine and the cluster. Raises UserError."""
    checked = engine.check(config)
    engine.refuse(checked.loaded)
    refuse_unplaced(checked.loaded, options.ray, options.ray_resource)
    return checked


def _join_workers(
    options: SweepOptions, loaded: LoadedSweep, engine: Engine, earlier: Run | None
) -> tuple[SharedStudy | None, WorkerSettings | None]:
    """Return the search that several workers share and this worker's settings, or None twice."""
    if options.worker is None:
        if earlier is not None:
            refuse_worker_alone(earlier)
        return None, None
    worker = worker_settings(options.worker, loaded, earlier)
    return join_fleet(options.worker, worker, loaded, engine), worker


def _claimed(loaded: LoadedSweep, options: SweepOptions) -> AbstractContextManager[GpuClaims]:
    """The GPUs here, for this run alone; on a cluster that is Ray's business."""
    if options.ray is not None:
        return nullcontext(GpuClaims({}))
    gpus = gpus_used(loaded.sweep, os.environ)
    return claimed(gpus, os.environ, share=options.share_gpus)


def _measure_and_report(
    options: SweepOptions,
    checked: Checked,
    folder: Run,
    engine: Engine,
    measure: Callable[..., RunSummary],
) -> RunSummary:
    """Measure and report, with the run held; then `on_finish`, if it was held."""
    outcome = None
    try:
        with folder.locked() as cleared:
            outcome = "failed"
            # From here on nobody else writes the run, and nothing refuses it any more.
            _extend(folder, checked.loaded, options)
            # With --json, stdout holds the result and nothing else.
            with watch(checked.loaded, folder, to_stderr=options.as_json) as progress:
                if cleared is not None:
                    progress.note(cleared)
                result = _measure(checked, folder, engine, progress, options, measure)
            _report(result, options)
            if folder.stop_file.exists():
                _say_how_to_go_on(folder)
            outcome = "failed" if result.exit_code else "done"
    except KeyboardInterrupt:
        outcome = outcome and "interrupted"
        raise
    finally:
        if outcome is not None:
            run_on_finish(checked.loaded.sweep.on_finish, folder.path, outcome)
    return result


def _load_new(options: SweepOptions) -> LoadedSweep:
    if options.file is None:
        raise UserError("give a sweep file, such as sweeps/quickstart.yaml, or --resume RUN")
    loaded = load_sweep(options.file, engine=options.engine)
    return loaded if options.trials is None else with_trials(loaded, options.trials.of_new_run())


def _load_again(run: Run, options: SweepOptions) -> LoadedSweep:
    """Read the sweep of an earlier run: the file that is given, or the run's own copy."""
    if options.out is not None:
        raise UserError("--out begins a new run and --resume goes on with one, keep one of them")
    engine = options.engine or run.settings.engine
    answers = run.conversations_file if run.conversations_file.exists() else None
    if options.file is not None:
        loaded = load_sweep(options.file, engine=engine, answers=answers)
    else:
        beside = Path(run.settings.beside) if run.settings.beside else None
        loaded = load_sweep(run.sweep_file, engine=engine, beside=beside, answers=answers)
    return as_begun(loaded, run)


def _open_run(
    options: SweepOptions,
    loaded: LoadedSweep,
    earlier: Run | None,
    machine: dict[str, Any] | None,
    worker: WorkerSettings | None,
) -> Run:
    """Return the run to resume, or a new run folder. Raises UserError if the run has changed."""
    if earlier is None:
        root = options.out or RESULTS / loaded.sweep.name
        return begin_run(root, loaded, options.engine, machine, worker)
    refuse_changed(earlier, loaded, options.engine or earlier.settings.engine, machine)
    return earlier


def _extend(folder: Run, loaded: LoadedSweep, options: SweepOptions) -> None:
    """`--trials` of a resumed run. Raises UserError for fewer candidates than there are."""
    if options.resume is None or options.trials is None or unused_trials(loaded):
        return
    # As it is now: another specbench may have written since this one opened the run.
    folder.settings = read_settings(folder.path)
    recorded, number = len(folder.ledger().candidates), options.trials.number
    if options.trials.more:
        number += folder.settings.wanted
    elif number < recorded:
        message = f"the run has {recorded} candidates already and keeps them, --trials {number} is"
        raise UserError(f"{message} fewer: write --trials {recorded} or more, or +N", folder.path)
    folder.extend_to(number)


def _measure(
    checked: Checked,
    folder: Run,
    engine: Engine,
    progress: ProgressLine,
    options: SweepOptions,
    measure: Callable[..., RunSummary],
) -> RunSummary:
    for note in checked.notes:
        progress.note(note)
    if options.trials is not None and (unused := unused_trials(checked.loaded)):
        progress.note(unused)
    try:
        with interrupts_said("stopping servers, writing the report"):
            return measure(checked.loaded, folder, engine, progress)
    except (KeyboardInterrupt, EngineFailure, UserError, OSError):
        with interrupts_deferred():
            _report_what_there_is(folder, options)
        raise


def _report(summary: RunSummary, options: SweepOptions) -> None:
    """The report and what is printed of it, whole also where Ctrl-C comes meanwhile."""
    try:
        with interrupts_deferred():
            _print_summary(summary, options)
    except KeyboardInterrupt:
        _say_how_to_go_on(summary.run)
        raise


def _print_summary(summary: RunSummary, options: SweepOptions) -> None:
    try:
        report = write_report(summary)
    finally:
        if options.as_json:
            click.echo(json.dumps(summary.to_json()))
    if not options.as_json:
        print_summary(summary, report)
    if summary.exit_code and (options.as_json or summary.best is not None):
        click.echo(f"specbench: {summary.verdict}", err=True)


def _report_what_there_is(folder: Run, options: SweepOptions) -> None:
    """A run that stopped early keeps a report of what it measured, and can go on."""
    try:
        summary = summarise_run(folder)
        if summary.ledger.records:
            click.echo(f"specbench: report: {write_report(summary)}", err=True)
        if options.as_json:
            click.echo(json.dumps(summary.to_json()))
    except (UserError, OSError) as error:  # what stopped the run is said as well, and last
        click.echo(f"specbench: there is no report of it: {error}", err=True)
    _say_how_to_go_on(folder)


def _say_how_to_go_on(folder: Run) -> None:
    if not folder.trials_file.exists():
        click.echo(f"specbench: {folder.path} is gone, or not whole: begin a new run", err=True)
        return
    click.echo(f"specbench: go on with: {folder.resume_command}", err=True)
