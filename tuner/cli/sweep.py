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
    loaded, folder = _resume(options) if options.resume else _begin(options)
    engine = make_engine(loaded.sweep)
    _end_on_signals()
    # With --json, stdout holds the result and nothing else.
    with watch(loaded, folder, to_stderr=options.as_json) as progress:
        try:
            result = run_sweep(loaded, folder, engine, progress)
        except (KeyboardInterrupt, EngineFailure):
            _report_what_there_is(folder, options)
            raise
    report = write_report(folder)
    if options.as_json:
        click.echo(json.dumps(result.to_json()))
    else:
        show_result(result, loaded.sweep, report)
    return result.exit_code


def _begin(options: SweepOptions) -> tuple[LoadedSweep, Run]:
    if options.file is None:
        raise UserError("give a sweep file, such as sweeps/quickstart.yaml, or --resume RUN")
    loaded = load_sweep(options.file, engine=options.engine)
    if options.trials is not None:
        if options.trials.more:
            number = options.trials.number
            raise UserError(
                f"--trials +{number} extends a run, add --resume RUN or write --trials {number}"
            )
        loaded = with_trials(loaded, options.trials.number)
    # What an engine refuses is said before a folder is made.
    make_engine(loaded.sweep)
    root = options.out or Path("results") / loaded.sweep.name
    return loaded, begin_run(root, loaded, options.engine)


def _resume(options: SweepOptions) -> tuple[LoadedSweep, Run]:
    assert options.resume is not None
    if options.out is not None:
        raise UserError(
            "--out begins a new run and --resume goes on with one, leave one of them away"
        )
    earlier = Run.open(options.resume)
    engine = options.engine or earlier.settings.engine
    if options.file is not None:
        loaded = load_sweep(options.file, engine=engine)
    else:
        source = earlier.settings.beside
        beside = Path(source) if source else None
        loaded = load_sweep(earlier.sweep_file, engine=engine, beside=beside)
    folder = reopen_run(options.resume, loaded, engine)
    if options.trials is not None:
        so_far = folder.settings.wanted if options.trials.more else 0
        folder.extend_to(so_far + options.trials.number)
    return loaded, folder


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
