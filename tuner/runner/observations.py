"""From the ledger to the study: what was measured, as the search is to know it."""

import math
from collections.abc import Callable, Mapping
from typing import cast

from tuner.analysis.winner import read_objective
from tuner.config.load_level import Level, at, parse_level
from tuner.config.loader import LoadedSweep
from tuner.config.point import Point
from tuner.config.schema import ObjectiveSpec, objective_levels
from tuner.core.errors import UserError
from tuner.core.secrets import hidden_word
from tuner.dashboard.shown import DashboardSchema
from tuner.dashboard.study import StoredStudy, open_own_study
from tuner.metrics.statistics import Interval
from tuner.runs.latency_limits import describe_broken_limits, excess
from tuner.runs.records import AskedLine, Before, DecisionLine, TrialRecord
from tuner.runs.run import Run
from tuner.search.asked import ProposalContext
from tuner.search.decision import Decision, Stage
from tuner.search.observation import LevelFigures, Observation
from tuner.search.optuna_storage import GIVE_URL, StorageUnusable
from tuner.search.optuna_study import Study
from tuner.search.samplers import missing_library
from tuner.workers.worker import Worker

Note = Callable[[str], None]
"""Tells the user a sentence."""


_NO_LEVELS: Mapping[Level, LevelFigures] = {}


def make_study(
    loaded: LoadedSweep,
    run: Run,
    note: Note,
    timed: Mapping[Point, float] | None = None,
    together: Worker | None = None,
) -> Study:
    """The study where the ledger left it; `timed` is what the stage comm found.

    A worker's study knows what its ledger and the others have, in no order that could be replayed.
    """
    spec, candidates = loaded.sweep.search, run.ledger().candidates
    extended = run.settings.wanted > run.settings.trials
    study = Study(
        loaded.space,
        spec,
        run.settings.trials,
        persists=extended,
        timed=timed,
        levels=objective_levels(loaded.sweep),
    )
    if (baseline := run.ledger().baseline) is not None:
        study.tell_baseline(_levels(baseline))
    own = {point: point for point in loaded.space.points}  # one object for each
    lines = [(own.get(at, at), each) for each in candidates if (at := each.at) is not None]
    whole = study.reads_levels
    measured = [(at, to_observation(each, spec.objective, levels=whole)) for at, each in lines]
    if together is not None:
        for point, verdict in measured:
            study.tell_unasked(point, verdict)
        together.begin(study, measured, spec.max_failures)
        return study
    unasked = {point for point, record in lines if not record.proposed}
    asked = {point: _asked(record.asked) for point, record in lines if record.asked is not None}
    decided = {
        point: _decision(point, record.decision)
        for point, record in lines
        if record.decision is not None
    }
    if differing := study.replay(measured, unasked, asked, decided):
        note(
            f"{differing} of {len(measured)} earlier points are not what this version of specbench "
            "proposes; they count, but the run is not what an undisturbed one would have been"
        )
    return study


def ledger_line(asked: ProposalContext) -> AskedLine:
    """What a proposal rests on, as its ledger line keeps it."""
    beside = [
        Before(number=each.number, after=each.after, along=[p.to_json() for p in each.along])
        for each in asked.beside
    ]
    along = [point.to_json() for point in asked.along]
    drawn = list(map(list, asked.drawn))
    return AskedLine(
        number=asked.number, after=asked.after, along=along, beside=beside, drawn=drawn
    )


def _asked(line: AskedLine | Before) -> ProposalContext:
    along = tuple(map(Point.from_json, line.along))
    if isinstance(line, Before):
        return ProposalContext(line.number, line.after, along)
    beside, drawn = tuple(map(_asked, line.beside)), tuple(map(tuple, line.drawn))
    return ProposalContext(line.number, line.after, along, beside, drawn)


def _decision(point: Point, line: DecisionLine) -> Decision:
    predicted = None
    if line.predicted is not None:
        predicted = Interval(line.predicted, line.predicted_low, line.predicted_high)
    stage = cast(Stage, line.stage)  # of another version: nothing that it would come back to
    return Decision(stage, line.why, point, predicted, excluded=line.excluded)


def stored_study(
    loaded: LoadedSweep, run: Run, layout: DashboardSchema, note: Note
) -> StoredStudy | None:
    """The study for the dashboard, made anew: it is derived. None where there cannot be one, which
    does not stop a run.

    A `search.storage` that does not work stops a run that has measured nothing yet: then the
    mistake in the sweep file can still be mended.
    """
    url = loaded.sweep.search.storage
    if url is None:
        stored, trouble = open_own_study(run.study_file, layout)
        if trouble is not None:
            note(trouble)
        return stored
    try:
        return StoredStudy(url, layout)
    except StorageUnusable as error:
        if not run.ledger().records:
            raise storage_refused(loaded, error) from error
        shown = hidden_word(url)
        note(f"search.storage: {shown} cannot be used ({error}), the run goes on without it")
        return None


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
        raise loaded.document().error(("search", "sampler"), message)


def storage_refused(loaded: LoadedSweep, error: StorageUnusable) -> UserError:
    """The refusal of `search.storage`, at its line."""
    url = hidden_word(loaded.sweep.search.storage or "")
    message = f"{url} cannot be used ({error}), {GIVE_URL}"
    return loaded.document().error(("search", "storage"), message)
