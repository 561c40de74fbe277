"""The race of a launch: which of its points need no further windows at a concurrency.

A point that is clearly slower at one concurrency may be the best over all of them. So its other
levels are measured all the same, and where it turns out not to be behind as a whole, the windows
that were left out are measured too.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.config.load_level import Level, at
from tuner.config.point import Point
from tuner.config.schema import Sweep
from tuner.execution.measurement import PointMeasurement, Stop, Windows
from tuner.metrics.early_stopping import LEVEL, MARGIN, WindowSpread, clearly_slower, half_width
from tuner.metrics.statistics import pooled
from tuner.runs.records import SLOWER
from tuner.search.objective import objective

MIN_WINDOWS = 2
"""Before a point is slower: one window has no interval of its own, and the baseline's windows,
which would lend it theirs, are quieter."""


@dataclass(frozen=True)
class Race:
    """The measurements that a launch's points are raced against."""

    rival: Windows
    """Windows of the best candidate so far, or of the baseline if that is faster."""
    name: str
    """Name of the rival in notes."""
    baseline: Windows
    spreads: Mapping[Level, WindowSpread]
    """By concurrency, from the run's earlier launches."""
    whole: Point | None = None
    """A point that is measured whole."""

    def judge(
        self, sweep: Sweep, level: Level, lanes: Mapping[Point | None, PointMeasurement]
    ) -> dict[Point | None, Stop]:
        """Return the points that are clearly slower. All have as many windows at this level."""
        found = {
            point: self._slower(sweep, level, point, lanes)
            for point in lanes
            if point != self.whole
        }
        return {point: stop for point, stop in found.items() if stop is not None}

    def unsettled(
        self, sweep: Sweep, lanes: Mapping[Point | None, PointMeasurement]
    ) -> list[Point | None]:
        """Return the points that were slower at a level but are not behind in the objective."""
        whole = [taken.windows for taken in lanes.values() if not taken.slower_at]
        values = [self._value(sweep, each) for each in (self.rival, *whole)]
        best = max((value for value in values if value is not None), default=math.inf)
        return [
            point
            for point, taken in lanes.items()
            if taken.slower_at
            and (value := self._value(sweep, taken.windows)) is not None
            and value >= (1 - MARGIN) * best
        ]

    def _slower(
        self,
        sweep: Sweep,
        level: Level,
        point: Point | None,
        lanes: Mapping[Point | None, PointMeasurement],
    ) -> Stop | None:
        """Compare a point with the rival, and with the fastest point of the same launch."""
        metric = sweep.search.objective.metric
        own, count = lanes[point].windows[level], lanes[point].count(level)
        if count < MIN_WINDOWS:
            return None
        here = [WindowSpread.of(each.windows[level], metric) for each in lanes.values()]
        spread = WindowSpread.sum([self.spreads.get(level, WindowSpread()), *here])
        rivals = [(self.name, self.rival.get(level, ()), LEVEL)]
        others = {at: each.windows[level] for at, each in lanes.items() if at != point}
        if others:  # the fastest of several is so by luck too
            first = max(others, key=lambda at: pooled(others[at], metric) or 0.0)
            name = first.label() if first is not None else "no speculation"
            rivals.append((f"{name} in the same launch", others[first], LEVEL / len(others)))
        for name, rival, chance in rivals:
            found = clearly_slower(own, rival, metric, spread, chance)
            if found is not None:
                return Stop(
                    SLOWER,
                    f"{at(level)} stopped after {count} of {sweep.measure.windows} "
                    f"windows: {found.ratio:.2f} times the speed of {name} "
                    f"({found.pairs} prompts, p = {found.p:.1g})",
                )
        return None

    def _value(self, sweep: Sweep, windows: Windows) -> float | None:
        """Return the objective, or None if a level has no figure."""
        metric, ratios = sweep.search.objective.metric, {}
        for level, baseline in self.baseline.items():
            above, below = pooled(windows.get(level, ()), metric), pooled(baseline, metric)
            if above is None or below is None:
                return None
            ratios[level] = above / below
        return objective(ratios, sweep.search.objective)


def is_precise_enough(sweep: Sweep, level: Level, taken: PointMeasurement) -> Stop | None:
    """Return why a level is precise enough by `measure.target_width`, or None if it is not."""
    target, metric = sweep.measure.target_width, sweep.search.objective.metric
    width = half_width(taken.windows[level], metric) if target is not None else None
    if target is None or width is None or width > target:
        return None
    return Stop(
        "tight",
        f"{at(level)} stopped after {taken.count(level)} of {sweep.measure.windows} "
        f"windows: {metric} is known to ±{width:.2%}",
    )
