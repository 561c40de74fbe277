"""Why a search ends, in words: what it would take to go on, and how near the nearest point is."""

import math

from tuner.measure.statistics import Interval
from tuner.search.forecast import Known

MARGIN = 0.01
"""What an unmeasured point must be able to gain, as a share, to be worth a launch."""


def best_measured(known: Known) -> float:
    """The best so far as the run's lines and its screen have it: a launch's own figure."""
    return max(known.told[point].value or 0.0 for point in known.answers)


def no_more(
    known: Known, goal: float, margin: float, left: int, near: Interval | None, checks: int
) -> str:
    """Why none of the `left` unmeasured points is launched.

    `goal`: logarithm of the best ratio by all launches together, 0 of the baseline; `margin`: the
    share that a point would have to gain; `near`: the ratio that is expected of the best of them,
    None where none is likely to run; `checks`: launches that found nothing else.
    """
    whose = "the baseline"
    if goal > 0:
        best, by_all = f"{best_measured(known):.3f}", f"{math.exp(goal):.3f}"
        more = "" if best == by_all else f", {by_all} by all launches together"
        whose = f"the best so far ({best} times the baseline{more})"
    which = f"none of {left} unmeasured points can"
    if left == 1:
        which = "the one unmeasured point cannot"
    least = "the least that is worth a launch"
    if margin > MARGIN:
        least = "twice a launch's standard deviation"
    words = f"{which} beat {whose} by more than {100 * margin:.1f} % ({least}), even at its best"
    if near is not None:
        bounds = "" if near.low is None else f" ({near.low:.2f} to {near.high:.2f})"
        words += f"; {near.value:.2f}{bounds} times the baseline is expected of the nearest"
    if checks:
        words += f"; {checks} {'check' if checks == 1 else 'checks'} found nothing else"
    return words
