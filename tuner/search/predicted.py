"""How far a decision's prediction was from what came."""

import math

from tuner.search.decision import Decision
from tuner.search.forecast import Known

SURPRISE = 0.05
"""A prediction that is off by this share, and whose interval does not hold what came, surprises."""

VAGUE = 4.0
"""An interval whose ends are further apart than this factor says nothing that could hold."""


def value_of(decision: Decision, known: Known) -> float | None:
    """What was measured of its point; None where it was not, or did not run."""
    verdict = known.told.get(decision.point) if decision.point else None
    return verdict.value if verdict is not None and verdict.outcome == "ok" else None


def off(decision: Decision, known: Known) -> float:
    """Distance of the measured value from the predicted one, as a logarithm."""
    value = value_of(decision, known)
    if not value or decision.predicted is None:
        return 0.0
    return abs(math.log(value / decision.predicted.value))


def outside(decision: Decision, known: Known) -> bool:
    """Whether what was measured is not in the predicted interval."""
    value, told = value_of(decision, known), decision.predicted
    if value is None or told is None or told.low is None or told.high is None:
        return False
    return not told.low <= value <= told.high


def held(decision: Decision, known: Known) -> bool:
    """Whether a prediction allowed for what came, and not for next to anything."""
    told = decision.predicted
    if told is None or not told.low or told.high is None or told.high > VAGUE * told.low:
        return False
    return not outside(decision, known)


def surprised(decision: Decision, known: Known) -> bool:
    """Whether what came was not to be expected."""
    return off(decision, known) > SURPRISE and outside(decision, known)
