"""`specbench doctor`: what would stop a sweep here, before it is begun."""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from tuner.config.loader import load_sweep
from tuner.preflight.doctor import examine_machine, examine_sweep
from tuner.preflight.finding import Finding, exit_code
from tuner.runs.run_folder import RESULTS


def run_doctor(file: Path | None, out: Path | None, engine: str | None, as_json: bool) -> int:
    """Print every finding. Returns 1 where one is a stop, else 0."""
    if file is None:
        found = list(examine_machine(out or RESULTS))
    else:
        loaded = load_sweep(file, engine=engine)
        found = list(examine_sweep(loaded, out or RESULTS / loaded.sweep.name))
    if as_json:
        click.echo(json.dumps([each.to_json() for each in found], indent=2))
    else:
        _show(found)
    return exit_code(found)


def _show(found: Sequence[Finding]) -> None:
    for each in found:
        click.echo(f"{each.level:5}  {each.what}: {each.message}")
        if each.todo is not None:
            click.echo(f"       -> {each.todo}")
    stops = sum(each.level == "stop" for each in found)
    doubts = sum(each.level == "doubt" for each in found)
    click.echo(f"\n{stops} to mend before a sweep, {doubts} to know of.")
