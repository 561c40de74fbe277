"""Which candidate is launched once more, after the last one."""

from dataclasses import replace

from tuner.answer.alike import Ratio
from tuner.answer.choice import complexity, falls_short, fastest_candidate, is_tied
from tuner.answer.refuted import is_refuted
from tuner.ledger.lines import Ledger
from tuner.ledger.record import TrialRecord
from tuner.search.decision import Decision
from tuner.sweep.model import ObjectiveSpec
from tuner.sweep.point import Point

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


def winner_of(ledger: Ledger, spec: ObjectiveSpec, ratio: Ratio) -> TrialRecord | None:
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
    fastest = winner_of(ledger, spec, ratio)
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
