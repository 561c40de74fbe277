"""The baseline over a run: several launches of it, how far they differ, and what that does to
speed-ups.

Launches of one configuration differ by more than their windows show, and a machine may drift
between them (heat, neighbours). Where the last launch differs from the first by more than windows
and prompts explain, each candidate is held against the baseline as it was at its time: the
logarithm interpolated between the launches around it. Elsewhere it is held against their
geometric mean. How far launches differ beyond their windows enters every interval either way.
docs/statistics.md has the formulas.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tuner.metrics.samples import Window
from tuner.metrics.statistics import Interval, Metric, Spread, log_variance, pooled, power_ratio

DISAGREE = 0.15
"""Launches of one configuration on an idle machine differ by some per cent."""


@dataclass(frozen=True)
class Launched:
    """What one launch measured at one concurrency."""

    at: float
    """When it began; seconds, on one clock for the whole run."""
    windows: Sequence[Window]


@dataclass(frozen=True)
class Baselines:
    """A run's launches of the baseline at one concurrency, in time; one at least, all with figures.

    `like`: those whose drift and spread are taken for these ones too, where these are some of them
    on other prompts.
    """

    launches: tuple[Launched, ...]
    metric: Metric
    like: "Baselines | None" = None

    @cached_property
    def drift(self) -> Interval | None:
        """The last launch over the first, by the spread within them; None with one."""
        if len(self.launches) < 2:
            return None
        first, last = self.launches[0], self.launches[-1]
        return power_ratio([(first.windows, -1.0), (last.windows, 1.0)], self.metric)

    @property
    def drifts(self) -> bool:
        """The last launch differs from the first by more than noise."""
        return self.drift is not None and self.drift.includes_one is False

    @cached_property
    def figures(self) -> tuple[float, ...]:
        """Of each launch, in time."""
        return tuple(pooled(each.windows, self.metric) or 0.0 for each in self.launches)

    @property
    def disagree(self) -> bool:
        """The launches differ by more than launches of one server do, whatever noise explains:
        a disturbed machine widens the intervals that would show it."""
        lowest, highest = min(self.figures), max(self.figures)
        return lowest <= 0 or highest / lowest - 1 > DISAGREE

    @cached_property
    def between(self) -> Spread | None:
        """Variance of a launch's logarithm beyond what is within launches; None with one."""
        if self.like is not None:
            return self.like.between
        count = len(self.launches)
        if count < 2:
            return None
        logs = [math.log(pooled(each.windows, self.metric) or 1.0) for each in self.launches]
        mean = math.fsum(logs) / count
        total = math.fsum((each - mean) ** 2 for each in logs) / (count - 1)
        pairs = [
            log_variance(one.windows, other.windows, self.metric)
            for index, one in enumerate(self.launches)
            for other in self.launches[index + 1 :]
        ]
        known = [each / 2 for each in pairs if each is not None]
        within = math.fsum(known) / len(known) if known else 0.0
        return Spread(max(0.0, total - within), count - 1)

    def weights(self, at: float) -> tuple[float, ...]:
        """Of each launch's logarithm in the baseline as it was at a time; they sum to 1."""
        count = len(self.launches)
        if not self.drifts:
            return (1 / count,) * count
        times = [each.at for each in self.launches]
        if at <= times[0]:
            return (1.0, *[0.0] * (count - 1))
        for index in range(1, count):
            if at <= times[index] and times[index] > times[index - 1]:
                share = (at - times[index - 1]) / (times[index] - times[index - 1])
                found = [0.0] * count
                found[index - 1], found[index] = 1 - share, share
                return tuple(found)
        return (*[0.0] * (count - 1), 1.0)

    def speedup(self, candidate: Launched) -> Interval | None:
        """Over the baseline at the candidate's time; None where it has no figure."""
        weights = self.weights(candidate.at)
        sides = [
            (each.windows, -weight)
            for each, weight in zip(self.launches, weights, strict=True)
            if weight > 0
        ]
        return self._ratio([*sides, (candidate.windows, 1.0)], 1 + sum(w * w for w in weights))

    def ratio(self, one: Launched, other: Launched) -> Interval | None:
        """`other` over `one`, each as it would be at one time; None where one has no figure."""
        pairs = zip(self.weights(one.at), self.weights(other.at), strict=True)
        moved = [first - second for first, second in pairs]
        sides = [
            (each.windows, weight)
            for each, weight in zip(self.launches, moved, strict=True)
            if weight
        ]
        both = [(one.windows, -1.0), (other.windows, 1.0)]
        return self._ratio([*sides, *both], 2 + sum(w * w for w in moved))

    def _ratio(
        self, sides: Sequence[tuple[Sequence[Window], float]], launches: float
    ) -> Interval | None:
        own = self.between
        spread = None if own is None else Spread(own.variance * launches, own.freedom)
        return power_ratio(sides, self.metric, spread)
