"""`specbench status`, `stop` and `clean`: runs that go on, and what is left of those that died."""

import json
import shlex
import socket
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tuner.analysis.baselines import settle
from tuner.analysis.best_per_level import record_speedups
from tuner.analysis.equivalence import by_samples
from tuner.analysis.winner import fastest_candidate
from tuner.config.load_level import at, parse_level
from tuner.core.errors import UserError
from tuner.core.formatting import spell_time
from tuner.runs.crash_recovery import clear, leftovers
from tuner.runs.run import Run
from tuner.runs.run_folder import RESULTS, newest_runs
from tuner.runs.settings import FleetLine, read_fleet
from tuner.runs.status import State, read_ended, read_state


def show_status(path: Path, as_json: bool) -> None:
    """Print what a run is doing, how far it is and its best so far. Raises UserError."""
    found = read_status(Run.open(path))
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo("\n".join(_lines(found)))


def read_status(run: Run) -> dict[str, Any]:
    """What `--json` prints; None is what is not known.

    `state` is `running`; `stopping` once it was asked to stop; `elsewhere` where another host says
    that it runs there, which cannot be seen from here; `killed` where it ended without a word; or
    `ended`. `is_due`: `--resume` has something to launch, by what the last call said of its end,
    or by the number of candidates where it said nothing.
    """
    is_held, told = run.is_being_written, read_state(run)
    if told is not None and not is_held:  # it may have begun in between
        is_held = run.is_being_written
    ledger, sweep, ended = run.ledger(), run.sweep(), read_ended(run)
    # As the report has it: over all launches of the baseline.
    settled, spec = settle(run), sweep.search.objective
    best, value = fastest_candidate(settled.ledger, spec, by_samples(settled, spec))
    wanted, state = _wanted(run), _state(run, is_held, told)
    return {
        "run": str(run.path),
        "state": state,
        "now": None if told is None else asdict(told),
        "done": len(ledger.candidates),
        "wanted": wanted,
        "is_due": len(ledger.candidates) < wanted if ended is None else not ended.finished,
        "ended_early": None if ended is None else ended.why,
        "closing_missing": ended is not None and ended.closing,
        "failed": sum(each.outcome != "ok" for each in ledger.candidates),
        "has_baseline": ledger.baseline is not None,
        "best": None
        if best is None
        else {
            "trial": best.trial,
            "configuration": None if best.at is None else best.at.label(),
            "speedup": value,
            "by_concurrency": {str(k): each.value for k, each in record_speedups(best).items()},
        },
        "report": str(run.report_md) if run.report_md.exists() else None,
        "report_is_old": state == "killed" and bool(ledger.records) and _is_old(run),
        "worker": None if (worker := read_fleet(run.fleet_file)) is None else worker.model_dump(),
    }


def _state(run: Run, is_held: bool, told: State | None) -> str:
    if is_held:
        return "stopping" if run.stop_file.exists() else "running"
    if told is not None:
        return "killed" if told.host == socket.gethostname() else "elsewhere"
    return "killed" if run.running else "ended"


def _is_old(run: Run) -> bool:
    """Whether a trial ended after the report was written, or none was."""
    try:
        return run.report_md.stat().st_mtime < run.trials_file.stat().st_mtime
    except OSError:
        return True


def _wanted(run: Run) -> int:
    """Candidates in all; a run that times settings first may find that fewer make sense."""
    sweep = run.sweep()
    if not sweep.engine.launches_servers:
        return 1
    points = len(run.space.points)
    return points if sweep.search.sampler == "grid" else min(points, run.settings.wanted)


def _lines(found: dict[str, Any]) -> list[str]:
    now, best = found["now"], found["best"]
    lines = [f"{found['run']}: {_STATES[found['state']]}"]
    if now is not None:
        lines.append(f"  process {now['pid']} on {now['host']}, since {now['began']}")
        for place, doing in (now.get("places") or {}).items():
            lines.append(f"  {place}, {doing}")
        closing = {"confirm": "closing: winner again, ", "plain": "closing: its settings alone, "}
        about = (
            ""
            if now["trial"] is None
            else f"{closing.get(now['role'], '')}trial {now['trial']}, {now['configuration']}: "
        )
        window = "" if now["window"] is None else f" {now['window']}/{now['windows']}"
        level = "" if now["concurrency"] is None else f" {at(now['concurrency'])}"
        if not now.get("places"):
            lines.append(f"  {about}{now['doing']}{window}{level} (said {now['told']})")
    count = f"  {found['done']} of {found['wanted']} candidates"
    lines.append(count + (f", {found['failed']} without numbers" if found["failed"] else ""))
    if found["worker"] is not None:
        lines.append(f"  {FleetLine.model_validate(found['worker']).words(found['done'])}")
    if best is not None and best["speedup"] is not None:
        name = best["configuration"] or "the server as it is"
        levels = best["by_concurrency"]
        each = [f"{ratio:.3f}x {at(parse_level(level))}" for level, ratio in levels.items()]
        figures = "; ".join(each) if len(each) > 1 else f"{best['speedup']:.3f}x"
        lines.append(f"  best so far: trial {best['trial']}, {name}, {figures}")
    if now is not None and now["left_s"] is not None and found["state"] == "running":
        lines.append(f"  about {spell_time(now['left_s'])} left")
    if found["state"] in ("killed", "ended"):
        lines += _due(found)
    if found["report_is_old"]:
        path = shlex.quote(found["run"])
        lines.append(f"  its report is missing or older: write it with: specbench report {path}")
    elif found["report"] is not None:
        lines.append(f"  report: {found['report']}")
    return lines


def _due(found: dict[str, Any]) -> list[str]:
    """What `--resume` would do, in lines; that it would do nothing where that is not plain."""
    if not found["is_due"]:
        done_with = found["done"] < found["wanted"]
        return ["  the search ended by itself: nothing is left to launch"] if done_with else []
    lines = []
    if found["ended_early"] is not None:
        lines.append(f"  ended early: {found['ended_early']}")
    if found["done"] >= found["wanted"] and found["closing_missing"]:
        lines.append("  closing launches are missing")
    return [*lines, f"  go on with: {Run.open(Path(found['run'])).resume_command}"]


_STATES = {
    "running": "running",
    "stopping": "running, and ends after the trial that runs",
    "elsewhere": "running on another host, as far as it said",
    "killed": "not running, it ended without a word; specbench clean RUN shows what it left",
    "ended": "not running",
}


def ask_to_stop(path: Path) -> None:
    """Ask the specbench that holds the run to begin no further trial. Raises UserError."""
    run = Run.open(path)
    state = _state(run, run.is_being_written, read_state(run))
    if state not in ("running", "stopping", "elsewhere"):
        raise UserError("no specbench is at work on this run, there is nothing to stop", path)
    try:
        run.stop_file.touch()
    except OSError as error:
        raise UserError(f"{error.strerror}, it must be writable", run.stop_file) from error
    if state != "elsewhere" and not run.is_being_written:  # it ended in this moment
        run.stop_file.unlink(missing_ok=True)
    click.echo(f"{path}: ends after the trial that runs, with a report")
    click.echo(f"it can go on later: {run.resume_command}")


def clean(paths: list[Path], is_asked_for_all: bool, does: bool) -> int:
    """List what killed runs left, or remove it. Returns the exit code. Raises UserError."""
    runs = sorted(file.parent for file in RESULTS.glob("*/*/trials.jsonl"))
    left, refusal = 0, None
    for path in runs if is_asked_for_all else paths:
        try:
            run = Run.open(path)
            if is_asked_for_all and run.is_being_written:
                click.echo(f"{path}: at work, left alone")
                continue
            found = leftovers(run)
            left += len(found)
            for line in clear(run) if does and found else (f"{e.path}: {e.what}" for e in found):
                click.echo(line)
        except UserError as error:  # a broken run, or another user's: the others are looked at
            if refusal is not None:
                click.echo(f"specbench: {refusal}", err=True)
            refusal = error
    if refusal is not None:
        raise refusal
    if not left:
        click.echo("nothing is left behind")
    elif not does:
        click.echo("--yes ends these processes and removes these files; what was measured stays")
    return 0


SHOWN = 3
"""Runs that a message names."""


def run_meant(given: Path | None) -> Path:
    """`given`, where that is a run or no folder of runs; else the newest of those in it, or of
    results/ where nothing is given, which is said on stderr.

    For commands that only look: what ends or removes something wants the run by its name. Raises
    UserError where there is none.
    """
    try:
        if given is not None and (given / "run.json").exists():
            return given
        found = newest_runs(RESULTS if given is None else given)
    except OSError:  # a name that is too long, a folder that is closed: `Run.open` says it
        found = []
    if found:
        click.echo(f"specbench: the newest run: {found[0]}", err=True)
        return found[0]
    if given is None:
        raise UserError("there is no run in results/, give the path of one, such as OUT/RUN-ID")
    return given


def runs_to_name() -> str:
    """`; the newest: RUN (at work), RUN`, for a message that asks for one; "" without any."""
    named = []
    for path in newest_runs()[:SHOWN]:
        try:
            at_work = Run.open(path).is_being_written
        except UserError:
            at_work = False
        named.append(f"{path} (at work)" if at_work else str(path))
    return f"; the newest: {', '.join(named)}" if named else ""
