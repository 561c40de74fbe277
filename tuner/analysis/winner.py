"""Which candidate of a ledger is the winner: eligible -> leader -> indistinguishable -> simplest.

- eligible: candidates with an objective that nothing refutes (`is_refuted`).
- leader: the eligible candidate with the highest objective. The search's choice, which is made
  from all measurements together, leads if its own launch bears that out.
- indistinguishable: eligible candidates that the measurements do not tell from the leader.
- simplest: of these, the configuration that is easiest to run (`complexity`) is the winner.

Success is judged on the leader: a tie with a leader above 1 must be above 1 as well.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Any, NamedTuple

from tuner.analysis.equivalence import Ratio, by_lines, measured_levels, objective_ratio
from tuner.config.load_level import Level, parse_level
from tuner.config.point import Point
from tuner.config.schema import ObjectiveSpec
from tuner.runs.ledger import Ledger
from tuner.runs.records import BrokenLimit, TrialRecord
from tuner.search.decision import Decision
from tuner.search.objective import objective

GIVEN_UP = 0.02
"""Share of the leader's objective that a simpler configuration may lack, within the noise."""
LESS_SURELY = 0.01
"""The same share by the pooled figures. They are off by about as much themselves, so what a user
truly gives up stays near `GIVEN_UP`."""
MAX_CONFIRMED = 3
"""Winners that get a confirming launch, if each launch refutes its winner."""

Pooled = Mapping[int, float]
"""Objectives by trial that the search's model estimates from all measurements together."""
Recommended = tuple[Point, Decision]
"""The search's choice by all measurements together, and the reason."""


class Scored(NamedTuple):
    """A candidate and its objective."""

    record: TrialRecord
    value: float


@dataclass(frozen=True)
class Selection:
    """The steps from the candidates of a ledger to the winner."""

    ledger: Ledger
    spec: ObjectiveSpec
    ratio: Ratio = by_lines
    """How two candidates compare at one load level."""
    pooled: Pooled = field(default_factory=dict)

    @cached_property
    def eligible(self) -> Sequence[Scored]:
        """Candidates that may be recommended, in the order measured."""
        return eligible_candidates(self.ledger, self.spec)

    @cached_property
    def leader(self) -> Scored | None:
        """The candidate that the others are compared with. Returns None if none is eligible.

        The search's choice does not lead if an eligible candidate is at least as simple and has
        measured at least as much: an estimate does not overrule a measurement.
        """
        choice = confirmed_choice(self.ledger)
        chosen = next((scored for scored in self.eligible if scored.record is choice), None)
        if chosen is not None and not any(self._dominates(s, chosen) for s in self.eligible):
            return chosen
        others = (scored for scored in self.eligible if scored is not chosen)
        return max(others, key=lambda scored: scored.value, default=None)

    def _dominates(self, other: Scored, chosen: Scored) -> bool:
        """Return True if `other` is at least as simple and as fast as the search's choice."""
        return (
            other is not chosen
            and complexity(other.record.at) <= complexity(chosen.record.at)
            and self._mean(other.record) >= self._mean(chosen.record)
            and not falls_short(self.pooled, other.record, chosen.record)
        )

    def _mean(self, record: TrialRecord) -> float:
        """Return the geometric mean of the objectives of a candidate's launches."""
        values = launch_objectives(self.ledger, record, self.spec)
        return math.prod(values) ** (1 / len(values))

    @cached_property
    def indistinguishable(self) -> Sequence[Scored]:
        """The leader and the eligible candidates that are tied with it."""
        leader = self.leader
        if leader is None:
            return []
        return [s for s in self.eligible if s is leader or self.is_tied(leader, s)]

    def is_tied(self, best: Scored, other: Scored) -> bool:
        """Return True if `other` is as good as `best` by the pooled figures and by `is_tied`."""
        if falls_short(self.pooled, other.record, best.record):
            return False
        return _is_tied(best, other, self.spec, self.ratio)

    @cached_property
    def simplest(self) -> Scored | None:
        """The winner. Returns None if no candidate is eligible."""
        return min(
            self.indistinguishable, key=lambda s: (complexity(s.record.at), -s.value), default=None
        )

    @property
    def winner(self) -> Scored | None:
        """The simplest of the tied candidates, or a refuted one with an objective of at most 1.

        A report describes the refuted candidate if no candidate is eligible.
        """
        if self.simplest is not None:
            return self.simplest
        choice = confirmed_choice(self.ledger)
        refuted = scored_candidates(self.ledger, self.spec)
        last = max(refuted, key=lambda s: (s.record is choice, s.value), default=None)
        return None if last is None else Scored(last.record, min(last.value, 1.0))


def fastest_candidate(
    ledger: Ledger, spec: ObjectiveSpec, ratio: Ratio = by_lines, pooled: Pooled | None = None
) -> tuple[TrialRecord | None, float | None]:
    """Return the winner among the candidates and its objective, above 1 or not.

    `pooled`: estimates to use in place of those that the ledger has.
    """
    pooled = pooled_figures(ledger) if pooled is None else pooled
    return Selection(ledger, spec, ratio, pooled).winner or (None, None)


def find_winner(
    ledger: Ledger, spec: ObjectiveSpec, ratio: Ratio, pooled: Pooled | None = None
) -> TrialRecord | None:
    """Return the winner among the candidates. Returns None if it does not beat the baseline."""
    fastest, value = fastest_candidate(ledger, spec, ratio, pooled)
    return fastest if value is not None and value > 1 else None


def find_answer(
    ledger: Ledger, spec: ObjectiveSpec, ratio: Ratio = by_lines, pooled: Pooled | None = None
) -> tuple[TrialRecord | None, float | None]:
    """Return what to run, and its objective.

    This is the winner, or its settings without speculation if they are as fast. The record is None
    if nothing beats the baseline; the objective is then that of the candidate that does not.
    """
    fastest, value = fastest_candidate(ledger, spec, ratio, pooled)
    if fastest is None or value is None or value <= 1:
        return None, value
    plain = ledger.plain(fastest)
    if plain is not None and is_beaten(ledger, fastest, plain, spec):
        return plain, read_objective(plain, spec)
    return fastest, value


def is_beaten(ledger: Ledger, best: TrialRecord, plain: TrialRecord, spec: ObjectiveSpec) -> bool:
    """Return True if the winner's settings are as fast without speculation.

    The winner's confirmation counts, if there is one: it was not picked for its figure. Settings
    that change the outputs never beat the winner.
    """
    if plain.is_disqualified:
        return False
    again = ledger.confirmation(best)
    own = None if again is None else read_objective(again, spec)
    own = read_objective(best, spec) if own is None else own
    alone = read_objective(plain, spec)
    return own is not None and alone is not None and alone >= own


# Step 1: eligible


def eligible_candidates(ledger: Ledger, spec: ObjectiveSpec) -> list[Scored]:
    """Return the candidates that may be recommended, in the order measured."""

    def find() -> list[Scored]:
        found = scored_candidates(ledger, spec)
        return [scored for scored in found if not is_refuted(ledger, scored.record, spec)]

    return ledger.once(("eligible", spec), find)


def is_refuted(ledger: Ledger, record: TrialRecord, spec: ObjectiveSpec) -> bool:
    """Return True for a candidate that must not be recommended.

    It breaks a limit, its outputs diverge from the baseline's, or its confirmation failed or was
    no faster than no speculation.
    """
    if ledger.confirmation(record) is None:  # nearly all candidates: only their own line counts
        return bool(record.broken) or record.is_disqualified
    speaks = divergent_outputs(ledger, record) is not None or broken_by(ledger, record)
    return bool(speaks) or is_disproved(ledger, record, spec)


def is_refuted_at(ledger: Ledger, record: TrialRecord, spec: ObjectiveSpec, level: Level) -> bool:
    """Return the same for one load level: limits that are broken at other levels do not count."""
    if not record.broken and ledger.confirmation(record) is None:
        return record.is_disqualified
    speaks = divergent_outputs(ledger, record) is not None or broken_at(ledger, record, level)
    return bool(speaks) or is_disproved(ledger, record, spec)


def divergent_outputs(ledger: Ledger, record: TrialRecord) -> TrialRecord | None:
    """Return the candidate, or its confirmation, if its outputs disqualify it.

    They diverge from the baseline's, or the task's score is clearly lower. Returns None unless
    `measure.outputs` is `stop`.
    """
    if record.is_disqualified:
        return record
    again = ledger.confirmation(record)
    return again if again is not None and again.is_disqualified else None


def broken_by(ledger: Ledger, record: TrialRecord) -> list[BrokenLimit]:
    """Return the limits of `search.limits` that a candidate breaks.

    If it keeps all of them, return those that its confirmation breaks.
    """
    again = ledger.confirmation(record)
    return record.broken or ([] if again is None else again.broken)


def broken_at(ledger: Ledger, record: TrialRecord, level: Level) -> list[BrokenLimit]:
    """Return those of `broken_by` that are broken at one load level."""
    return [b for b in broken_by(ledger, record) if str(b.concurrency) == str(level)]


def is_disproved(ledger: Ledger, record: TrialRecord, spec: ObjectiveSpec) -> bool:
    """Return True if a candidate's confirmation failed or was no faster than no speculation.

    The prompts that no candidate was chosen on count as well.
    """
    again = ledger.confirmation(record)
    if again is None:
        return False
    values = read_objective(again, spec), held_out_objective(again, spec)
    return again.outcome != "ok" or any(value is not None and value <= 1 for value in values)


# Step 2: the leader


def confirmed_choice(ledger: Ledger) -> TrialRecord | None:
    """Return the candidate that the search chose at its end and that was launched once more.

    Returns None if the highest figure was confirmed instead, or if further candidates were
    measured since. Other candidates may have been confirmed since.
    """
    last = next(
        (r for r in _closing(ledger) if r.role == "confirm" and r.decision is not None), None
    )
    if last is None or last.outcome != "ok":
        return None
    found = [r for r in ledger.candidates if r.point == last.point and r.outcome == "ok"]
    return found[-1] if found else None


def pooled_figures(ledger: Ledger, recommended: Recommended | None = None) -> Pooled:
    """Return the estimates that the ledger has, or else those of the search's choice.

    Returns {} if there are none, or if further candidates were measured since.
    """
    kept = next((record.smoothed for record in _closing(ledger) if record.smoothed), None)
    if kept is not None:
        return {int(trial): value for trial, value in kept.items()}
    found = {} if recommended is None else recommended[1].smoothed
    measured = [(each.trial, each.at) for each in ledger.candidates if each.outcome == "ok"]
    return {trial: found[at] for trial, at in measured if at is not None and at in found}


def _closing(ledger: Ledger) -> Sequence[TrialRecord]:
    """Return the records after the last candidate, the last one first."""
    return ledger.once(
        "closing",
        lambda: tuple(takewhile(lambda r: r.role != "candidate", reversed(ledger.records))),
    )


def launch_objectives(ledger: Ledger, record: TrialRecord, spec: ObjectiveSpec) -> list[float]:
    """Return the objectives of a candidate's trial and of its confirmation, if any.

    The confirmation of a candidate on a shared server is left out: the candidates that it is
    compared with ran on that shared server.
    """
    again = None if record.warm_steps else ledger.confirmation(record)
    found = [read_objective(record, spec), None if again is None else read_objective(again, spec)]
    return [value for value in found if value is not None]


# Step 3: indistinguishable


def is_tied(
    best: TrialRecord, other: TrialRecord, spec: ObjectiveSpec, ratio: Ratio = by_lines
) -> bool:
    """Return True if `other` is as good as `best` as far as the measurements show.

    Its objective lacks at most `GIVEN_UP`, and the interval of their ratio includes 1 or better,
    by the objective and at every load level. It beats the baseline if `best` does. A candidate
    with a higher objective may be surely better and still count as tied.
    """
    high, low = read_objective(best, spec), read_objective(other, spec)
    if high is None or low is None:
        return False
    return _is_tied(Scored(best, high), Scored(other, low), spec, ratio)


def _is_tied(best: Scored, other: Scored, spec: ObjectiveSpec, ratio: Ratio) -> bool:
    (one, high), (two, low) = best, other
    if not high or not low or low < high * (1 - GIVEN_UP) or low <= 1 < high:
        return False
    overall = objective_ratio(one, two, spec, ratio)
    return all(
        found is not None and found.high is not None and found.high >= 1
        for found in (overall, *(ratio(one, two, level) for level in measured_levels(one)))
    )


def falls_short(pooled: Pooled, record: TrialRecord, of: TrialRecord) -> bool:
    """Return True if a candidate's pooled figure lacks more than `LESS_SURELY` of another one's.

    Returns False if one of them has no pooled figure.
    """
    own, other = pooled.get(record.trial), pooled.get(of.trial)
    return own is not None and other is not None and own < other * (1 - LESS_SURELY)


# Step 4: simplest


def complexity(point: Point | None) -> tuple[int, ...]:
    """Return what a configuration requires of a user, the heaviest requirement first.

    These are a plug-in in SGLang, settings, a tree, draft tokens, draft steps.
    """
    return (Point() if point is None else point).complexity


# Confirmation


def next_confirmation(
    ledger: Ledger, spec: ObjectiveSpec, ratio: Ratio, recommended: Recommended | None
) -> tuple[TrialRecord, Decision | None] | None:
    """Return the candidate to launch once more. Returns None if none beats the baseline.

    This is the winner. Before the search's choice has had its launch, it is that choice, with the
    search's decision, if the launch could make it the answer.
    """
    pooled = pooled_figures(ledger, recommended)
    fastest = find_winner(ledger, spec, ratio, pooled)
    if fastest is None:
        return None
    if recommended is not None and confirmed_choice(ledger) is None:
        point, decision = recommended
        chosen = next((each for each in reversed(ledger.candidates) if each.at == point), None)
        selection = Selection(ledger, spec, ratio, pooled)
        if chosen is not None and _could_win(selection, chosen, fastest):
            return chosen, decision
    return fastest, None


def _could_win(selection: Selection, chosen: TrialRecord, fastest: TrialRecord) -> bool:
    """Return True if the search's choice is the answer once its own launch bears it out.

    Returns False if early stopping has cut it short, or if the winner so far is a simpler tie.
    """
    ledger, spec = selection.ledger, selection.spec
    if chosen.trial == fastest.trial or chosen.fell_behind or is_refuted(ledger, chosen, spec):
        return False
    own, other = read_objective(chosen, spec), read_objective(fastest, spec)
    if own is None or other is None or complexity(fastest.at) > complexity(chosen.at):
        return True
    return not selection.is_tied(Scored(chosen, own), Scored(fastest, other))


# Objectives


def read_objective(record: TrialRecord, spec: ObjectiveSpec) -> float | None:
    """Return the objective of a trial. Returns None if it was not measured."""
    return _objective(record.metrics, spec) if record.outcome == "ok" else None


def held_out_objective(record: TrialRecord, spec: ObjectiveSpec) -> float | None:
    """Return the objective on prompts that no candidate was chosen on."""
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
    """Return the objective of each candidate, in the order measured."""
    return ledger.once(
        ("objectives", spec), lambda: [read_objective(each, spec) for each in ledger.candidates]
    )


def scored_candidates(ledger: Ledger, spec: ObjectiveSpec) -> list[Scored]:
    """Return the candidates that have an objective, in the order measured."""
    pairs = zip(ledger.candidates, objectives(ledger, spec), strict=True)
    return [Scored(record, value) for record, value in pairs if value is not None]
