"""Windows and requests that stand out, by robust spread. They are shown, never left out.

The spread is the median absolute deviation, times 1.4826 so that it is a standard deviation where
noise is normal: a stall does not widen it, as it would widen a standard deviation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tuner.metrics.samples import Window
from tuner.metrics.statistics import Metric, complete, cost, pooled

FAR = 3.5
"""Robust deviations from which on something stands out (Iglewicz and Hoaglin)."""
LEAST = 0.05
"""Share that it must be off by as well: on a quiet machine any difference is many deviations."""


@dataclass(frozen=True)
class Off:
    """A speed beside what its equals had: the same prompt's, or the same launch's windows."""

    window: int
    """From 1."""
    prompt: str | None
    """None: the whole window."""
    by: float
    """Logarithm of its speed over the median of the others."""

    @property
    def ratio(self) -> float:
        """Its speed over the median of the others."""
        return math.exp(self.by)


def robust_spread(differences: Sequence[float]) -> float | None:
    """1.4826 times the median absolute deviation; None below three."""
    if len(differences) < 3:
        return None
    middle = median(differences)
    return 1.4826 * median(abs(each - middle) for each in differences)


def windows_off(windows: Sequence[Window], metric: Metric) -> list[Off]:
    """Each window of a launch beside its others; [] below three, where it is not known which one
    is off."""
    speeds = [pooled([window], metric) for window in windows]
    known = [(n, math.log(speed)) for n, speed in enumerate(speeds, start=1) if speed]
    return [Off(n, None, by) for n, by in _beside_others(known)]


def requests_off(windows: Sequence[Window], metric: Metric) -> list[Off]:
    """Each request beside the same prompt's in the launch's other windows; [] below three."""
    speeds: dict[str, list[tuple[int, float]]] = {}
    for number, window in enumerate(windows, start=1):
        for sample in complete([window]):
            tokens, seconds = cost(sample, metric)
            if tokens and seconds > 0:
                own = speeds.setdefault(sample.prompt_id, [])
                own.append((number, math.log(tokens / seconds)))
    return [Off(n, prompt, by) for prompt, own in speeds.items() for n, by in _beside_others(own)]


def standing_out(all_of: Sequence[Off], spread: float | None) -> list[Off]:
    """Those that are far off, the farthest first."""
    if spread is None:
        return []
    far = [each for each in all_of if abs(each.by) > max(FAR * spread, math.log1p(LEAST))]
    return sorted(far, key=lambda each: -abs(each.by))


def _beside_others(known: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    if len(known) < 3:
        return []
    return [
        (n, log - median(other for place, (_, other) in enumerate(known) if place != index))
        for index, (n, log) in enumerate(known)
    ]
