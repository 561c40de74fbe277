"""Which candidate of a ledger is the one to run.

The highest objective, but for five things: what the search chose by all measurements together,
what its own launch has refuted, outputs that are not the baseline's, latency limits that it breaks,
and a simpler configuration that is as good.
"""

import math
from collections.abc import Mapping
from typing import Any

from tuner.ledger.judged import BrokenLimit
from tuner.ledger.lines import Ledger
from tuner.ledger.record import TrialRecord
from tuner.search.objective import objective
from tuner.sweep.level import Level, level_of
from tuner.sweep.model import ObjectiveSpec
from tuner.sweep.point import Point

GIVEN_UP = 0.02
"""Share of the highest objective that a simpler configuration may lack, within the noise."""
_TWO_SIDED_95 = 1.96


def objective_of(record: TrialRecord, spec: ObjectiveSpec) -> float | None:
    """The objective of a candidate, None where it was not measured."""
    return _objective(record.metrics, spec) if record.outcome == "ok" else None


def held_out_objective(record: TrialRecord, spec: ObjectiveSpec) -> float | None:
    """The same on prompts that no candidate was chosen on."""
    return None if record.held_out is None else _objective(record.held_out.metrics, spec)


def _objective(metrics: Mapping[str, Mapping[str, Any]], spec: ObjectiveSpec) -> float | None:
    known = {}
    for level, figures in metrics.items():
        ratio = figures.get("speedup")
        if ratio is None:
            return None
        known[level_of(level)] = ratio
    if not known or (spec.level is not None and spec.level not in known):
        return None
    return objective(known, spec)


def fastest_candidate(
    ledger: Ledger, spec: ObjectiveSpec
) -> tuple[TrialRecord | None, float | None]:
    """The candidate to run, the first of equals, and its objective.

    The one with the highest objective, or the simplest of those that the measurements do not tell
    apart from it (`is_tied`). Where the search chose another one by all measurements together, that
    one takes the place of the highest. One that is refuted (`is_refuted`) comes last, with an
    objective of at most 1, whoever chose it.
    """
    tied = tied_candidates(ledger, spec)
    if not tied:
        return None, None
    return min(tied, key=lambda pair: (complexity(pair[0].at), -pair[1]))


def objectives(ledger: Ledger, spec: ObjectiveSpec) -> list[float | None]:
    """`objective_of` each candidate, in their order."""
    return ledger.once(
        ("objectives", spec), lambda: [objective_of(each, spec) for each in ledger.candidates]
    )


def tied_candidates(ledger: Ledger, spec: ObjectiveSpec) -> list[tuple[TrialRecord, float]]:
    """What `fastest_candidate` takes the simplest of, each with its objective; [] where none has
    one."""
    return ledger.once(("tied", spec), lambda: _tied(ledger, spec))


def _tied(ledger: Ledger, spec: ObjectiveSpec) -> list[tuple[TrialRecord, float]]:
    valued = [
        (record, value, is_refuted(ledger, record, spec))
        for record, value in zip(ledger.candidates, objectives(ledger, spec), strict=True)
        if value is not None
    ]
    if not valued:
        return []
    chosen = ledger.recommended
    record, value, refuted = max(valued, key=lambda each: (not each[2], each[0] is chosen, each[1]))
    if refuted:
        return [(record, min(value, 1.0))]
    return [
        (each, its)
        for each, its, out in valued
        if each is record or (not out and _is_tied(record, each, value, its))
    ]


def complexity(point: Point | None) -> tuple[int, ...]:
    """What a configuration asks of those who run it, the heaviest first: a plug-in in SGLang,
    settings, a tree, draft tokens, draft steps."""
    if point is None:
        return (0, 0, 0, 0, 0)
    return (
        point.draft_tp not in (None, "target"),
        len(point.env) + len(point.flags),
        (point.eagle_topk or 1) > 1,
        point.num_draft_tokens or 0,
        point.num_steps or 0,
    )


def is_tied(best: TrialRecord, other: TrialRecord, spec: ObjectiveSpec) -> bool:
    """Whether `other` is as good as `best` as far as can be told.

    Its intervals allow at every concurrency that it is no slower, its objective lacks no more than
    `GIVEN_UP`, and it beats the baseline where `best` does.
    """
    return _is_tied(best, other, objective_of(best, spec), objective_of(other, spec))


def _is_tied(best: TrialRecord, other: TrialRecord, high: float | None, low: float | None) -> bool:
    if not high or not low or low < high * (1 - GIVEN_UP) or low <= 1 < high:
        return False
    return all(
        _may_be_no_slower(figures, other.metrics.get(level, {}))
        for level, figures in best.metrics.items()
    )


def _may_be_no_slower(one: dict[str, float], other: dict[str, float]) -> bool:
    """`other` than `one`, by the intervals of their ratios to the baseline; not without them."""
    spreads = [_deviation(figures) for figures in (one, other)]
    if None in spreads:
        return False
    gap = math.log(one["speedup"] / other["speedup"])
    return gap <= _TWO_SIDED_95 * math.hypot(*(each or 0.0 for each in spreads))


def _deviation(figures: dict[str, float]) -> float | None:
    """Of the logarithm of a ratio, from its 95 % interval."""
    low, high = figures.get("speedup_low"), figures.get("speedup_high")
    if not low or not high or not 0 < low <= high:
        return None
    return math.log(high / low) / (2 * _TWO_SIDED_95)


def far_outputs(ledger: Ledger, record: TrialRecord) -> TrialRecord | None:
    """The candidate itself, or its launch of its own, where its outputs speak against it.

    They are far from the baseline's or the task's score is clearly lower; never where
    `measure.outputs` is not `stop`.
    """
    if record.is_another:
        return record
    again = ledger.confirmation(record)
    return again if again is not None and again.is_another else None


def answer_of(ledger: Ledger, spec: ObjectiveSpec) -> tuple[TrialRecord | None, float | None]:
    """What to run, and the objective of it or of the candidate that does not beat the baseline.

    The `fastest_candidate` where its objective is above 1, or its settings without speculation
    where those are as fast; None: no speculation, or nothing is known.
    """
    fastest, value = fastest_candidate(ledger, spec)
    if fastest is None or value is None or value <= 1:
        return None, value
    plain = ledger.plain(fastest)
    if plain is not None and is_beaten(ledger, fastest, plain, spec):
        return plain, objective_of(plain, spec)
    return fastest, value


def is_beaten(ledger: Ledger, best: TrialRecord, plain: TrialRecord, spec: ObjectiveSpec) -> bool:
    """Whether the winner's settings are as fast without speculation, and say what the baseline
    says. Of the winner the launch that confirmed it counts, where there is one: it was not picked
    for its figure."""
    if plain.is_another:
        return False
    again = ledger.confirmation(best)
    own = None if again is None else objective_of(again, spec)
    own = objective_of(best, spec) if own is None else own
    alone = objective_of(plain, spec)
    return own is not None and alone is not None and alone >= own


def broken_by(ledger: Ledger, record: TrialRecord) -> list[BrokenLimit]:
    """Limits of `search.limits` that a candidate breaks, or its launch of its own where itself it
    keeps them; [] where both keep them."""
    again = ledger.confirmation(record)
    return record.broken or ([] if again is None else again.broken)


def is_refuted(ledger: Ledger, record: TrialRecord, spec: ObjectiveSpec) -> bool:
    """A candidate that breaks a limit, whose outputs are far from the baseline's, or whose launch
    of its own failed or was no faster than no speculation, there or on prompts that it was not
    chosen on."""
    speaks = far_outputs(ledger, record) is not None or broken_by(ledger, record)
    return bool(speaks) or is_disproved(ledger, record, spec)


def is_refuted_at(ledger: Ledger, record: TrialRecord, spec: ObjectiveSpec, level: Level) -> bool:
    """The same of one level by itself: a limit that is broken at another one says nothing there."""
    speaks = far_outputs(ledger, record) is not None or broken_at(ledger, record, level)
    return bool(speaks) or is_disproved(ledger, record, spec)


def broken_at(ledger: Ledger, record: TrialRecord, level: Level) -> list[BrokenLimit]:
    """Of `broken_by` what is broken at one level."""
    return [each for each in broken_by(ledger, record) if str(each.concurrency) == str(level)]


def is_disproved(ledger: Ledger, record: TrialRecord, spec: ObjectiveSpec) -> bool:
    """A candidate whose launch of its own failed or was no faster than no speculation, there or on
    prompts that it was not chosen on."""
    again = ledger.confirmation(record)
    if again is None:
        return False
    values = objective_of(again, spec), held_out_objective(again, spec)
    return again.outcome != "ok" or any(value is not None and value <= 1 for value in values)
