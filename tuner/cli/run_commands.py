"""The commands about a run that is there: its report, how it is, its end, what it left behind."""

from pathlib import Path

import click

from tuner.cli.arguments import RUN


@click.command()
@click.argument("run", type=RUN, required=False)
def report(run: Path | None) -> None:
    """Write the report, the figures and the winner's files of RUN again.

    RUN is a run folder, or a sweep's: its newest run; without it the newest of results/.
    """
    from tuner.analysis.summary import summarise_run
    from tuner.cli.runs import run_meant
    from tuner.report.report import write_report
    from tuner.runs.run import Run

    click.echo(write_report(summarise_run(Run.open(run_meant(run)))))


@click.command()
@click.argument("run", type=RUN, required=False)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def status(run: Path | None, as_json: bool) -> None:
    """Say what RUN is doing, how far it is, its best so far, and whether it lives.

    RUN is a run folder, or a sweep's: its newest run; without it the newest of results/.
    """
    from tuner.cli.runs import run_meant, show_status

    show_status(run_meant(run), as_json)


@click.command()
@click.argument("run", metavar="RUN", type=RUN, required=False)
def stop(run: Path | None) -> None:
    """End RUN after the trial that is measured now, with its report; Ctrl-C ends it at once."""
    from tuner.cli.runs import ask_to_stop, runs_to_name

    if run is None:
        raise click.UsageError(f"Give the run that is to stop{runs_to_name()}.")
    ask_to_stop(run)


@click.command()
@click.argument("runs", metavar="[RUN]...", type=RUN, nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every run below results/.")
@click.option("--yes", is_flag=True, help="Do it; without this it is only listed.")
def clean(runs: tuple[Path, ...], every: bool, yes: bool) -> int:
    """List what killed runs left behind: processes, half-written files, their own state.

    What was measured is never touched, nor a run that a specbench holds, nor a process that is not
    known by its launch's mark or by its recorded id and start time.
    """
    from tuner.cli.runs import clean as clean_runs
    from tuner.cli.runs import runs_to_name

    if bool(runs) == every:
        known = "" if every else runs_to_name()
        raise click.UsageError(f"Give a run, or --all{known}.")
    return clean_runs(list(runs), every, yes)


@click.command()
@click.argument("run", type=RUN, required=False)
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8080, show_default=True, type=click.IntRange(1, 65535))
def dashboard(run: Path | None, host: str, port: int) -> None:
    """Open optuna-dashboard over RUN, also while it goes on.

    RUN is a run folder, or a sweep's: its newest run; without it the newest of results/.
    """
    from tuner.cli.dashboard import open_dashboard
    from tuner.cli.runs import run_meant

    open_dashboard(run_meant(run), host, port)
