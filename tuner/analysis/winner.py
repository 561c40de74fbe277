"""Which candidate of a ledger is the one to run.

The highest objective, but for five things: what the search chose by all measurements together,
where launches bear that out, what its own launch has refuted, outputs that are not the baseline's,
latency limits that it breaks, and a simpler configuration that is as good.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.analysis.equivalence import Ratio, by_lines, measured_levels, objective_ratio
from tuner.config.load_level import Level, parse_level
from tuner.config.point import Point
from tuner.config.schema import ObjectiveSpec
from tuner.runs.ledger import Ledger
from tuner.runs.records import BrokenLimit, TrialRecord
from tuner.search.decision import Decision
from tuner.search.objective import objective

GIVEN_UP = 0.02
"""Share of the highest objective that a simpler configuration may lack, within the noise."""
LESS_SURELY = 0.01
"""The same by all measurements together, which are off by about as much themselves: so what is
truly given up stays near `GIVEN_UP`."""


def fastest_candidate(
    ledger: Ledger, spec: ObjectiveSpec, ratio: Ratio = by_lines
) -> tuple[TrialRecord | None, float | None]:
    """The candidate to run, the first of equals, and its objective.

    The one with the highest objective, or the simplest of those that the measurements do not tell
    apart from it (`is_tied`). Where the search chose another one by all measurements together and
    that one's own launch bears it out (`leading`), it takes the place of the highest. Whatever was
    found so gives way to one that is at least as simple and has a figure at least as high. None
    that is slower by all measurements together (`falls_short`) takes another one's place. One that
    is refuted (`is_refuted`) comes last, with an objective of at most 1, whoever chose it.

    `ratio`: how two candidates compare at a level, for what is told apart.
    """
    tied = tied_candidates(ledger, spec, ratio)
    if not tied:
        return None, None
    best, standing = min(tied, key=_simplest), standing_candidates(ledger, spec)
    first = leading(ledger, standing, spec) if standing else best
    better = _better(ledger, standing, best, spec, first[0])
    return min(better, key=_simplest, default=best)


def _simplest(pair: tuple[TrialRecord, float]) -> tuple[tuple[int, ...], float]:
    return complexity(pair[0].at), -pair[1]


def tied_candidates(
    ledger: Ledger, spec: ObjectiveSpec, ratio: Ratio = by_lines
) -> list[tuple[TrialRecord, float]]:
    """What `fastest_candidate` takes the simplest of, each with its objective; [] where none has
    one."""
    standing = standing_candidates(ledger, spec)
    if not standing:
        # What the search chose counts here too: it is what was refuted last.
        chosen = ledger.recommended
        order = max(valued(ledger, spec), key=lambda e: (e[0] is chosen, e[1]), default=None)
        return [] if order is None else [(order[0], min(order[1], 1.0))]
    top = first, _ = leading(ledger, standing, spec)
    near = [pair for pair in standing if not falls_short(ledger, pair[0], first)]
    return [pair for pair in near if pair[0] is first or _is_tied(top, pair, spec, ratio)]


def falls_short(ledger: Ledger, record: TrialRecord, of: TrialRecord) -> bool:
    """Whether a candidate lacks more than `LESS_SURELY` of another one by all measurements
    together, whatever one launch of each says; False where the search has no such figure of one."""
    its, others = (ledger.smoothed.get(each.trial) for each in (record, of))
    return its is not None and others is not None and its < others * (1 - LESS_SURELY)


def standing_candidates(ledger: Ledger, spec: ObjectiveSpec) -> list[tuple[TrialRecord, float]]:
    """Candidates that may be recommended, each with its objective, in the order measured."""

    def found() -> list[tuple[TrialRecord, float]]:
        return [pair for pair in valued(ledger, spec) if not is_refuted(ledger, pair[0], spec)]

    return ledger.once(("standing", spec), found)


def leading(
    ledger: Ledger, standing: list[tuple[TrialRecord, float]], spec: ObjectiveSpec
) -> tuple[TrialRecord, float]:
    """Of the candidates that stand, at least one, whom the others are held against.

    The highest figure, or what the search chose by all measurements together. The latter not where
    one that is at least as simple has a figure as high as the choice's launches have together: a
    model's word against a measurement needs a measurement.
    """
    chosen = ledger.recommended
    own = next((pair for pair in standing if pair[0] is chosen), None)
    if own is None or _better(ledger, standing, own, spec, own[0]):
        return max(standing, key=lambda pair: pair[1])
    return own


def _better(
    ledger: Ledger,
    standing: list[tuple[TrialRecord, float]],
    than: tuple[TrialRecord, float],
    spec: ObjectiveSpec,
    first: TrialRecord,
) -> list[tuple[TrialRecord, float]]:
    """Those that are at least as simple, have a figure at least as high and do not fall short of
    `first`; beside the search's choice the figures are those of all launches together."""
    best, least = than
    by_all = best is ledger.recommended
    if by_all:
        least = _figure(ledger, best, spec)
    return [
        (each, its)
        for each, its in standing
        if each is not best
        and not falls_short(ledger, each, first)
        and (_figure(ledger, each, spec) if by_all else its) >= least
        and complexity(each.at) <= complexity(best.at)
    ]


def _figure(ledger: Ledger, record: TrialRecord, spec: ObjectiveSpec) -> float:
    """The geometric mean of a candidate's objective and that of its launch of its own, if any."""
    values = launch_objectives(ledger, record, spec)
    return math.prod(values) ** (1 / len(values))


def launch_objectives(ledger: Ledger, record: TrialRecord, spec: ObjectiveSpec) -> list[float]:
    """The objectives of a measured candidate: of its trial, and of its launch of its own where
    there is one. One that was measured on a shared server has the first alone: the other is of
    another server, which those it is held against did not have."""
    again = None if record.warm_steps else ledger.confirmation(record)
    found = [read_objective(record, spec), None if again is None else read_objective(again, spec)]
    return [each for each in found if each is not None]


def complexity(point: Point | None) -> tuple[int, ...]:
    """What a configuration asks of those who run it, the heaviest first: a plug-in in SGLang,
    settings, a tree, draft tokens, draft steps."""
    return (Point() if point is None else point).complexity


def is_tied(
    best: TrialRecord, other: TrialRecord, spec: ObjectiveSpec, ratio: Ratio = by_lines
) -> bool:
    """Whether `other` is as good as `best` as far as can be told.

    It is not told apart from it by the objective, which lacks no more than `GIVEN_UP`; the
    intervals allow at every concurrency that it is no slower; and it beats the baseline where
    `best` does. One with a higher objective may surely be the better one.
    """
    high, low = read_objective(best, spec), read_objective(other, spec)
    if high is None or low is None:
        return False
    return _is_tied((best, high), (other, low), spec, ratio)


def _is_tied(
    best: tuple[TrialRecord, float],
    other: tuple[TrialRecord, float],
    spec: ObjectiveSpec,
    ratio: Ratio,
) -> bool:
    (one, high), (two, low) = best, other
    if not high or not low or low < high * (1 - GIVEN_UP) or low <= 1 < high:
        return False
    overall = objective_ratio(one, two, spec, ratio)
    return all(
        each is not None and each.high is not None and each.high >= 1
        for each in (overall, *(ratio(one, two, level) for level in measured_levels(one)))
    )


def find_answer(
    ledger: Ledger, spec: ObjectiveSpec, ratio: Ratio = by_lines
) -> tuple[TrialRecord | None, float | None]:
    """What to run, and the objective of it or of the candidate that does not beat the baseline.

    The `fastest_candidate` where its objective is above 1, or its settings without speculation
    where those are as fast; None: no speculation, or nothing is known.
    """
    fastest, value = fastest_candidate(ledger, spec, ratio)
    if fastest is None or value is None or value <= 1:
        return None, value
    plain = ledger.plain(fastest)
    if plain is not None and is_beaten(ledger, fastest, plain, spec):
        return plain, read_objective(plain, spec)
    return fastest, value


def is_beaten(ledger: Ledger, best: TrialRecord, plain: TrialRecord, spec: ObjectiveSpec) -> bool:
    """Whether the winner's settings are as fast without speculation, and say what the baseline
    says. Of the winner the launch that confirmed it counts, where there is one: it was not picked
    for its figure."""
    if plain.is_disqualified:
        return False
    again = ledger.confirmation(best)
    own = None if again is None else read_objective(again, spec)
    own = read_objective(best, spec) if own is None else own
    alone = read_objective(plain, spec)
    return own is not None and alone is not None and alone >= own


MAX_CONFIRMED = 3
"""Winners that are launched once more, where each one's own launch refutes it."""


Recommended = tuple[Point, Decision]
"""The search's choice by all measurements together, and why."""


def as_weighed(ledger: Ledger, recommended: Recommended | None) -> Ledger:
    """The same with what the search makes of its candidates by all measurements together."""
    if recommended is None:
        return ledger
    smoothed = recommended[1].smoothed
    measured = [(each.trial, each.at) for each in ledger.candidates if each.outcome == "ok"]
    weighed = {trial: smoothed[at] for trial, at in measured if at is not None and at in smoothed}
    return replace(ledger, weighed=weighed)


def find_winner(ledger: Ledger, spec: ObjectiveSpec, ratio: Ratio) -> TrialRecord | None:
    """The candidate to run; None where that does not beat the baseline."""
    fastest, value = fastest_candidate(ledger, spec, ratio)
    return fastest if value is not None and value > 1 else None


def once_more(
    ledger: Ledger,
    spec: ObjectiveSpec,
    ratio: Ratio,
    recommended: Recommended | None,
) -> tuple[TrialRecord, Decision | None] | None:
    """The candidate whose own launch is next; None where none beats the baseline.

    The winner; or what the search recommends by all measurements together, with the search's
    decision, where that is another one, would be the answer if its own launch bears it out, and no
    such choice has been launched yet.
    """
    fastest = find_winner(ledger, spec, ratio)
    if fastest is None:
        return None
    if recommended is not None and not ledger.recommended:
        point, decision = recommended
        chosen = next((each for each in reversed(ledger.candidates) if each.at == point), None)
        if chosen is not None and _is_better(chosen, fastest, ledger, spec, ratio):
            return chosen, decision
    return fastest, None


def _is_better(
    chosen: TrialRecord,
    fastest: TrialRecord,
    ledger: Ledger,
    spec: ObjectiveSpec,
    ratio: Ratio,
) -> bool:
    """Whether the search's choice would be the answer if its own launch bears it out.

    Not where a race has cut it short, or where the answer so far is a simpler equal of it.
    """
    if chosen.trial == fastest.trial or chosen.fell_behind or is_refuted(ledger, chosen, spec):
        return False
    return not (
        is_tied(chosen, fastest, spec, ratio)
        and complexity(fastest.at) <= complexity(chosen.at)
        and not falls_short(ledger, fastest, chosen)
    )


def read_objective(record: TrialRecord, spec: ObjectiveSpec) -> float | None:
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
        known[parse_level(level)] = ratio
    if not known or (spec.level is not None and spec.level not in known):
        return None
    return objective(known, spec)


def objectives(ledger: Ledger, spec: ObjectiveSpec) -> list[float | None]:
    """`read_objective` each candidate, in their order."""
    return ledger.once(
        ("objectives", spec), lambda: [read_objective(each, spec) for each in ledger.candidates]
    )


def valued(ledger: Ledger, spec: ObjectiveSpec) -> list[tuple[TrialRecord, float]]:
    """The measured candidates, each with its objective, in the order measured."""
    pairs = zip(ledger.candidates, objectives(ledger, spec), strict=True)
    return [(record, value) for record, value in pairs if value is not None]


def divergent_outputs(ledger: Ledger, record: TrialRecord) -> TrialRecord | None:
    """The candidate itself, or its launch of its own, where its outputs speak against it.

    They are far from the baseline's or the task's score is clearly lower; never where
    `measure.outputs` is not `stop`.
    """
    if record.is_disqualified:
        return record
    again = ledger.confirmation(record)
    return again if again is not None and again.is_disqualified else None


def broken_by(ledger: Ledger, record: TrialRecord) -> list[BrokenLimit]:
    """Limits of `search.limits` that a candidate breaks, or its launch of its own where itself it
    keeps them; [] where both keep them."""
    again = ledger.confirmation(record)
    return record.broken or ([] if again is None else again.broken)


def is_refuted(ledger: Ledger, record: TrialRecord, spec: ObjectiveSpec) -> bool:
    """A candidate that breaks a limit, whose outputs are far from the baseline's, or whose launch
    of its own failed or was no faster than no speculation, there or on prompts that it was not
    chosen on."""
    if ledger.confirmation(record) is None:  # nearly all: nothing but the line itself speaks
        return bool(record.broken) or record.is_disqualified
    speaks = divergent_outputs(ledger, record) is not None or broken_by(ledger, record)
    return bool(speaks) or is_disproved(ledger, record, spec)


def is_refuted_at(ledger: Ledger, record: TrialRecord, spec: ObjectiveSpec, level: Level) -> bool:
    """The same of one level by itself: a limit that is broken at another one says nothing there."""
    if not record.broken and ledger.confirmation(record) is None:
        return record.is_disqualified
    speaks = divergent_outputs(ledger, record) is not None or broken_at(ledger, record, level)
    return bool(speaks) or is_disproved(ledger, record, spec)


def broken_at(ledger: Ledger, record: TrialRecord, level: Level) -> list[BrokenLimit]:
    """Of `broken_by` what is broken at one level."""
    broken = broken_by(ledger, record)
    return [each for each in broken if str(each.concurrency) == str(level)] if broken else broken


def is_disproved(ledger: Ledger, record: TrialRecord, spec: ObjectiveSpec) -> bool:
    """A candidate whose launch of its own failed or was no faster than no speculation, there or on
    prompts that it was not chosen on."""
    again = ledger.confirmation(record)
    if again is None:
        return False
    values = read_objective(again, spec), held_out_objective(again, spec)
    return again.outcome != "ok" or any(value is not None and value <= 1 for value in values)
