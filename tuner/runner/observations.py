"""From the ledger to the study: what was measured, as the search is to know it."""

import math
from collections.abc import Callable, Mapping
from typing import cast

from tuner.analysis.winner import read_objective
from tuner.config.load_level import Level, at, parse_level
from tuner.config.loader import LoadedSweep
from tuner.config.point import Point
from tuner.config.schema import ObjectiveSpec, objective_levels
from tuner.metrics.statistics import Interval
from tuner.runs.latency_limits import describe_broken_limits, excess
from tuner.runs.records import DecisionLine, TrialRecord
from tuner.runs.run import Run
from tuner.search.decision import Decision, Stage
from tuner.search.observation import LevelFigures, Observation
from tuner.search.optuna_study import Study
from tuner.search.samplers import missing_library
from tuner.workers.worker import Worker

Note = Callable[[str], None]
"""Tells the user a sentence."""


_NO_LEVELS: Mapping[Level, LevelFigures] = {}


def make_study(
    loaded: LoadedSweep,
    run: Run,
    timed: Mapping[Point, float] | None = None,
    together: Worker | None = None,
) -> Study:
    """Return a study that knows every recorded trial; `timed` is the result of the stage comm.

    A worker's study also knows what the other workers have measured.
    """
    spec = loaded.sweep.search
    study = Study(
        loaded.space,
        spec,
        run.settings.trials,
        persists=run.settings.wanted > run.settings.trials,
        timed=timed,
        levels=objective_levels(loaded.sweep),
    )
    if (baseline := run.ledger().baseline) is not None:
        study.tell_baseline(_levels(baseline))
    points = {point: point for point in loaded.space.points}  # one object for each
    measured = []
    for record in run.ledger().candidates:
        if (point := record.at) is None:
            continue
        point = points.get(point, point)
        observation = to_observation(record, spec.objective, levels=study.reads_levels)
        study.add(point, observation, _decision(point, record.decision))
        measured.append((point, observation))
    if together is not None:
        together.begin(study, measured, spec.max_failures)
    return study


def _decision(point: Point, line: DecisionLine | None) -> Decision | None:
    if line is None:
        return None
    predicted = None
    if line.predicted is not None:
        predicted = Interval(line.predicted, line.predicted_low, line.predicted_high)
    stage = cast(Stage, line.stage)  # of another version: nothing that it would come back to
    return Decision(stage, line.why, point, predicted, excluded=line.excluded)


def to_observation(record: TrialRecord, spec: ObjectiveSpec, *, levels: bool = True) -> Observation:
    """What a ledger line says to the search; its figures by level only with `levels`."""
    if record.outcome == "infeasible":
        return Observation("infeasible", reason=f"{record.failure}: {record.message}")
    if (level := record.divergent_outputs) is not None:  # its speed and counts are of wrong tokens
        return Observation("infeasible", reason=f"outputs {at(level)} are far from the baseline's")
    if record.outcome != "ok":
        return Observation("failed", reason=f"{record.failure}: {record.message}")
    value = read_objective(record, spec)
    if value is None:
        return Observation("failed", reason=f"{spec.metric} was not measured")
    over = excess(record.broken)
    return Observation(
        "ok",
        value,
        f"limits: {describe_broken_limits(record.broken, record.metrics)}" if over else None,
        _levels(record) if levels else _NO_LEVELS,
        over,
        _spread(record),
    )


def _levels(record: TrialRecord) -> Mapping[Level, LevelFigures]:
    return {
        parse_level(level): LevelFigures(
            figures.get("cycle_ms"),
            figures.get("accept_length"),
            tuple(figures.get("accept_rate_by_position") or ()),
            figures.get("speedup"),
        )
        for level, figures in record.metrics.items()
    }


def _spread(record: TrialRecord) -> float | None:
    """Relative standard deviation of the speed-up by its 95 % intervals, the widest level's."""
    spreads = []
    for figures in record.metrics.values():
        low, high = figures.get("speedup_low"), figures.get("speedup_high")
        if low and high and 0 < low <= high:
            spreads.append(math.log(high / low) / (2 * 1.96))
    return max(spreads, default=None)


def refuse_missing_library(loaded: LoadedSweep) -> None:
    """Raises UserError, at its line, where the sampler needs what is not installed."""
    if (message := missing_library(loaded.sweep.search)) is not None:
        raise loaded.document.error(("search", "sampler"), message)
