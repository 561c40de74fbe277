"""Intervals of figures that were measured in rounds, each round beside the others' rounds.

Rounds share the machine's drift, so ratios are taken round by round. Logarithms are averaged: the
mean is a geometric one, and a ratio and its inverse have the same interval.
"""

import math
from collections.abc import Sequence

from scipy.special import stdtrit

from tuner.measure.statistics import Interval


def mean_interval(rounds: Sequence[float]) -> Interval:
    """Geometric mean of positive figures with its 95 % interval (Student's t)."""
    logs = [math.log(each) for each in rounds]
    mean = math.fsum(logs) / len(logs)
    if len(logs) < 2:
        return Interval(math.exp(mean), None, None)
    variance = math.fsum((each - mean) ** 2 for each in logs) / (len(logs) - 1)
    half = float(stdtrit(len(logs) - 1, 0.975)) * math.sqrt(variance / len(logs))
    return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def ratio_of_rounds(above: Sequence[float], below: Sequence[float]) -> Interval:
    """`above` over `below`, entry by entry of the same round, with its 95 % interval."""
    return mean_interval([one / other for one, other in zip(above, below, strict=True)])
