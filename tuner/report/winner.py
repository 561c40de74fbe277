"""What the user takes to production: best.yaml and best.sh."""

from pathlib import Path
from typing import Any

from tuner.engine.base import Command, server_config
from tuner.engine.make import make_engine
from tuner.engine.script import launch_script
from tuner.ledger.output_words import outputs_words
from tuner.report.findings import Findings, Measured
from tuner.report.outputs import scores_of
from tuner.result import outputs_of
from tuner.sweep.fields import UNSET
from tuner.sweep.model import SearchSpec, SpaceSpec, Sweep
from tuner.sweep.point import Point
from tuner.sweep.writer import sweep_text


def write_winner(findings: Findings) -> None:
    """Write best.yaml and best.sh into the run folder, as far as the run has them.

    best.yaml is the best candidate's sweep, also where no speculation was faster (it says so on
    top). best.sh launches what was fastest; an endpoint has no launch, so no best.sh.
    """
    run, best = findings.run, findings.best
    if best is not None and best.point is not None:
        comment = [_origin(findings, best)]
        if findings.winner is findings.baseline:
            comment.append("No speculation was faster than every candidate: best.sh launches that.")
        sweep = _with_prompts_in_place(findings.sweep, run.settings.beside)
        for file in (sweep.workload.prompts, sweep.workload.task):
            if file is not None and not file.startswith("builtin:"):
                where = "" if Path(file).is_absolute() else " beside this file"
                comment.append(f"Needs {file}{where}, as it was when the run began.")
        text = sweep_text(one_point_sweep(sweep, best.point), comment)
        run.best_yaml.write_text(text, encoding="utf-8")
    if findings.winner is not None and (command := launch_command(findings)) is not None:
        run.best_sh.write_text(
            launch_script(command, _warnings(findings, findings.winner)), encoding="utf-8"
        )
        run.best_sh.chmod(0o755)


def _with_prompts_in_place(sweep: Sweep, beside: str | None) -> Sweep:
    """The sweep with its own files by their whole path: best.yaml lies in another folder."""
    named = {"prompts": sweep.workload.prompts, "task": sweep.workload.task}
    files = {k: v for k, v in named.items() if v is not None and not v.startswith("builtin:")}
    if beside is None or not files:
        return sweep
    whole = {name: str(Path(beside) / file) for name, file in files.items()}
    workload = sweep.workload.model_copy(update=whole)
    return sweep.model_copy(update={"workload": workload})


def launch_command(findings: Findings) -> Command | None:
    """The winner's launch; None for an endpoint, which is not launched, and without a winner."""
    if findings.winner is None or findings.sweep.engine.kind == "endpoint":
        return None
    if (recorded := findings.winner.record.command) is not None:
        return Command.from_json(recorded)
    config = server_config(findings.sweep, findings.winner.point)
    # In the spelling of the release that was measured, which this machine may not have.
    return make_engine(findings.sweep, findings.release).command(config)


def one_point_sweep(sweep: Sweep, point: Point) -> Sweep:
    """The same sweep with a space of one point.

    Variables that are dimensions and that the point leaves alone stay as `unset`, since that
    removes an inherited one.
    """
    names = {**dict.fromkeys(sweep.space.env, UNSET), **dict(point.env)}
    space = SpaceSpec(
        num_steps=_single(point.num_steps),
        eagle_topk=_single(point.eagle_topk),
        num_draft_tokens=_single(point.num_draft_tokens),
        draft_tp=_single(point.draft_tp),
        env={name: [value] for name, value in names.items()},
        flags={name: [value] for name, value in point.flags},
    )
    search = SearchSpec(
        sampler="grid", objective=sweep.search.objective, limits=sweep.search.limits
    )
    server = sweep.server.model_copy(update={"step_switch": False})  # one point has one length
    return sweep.model_copy(update={"space": space, "search": search, "server": server})


def _single(value: Any) -> list[Any] | None:
    return None if value is None else [value]


def _warnings(findings: Findings, shown: Measured) -> list[str]:
    """The script's first lines: where it comes from, and what must not go to production."""
    lines = [_origin(findings, shown)]
    if artificial := findings.artificial():
        lines.append(f"Not for production as it is: {', '.join(artificial)}.")
    outputs = {} if shown is findings.baseline else outputs_of(findings.ledger, shown.record)
    if scores := scores_of(findings, findings.ledger.confirmation(shown.record)):
        lines.append(f"The task: {scores}.")
    lines += [f"Greedy outputs against no speculation: {line}." for line in outputs_words(outputs)]
    return lines


def _origin(findings: Findings, shown: Measured) -> str:
    simulated = ", simulated and not measured on hardware" if findings.simulated else ""
    return f"{shown.label}, from run {findings.sweep.name}/{findings.run.id}{simulated}"
