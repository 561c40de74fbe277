"""A ledger line as the dashboard shows it: on which axes, with what value, and what is known."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from tuner.analysis.winner import read_objective
from tuner.config.dimensions import DIMENSIONS, TARGET
from tuner.config.field_types import UNSET
from tuner.config.load_level import Rate, at, parse_level
from tuner.config.point import Point
from tuner.config.schema import Sweep, objective_levels
from tuner.config.yaml_document import shortened
from tuner.dashboard.notes import trial_note
from tuner.dashboard.shown import DashboardSchema, DashboardTrial, State
from tuner.runs.latency_limits import describe_broken_limits, excess
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run
from tuner.server.base import server_config

_BRIEF = ("configuration", "role", "trial")


def make_schema(run: Run, sweep: Sweep, points: Sequence[Point]) -> DashboardSchema:
    """A run's study: an axis for every setting in which `points` or the ledger's points differ.

    Without speculation steps, topk, tokens and the draft's TP are 0: the baseline is on every axis.
    """
    levels = objective_levels(sweep)
    names = tuple(f"speed-up {at(level)}" for level in levels)
    measured = (record.at for record in run.records() if record.role != "plain")
    own = {**dict.fromkeys(points), **dict.fromkeys(at for at in measured if at is not None)}
    axes = {name: {(type(value), value): 0} for name, value in trial_params(sweep, None).items()}
    """Values by axis, each with how many points have it; less the baseline's own."""
    for point in own:
        for name, value in trial_params(sweep, point).items():
            counts = axes.setdefault(name, {})
            counts[type(value), value] = counts.get((type(value), value), 0) + 1
    if axes.get("eagle_topk", {}).get((int, 1), 0) == len(own):  # tokens follow from num_steps
        axes.pop("num_draft_tokens", None)
    differing = [name for name, counts in axes.items() if _differs(counts.values(), len(own))]
    spec = sweep.search.objective
    over = spec.over if spec.level is None else at(spec.level)
    return DashboardSchema(
        run.id,
        run.settings.identity,
        names or (f"speed-up ({over})",),
        {name: tuple(value for _, value in axes[name]) for name in differing},
    )


def _differs(counts: Collection[int], points: int) -> bool:
    """Whether points differ on an axis, of whose values so many of them have each one."""
    had = [count for count in counts if count]
    return len(had) + (sum(had) < points) > 1


def trial_params(sweep: Sweep, point: Point | None) -> dict[str, Any]:
    """The settings of a point, or of the baseline, by the names of the sweep file."""
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


def on_axes(params: Mapping[str, Any], layout: DashboardSchema) -> dict[str, Any]:
    """A value on every axis: settings without speculation have no draft, as the baseline has 0."""
    return {axis: params.get(axis, 0) for axis in layout.axes}


def _plain(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value


def brief_trial(sweep: Sweep, layout: DashboardSchema, record: TrialRecord) -> DashboardTrial:
    """A ledger line with its parameters and its value alone."""
    values = _values(sweep, record)
    return DashboardTrial(
        params=on_axes(trial_params(sweep, record.at), layout),
        state=_state(record, values),
        values=values,
        attributes=dict(islice(_attributes(record), len(_BRIEF))),
        excess=excess(record.broken),
        note=f"Trial {record.trial}. `trials.jsonl` has its figures: there are too many to show.",
        started=datetime.fromisoformat(record.started),
    )


def shown_trial(
    run: Run, sweep: Sweep, layout: DashboardSchema, record: TrialRecord
) -> DashboardTrial:
    """A ledger line as the dashboard shows it.

    It ended, as far as the ledger tells, when its launch and its load were over.
    """
    started = datetime.fromisoformat(record.started)
    seconds = (record.launch_s or 0) + (record.measured_s or 0)
    values = _values(sweep, record)
    files = [run.relative(run.log_file(record.launch_id)), record.samples]
    return DashboardTrial(
        params=on_axes(trial_params(sweep, record.at), layout),
        state=_state(record, values),
        values=values,
        attributes=dict(_attributes(record)),
        excess=excess(record.broken),
        note=trial_note(record, sweep),
        files=tuple(file for file in files if file is not None and (run.path / file).is_file()),
        started=started,
        ended=started + timedelta(seconds=seconds),
    )


def _state(record: TrialRecord, values: tuple[float, ...]) -> State:
    if record.outcome == "ok" and values:
        return "ok"
    return "infeasible" if record.outcome == "infeasible" else "failed"


def _values(sweep: Sweep, record: TrialRecord) -> tuple[float, ...]:
    """What is maximised; 1 of the baseline, () where it was not measured."""
    levels = objective_levels(sweep)
    if record.role == "baseline":
        return (1.0,) * max(1, len(levels)) if record.outcome == "ok" else ()
    value = read_objective(record, sweep.search.objective)
    if value is None or not levels:
        return () if value is None else (value,)
    ratios = [record.metrics.get(str(level), {}).get("speedup") for level in levels]
    return tuple(value if ratio is None else ratio for ratio in ratios)


def _attributes(record: TrialRecord) -> Iterator[tuple[str, Any]]:
    """Every figure by level, `c8.output_tok_s` or `r4.` at 4 requests/s, and what is known
    besides, in few words: a long one pushes the page off the screen. The note has it whole."""
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
    """Numbers and lists with the way to them; what was not measured is left out."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(f"{name}.{key}", each)
    elif value is not None:
        yield name, value
