"""`specbench sweep`: every step of a run by name."""

import json
import signal
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from tuner.campaign import begin_run, reopen_run, run_sweep
from tuner.cli.arguments import TrialCount
from tuner.cli.progress import watch
from tuner.cli.show import show_result
from tuner.engine.make import make_engine
from tuner.errors import EngineFailure, UserError
from tuner.ledger.run import Run
from tuner.report.run_report import write_report
from tuner.result import summarise_run
from tuner.sweep.door import LoadedSweep, load_sweep, with_trials


@dataclass(frozen=True)
class SweepOptions:
    """What the command line says."""

    file: Path | None
    out: Path | None
    engine: str | None
    trials: TrialCount | None
    resume: Path | None
    as_json: bool


def run(options: SweepOptions) -> int:
    """Run or resume a sweep, write its report, print what it found. Returns the exit code."""
    loaded = _load_again(options.resume, options) if options.resume else _load(options)
    engine = make_engine(loaded.sweep)
    # What an engine refuses is said before a folder is made.
    checked = engine.check(loaded)
    engine.refuse(checked.loaded.sweep)
    folder = _folder(options, checked.loaded)
    _end_on_signals()
    # With --json, stdout holds the result and nothing else.
    with watch(checked.loaded, folder, to_stderr=options.as_json) as progress:
        for note in checked.notes:
            progress.note(note)
        try:
            result = run_sweep(checked.loaded, folder, engine, progress)
        except (KeyboardInterrupt, EngineFailure):
            _report_what_there_is(folder, options)
            raise
    report = write_report(folder)
    if options.as_json:
        click.echo(json.dumps(result.to_json()))
    else:
        show_result(result, loaded.sweep, report)
    return result.exit_code


def _load(options: SweepOptions) -> LoadedSweep:
    if options.file is None:
        raise UserError("give a sweep file, such as sweeps/quickstart.yaml, or --resume RUN")
    loaded = load_sweep(options.file, engine=options.engine)
    if options.trials is None:
        return loaded
    number = options.trials.number
    if options.trials.more:
        raise UserError(
            f"--trials +{number} extends a run, add --resume RUN or write --trials {number}"
        )
    return with_trials(loaded, number)


def _load_again(earlier: Path, options: SweepOptions) -> LoadedSweep:
    """The sweep of an earlier run: the file that is given, or the run's own copy."""
    if options.out is not None:
        raise UserError("--out begins a new run and --resume goes on with one, keep one of them")
    run = Run.open(earlier)
    engine = options.engine or run.settings.engine
    if options.file is not None:
        return load_sweep(options.file, engine=engine)
    beside = Path(run.settings.beside) if run.settings.beside else None
    return load_sweep(run.sweep_file, engine=engine, beside=beside)


def _folder(options: SweepOptions, loaded: LoadedSweep) -> Run:
    if options.resume is None:
        root = options.out or Path("results") / loaded.sweep.name
        return begin_run(root, loaded, options.engine)
    engine = options.engine or Run.open(options.resume).settings.engine
    folder = reopen_run(options.resume, loaded, engine)
    if options.trials is not None:
        so_far = folder.settings.wanted if options.trials.more else 0
        folder.extend_to(so_far + options.trials.number)
    return folder


def _report_what_there_is(folder: Run, options: SweepOptions) -> None:
    """A run that stopped early keeps a report of what it measured, and can go on."""
    if folder.ledger().baseline is not None:
        write_report(folder)
    if options.as_json:
        click.echo(json.dumps(summarise_run(folder).to_json()))
    click.echo(f"specbench: go on with: specbench sweep --resume {folder.path}", err=True)


def _end_on_signals() -> None:
    """SIGTERM and a closed terminal end a run as Ctrl-C does: servers stopped, ledger whole."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
