"""What the user takes to production: best.yaml and best.sh."""

import shlex
from pathlib import Path
from typing import Any

from tuner.analysis.summary import RunSummary, TrialResult, compare_outputs
from tuner.analysis.winner import is_refuted
from tuner.config.dimensions import DIMENSIONS
from tuner.config.field_types import UNSET
from tuner.config.loader import sweep_text
from tuner.config.point import Point
from tuner.config.schema import SearchSpec, SpaceSpec, Sweep
from tuner.core.files import write_text
from tuner.core.markdown import code
from tuner.engines import make_engine
from tuner.report.outputs import describe_outputs, task_scores
from tuner.server.base import Command, plain_config, server_config
from tuner.server.launch_script import launch_script


def write_winner(summary: RunSummary) -> None:
    """Write best.yaml and best.sh into the run folder, as far as the run has them.

    best.yaml is the best candidate's sweep, also where no speculation was faster (it says so on
    top). best.sh launches what was fastest; an endpoint has no launch, so no best.sh.
    """
    run, best = summary.run, summary.best_candidate
    if best is not None and best.point is not None:
        comment = [_origin(summary, best)]
        if summary.winner is summary.no_speculation:
            spec = summary.sweep.search.objective
            why = "No speculation was faster than every candidate: best.sh launches that."
            if is_refuted(summary.ledger, best.record, spec):
                why = "It does not stand (report.md says why): best.sh launches no speculation."
            comment.append(why)
        plain = summary.settings_only if summary.winner is summary.settings_only else None
        if plain is not None:
            comment.append(
                "Its settings are as fast without speculation: best.sh launches that, and the "
                "baseline here has them too."
            )
        sweep = _with_prompts_in_place(summary.sweep, run.settings.beside)
        its_own = run.conversations_file.exists()
        answers = None if its_own else sweep.workload.answers
        for file in (sweep.workload.prompts, sweep.workload.task, answers):
            if file is not None and not file.startswith("builtin:"):
                where = "" if Path(file).is_absolute() else " beside this file"
                comment.append(f"Needs {file}{where}, as it was when the run began.")
        if its_own:
            answers = run.conversations_file.name
            comment.append(
                f"Needs {answers} beside this file: the answers between turns that everything in "
                "that run was sent; with others, a run of it is not compared with that one."
            )
            workload = sweep.workload.model_copy(update={"answers": answers})
            sweep = sweep.model_copy(update={"workload": workload})
        once = one_point_sweep(sweep, best.point)
        if plain is not None and plain.point is not None:
            once = _with_baseline_under(once, plain.point)
        write_text(run.best_yaml, sweep_text(once, comment))
    if summary.winner is not None and (command := launch_command(summary)) is not None:
        write_text(run.best_sh, launch_script(command, _warnings(summary, summary.winner)))
        run.best_sh.chmod(0o755)


def _with_prompts_in_place(sweep: Sweep, beside: str | None) -> Sweep:
    """The sweep with its own files by their whole path: best.yaml lies in another folder."""
    load = sweep.workload
    named = {"prompts": load.prompts, "task": load.task, "answers": load.answers}
    files = {k: v for k, v in named.items() if v is not None and not v.startswith("builtin:")}
    if beside is None or not files:
        return sweep
    whole = {name: str(Path(beside) / file) for name, file in files.items()}
    workload = sweep.workload.model_copy(update=whole)
    return sweep.model_copy(update={"workload": workload})


def launch_command(summary: RunSummary) -> Command | None:
    """The winner's launch; None for an endpoint, which is not launched, and without a winner."""
    if summary.winner is None or not summary.sweep.engine.launches_servers:
        return None
    if (recorded := summary.winner.record.command) is not None:
        return Command.from_json(recorded)
    config = server_config(summary.sweep, summary.winner.point)
    if summary.winner is summary.settings_only and summary.settings_only.point is not None:
        config = plain_config(summary.sweep, summary.settings_only.point)
    # In the spelling of the release that was measured, which this machine may not have.
    return make_engine(summary.sweep, summary.release).command(config)


def one_point_sweep(sweep: Sweep, point: Point) -> Sweep:
    """The same sweep with a space of one point.

    Variables that are dimensions and that the point leaves alone stay as `unset`, since that
    removes an inherited one.
    """
    names = {**dict.fromkeys(sweep.space.env, UNSET), **dict(point.env)}
    space = SpaceSpec(
        **{dimension.name: _single(getattr(point, dimension.name)) for dimension in DIMENSIONS},
        env={name: [value] for name, value in names.items()},
        flags={name: [value] for name, value in point.flags},
    )
    search = SearchSpec(
        sampler="grid", objective=sweep.search.objective, limits=sweep.search.limits
    )
    server = sweep.server.model_copy(update={"step_switch": False})  # one point has one length
    return sweep.model_copy(update={"space": space, "search": search, "server": server, "slots": 1})


def _with_baseline_under(sweep: Sweep, settings: Point) -> Sweep:
    """The sweep with the baseline under these variables and flags, and its own beside them."""
    env = {**sweep.baseline.env, **dict(settings.env)}
    flags = {**sweep.baseline.flags, **dict(settings.flags)}
    baseline = sweep.baseline.model_copy(update={"env": env, "flags": flags})
    return sweep.model_copy(update={"baseline": baseline})


def _single(value: Any) -> list[Any] | None:
    return None if value is None else [value]


def _warnings(summary: RunSummary, shown: TrialResult) -> list[str]:
    """The script's first lines: where it comes from, and what must not go to production."""
    lines = [_origin(summary, shown)]
    if artificial := summary.artificial():
        lines.append(f"Not for production as it is: {', '.join(artificial)}.")
    outputs = (
        {} if shown is summary.no_speculation else compare_outputs(summary.ledger, shown.record)
    )
    if scores := task_scores(summary, summary.ledger.confirmation(shown.record)):
        lines.append(f"The task: {scores}.")
    told = describe_outputs(outputs, shown.record.metrics)
    lines += [f"Greedy outputs against no speculation: {line}." for line in told]
    return lines


def _origin(summary: RunSummary, shown: TrialResult) -> str:
    simulated = ", simulated and not measured on hardware" if summary.simulated else ""
    return f"{shown.label}, from run {summary.sweep.name}/{summary.run.id}{simulated}"


def again_command(sweep_file: Path) -> str:
    """Return the command that measures a run's best.yaml again, as a code span."""
    return code(shlex.join(["specbench", "sweep", str(sweep_file)]))
