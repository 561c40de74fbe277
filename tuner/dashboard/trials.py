"""Ledger lines as Optuna trials: parameters, objective values, attributes and files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.analysis.winner import read_objective
from tuner.config.dimensions import DIMENSIONS, TARGET
from tuner.config.field_types import UNSET
from tuner.config.load_level import Rate, at, parse_level
from tuner.config.point import Point
from tuner.config.schema import Sweep, objective_levels
from tuner.config.yaml_document import shortened
from tuner.dashboard.run_files import link_files
from tuner.runs.latency_limits import describe_broken_limits, excess
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run
from tuner.server.base import server_config


@dataclass(frozen=True)
class DashboardSchema:
    """What all trials of a study have in common."""

    objectives: tuple[str, ...]
    """Their names. All are maximised."""
    distributions: Mapping[str, BaseDistribution]
    """By parameter."""


def make_schema(run: Run, sweep: Sweep, points: Sequence[Point]) -> DashboardSchema:
    """Return the schema of a run, with a parameter for each setting that varies between points.

    The points are `points` and those of the ledger. In the baseline, settings of speculation are 0.
    """
    measured = (record.at for record in run.records() if record.role != "plain")
    own = {**dict.fromkeys(points), **dict.fromkeys(at for at in measured if at is not None)}
    rows = [trial_params(sweep, point) for point in own]
    baseline = trial_params(sweep, None)
    names = dict.fromkeys(name for row in (baseline, *rows) for name in row)
    if all(row.get("eagle_topk") == 1 for row in rows):  # then num_steps decides the tokens
        names.pop("num_draft_tokens", None)
    distributions = {}
    for name in names:
        varied = [row.get(name) for row in rows]
        if len({repr(value) for value in varied}) > 1:  # repr tells 1 from True
            # Optuna wants the same choices in all trials, also if fewer points are left on resume.
            values = [baseline.get(name, 0), *_declared(sweep, name), *varied]
            distributions[name] = _distribution([value for value in values if value is not None])
    spec = sweep.search.objective
    over = spec.over if spec.level is None else at(spec.level)
    levels = tuple(f"speed-up {at(level)}" for level in objective_levels(sweep))
    return DashboardSchema(levels or (f"speed-up ({over})",), distributions)


def _declared(sweep: Sweep, name: str) -> list[Any]:
    """Return the values of a variable or a flag in the sweep file."""
    kind, _, key = name.partition(".")
    if kind == "env":
        return list(sweep.space.env[key])
    return [_plain(value) for value in sweep.space.flags[key]] if kind == "flags" else []


def _distribution(values: Sequence[Any]) -> BaseDistribution:
    """Return a range for integers, so that plots have a scale, and choices for other values."""
    if all(type(value) is int for value in values):
        return IntDistribution(min(values), max(values))
    return CategoricalDistribution(tuple({repr(value): value for value in values}.values()))


def trial_params(sweep: Sweep, point: Point | None) -> dict[str, Any]:
    """Return the settings of a point, or of the baseline, by their names in the sweep file."""
    named: dict[str, Any] = {}
    for name in (dimension.name for dimension in DIMENSIONS):
        value = 0 if point is None else getattr(point, name)
        if value == TARGET:
            value = sweep.model.tp
        if value is not None:
            named[name] = value
    env: Mapping[str, Any]
    flags: Mapping[str, Any]
    if point is None:
        plain = server_config(sweep, None)
        env, flags = plain.env, plain.flags
    else:
        env, flags = dict(point.env), dict(point.flags)
    named |= {f"env.{name}": env.get(name, UNSET) for name in sweep.space.env}
    named |= {f"flags.{name}": _plain(flags.get(name, False)) for name in sweep.space.flags}
    return named


def _plain(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value


def make_trial(run: Run, sweep: Sweep, schema: DashboardSchema, record: TrialRecord) -> FrozenTrial:
    """Return a ledger line as a finished Optuna trial."""
    params = trial_params(sweep, record.at)
    values = _values(sweep, record)
    state = _state(record, values)
    trial = create_trial(
        state=state,
        values=list(values) if state == TrialState.COMPLETE else None,
        # Settings-only trials have no draft: their settings of speculation are 0.
        params={name: params.get(name, 0) for name in schema.distributions},
        distributions=dict(schema.distributions),
        user_attrs=dict(_attributes(record)),
        system_attrs={**_constraint(record, state), **link_files(trial_files(run, record))},
    )
    started = datetime.fromisoformat(record.started)
    seconds = (record.launch_s or 0) + (record.measured_s or 0)
    trial.datetime_start = _local(started)
    trial.datetime_complete = _local(started + timedelta(seconds=seconds))
    return trial


def trial_files(run: Run, record: TrialRecord) -> list[str]:
    """Return the server's log and the raw samples of a trial, as paths in the run folder."""
    files = (run.relative(run.log_file(record.launch_id)), record.samples)
    return [file for file in files if file is not None and (run.path / file).is_file()]


def _local(moment: datetime) -> datetime:
    """Return a time as Optuna keeps it: in this machine's zone, without naming the zone."""
    return moment.astimezone().replace(tzinfo=None)


def _state(record: TrialRecord, values: tuple[float, ...]) -> TrialState:
    if record.outcome == "ok" and values:
        return TrialState.COMPLETE
    return TrialState.PRUNED if record.outcome == "infeasible" else TrialState.FAIL


def _constraint(record: TrialRecord, state: TrialState) -> dict[str, list[float]]:
    """Return the constraint, above 0 for an infeasible trial, under the name that
    optuna-dashboard reads. It does not read what Optuna's `set_constraint` writes."""
    if state == TrialState.FAIL:
        return {}
    return {"constraints": [1.0 if state == TrialState.PRUNED else excess(record.broken)]}


def _values(sweep: Sweep, record: TrialRecord) -> tuple[float, ...]:
    """Return the objective values: 1 for the baseline, () for a trial without figures."""
    levels = objective_levels(sweep)
    if record.role == "baseline":
        return (1.0,) * max(1, len(levels)) if record.outcome == "ok" else ()
    value = read_objective(record, sweep.search.objective)
    if value is None or not levels:
        return () if value is None else (value,)
    ratios = [record.metrics.get(str(level), {}).get("speedup") for level in levels]
    return tuple(value if ratio is None else ratio for ratio in ratios)


def _attributes(record: TrialRecord) -> Iterator[tuple[str, Any]]:
    """Yield what is known of a trial, and every figure: `c8.output_tok_s` at concurrency 8,
    `r4.output_tok_s` at 4 requests/s. Long texts are shortened; the note has them whole."""
    yield "configuration", "no speculation" if record.at is None else record.at.label()
    yield "role", record.role
    yield "trial", record.trial
    yield "launch", record.launch_id
    if record.failure is not None:
        yield "reason", shortened(f"{record.failure}: {record.message}")
    if record.decision is not None:
        yield "stage", record.decision.stage
        if record.decision.predicted is not None:
            yield "predicted", record.decision.predicted
    for name in ("launch_s", "measured_s"):
        if (value := getattr(record, name)) is not None:
            yield name, value
    if record.broken:
        yield "limits", shortened(describe_broken_limits(record.broken, record.metrics))
    yield "doubts", sum(check.get("level") == "doubt" for check in record.checks)
    for level, figures in record.metrics.items():
        is_rate = isinstance(parse_level(level), Rate)
        yield from _flat(f"r{level[:-2]}" if is_rate else f"c{level}", figures)


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the numbers and lists inside a value by their dotted names, without None."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner)
    elif value is not None:
        yield name, value
