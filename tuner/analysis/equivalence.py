"""How two configurations compare by the objective, and whether that tells them apart."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tuner.analysis.baselines import CorrectedLedger
from tuner.config.load_level import Level, parse_level
from tuner.config.schema import ObjectiveSpec
from tuner.metrics.statistics import Interval
from tuner.runs.records import TrialRecord

Ratio = Callable[[TrialRecord, TrialRecord, Level], Interval | None]
"""The second over the first at one level; None where one of them was not measured there."""

_TWO_SIDED_95 = 1.96


def by_lines(one: TrialRecord, other: TrialRecord, level: Level) -> Interval | None:
    """By their speed-ups' own intervals, as if these were independent: too wide, since both are
    ratios to the same baseline on the same prompts. It needs no samples."""
    both = [_speedup(each, level) for each in (one, other)]
    if both[0] is None or both[1] is None:
        return None
    value = both[1].value / both[0].value
    spreads = [_deviation(each) for each in both if each is not None]
    if None in spreads:
        return Interval(value, None, None)
    half = _TWO_SIDED_95 * math.hypot(*(each or 0.0 for each in spreads))
    return Interval(value, value * math.exp(-half), value * math.exp(half))


def by_samples(settled: CorrectedLedger, spec: ObjectiveSpec) -> Ratio:
    """Window by window and prompt by prompt, `by_lines` where samples are missing.

    Against the baseline a line's speed-up counts, which is over all of its launches.
    """

    def ratio(one: TrialRecord, other: TrialRecord, level: Level) -> Interval | None:
        if one.role == "baseline":
            return by_lines(one, other, level)
        found = settled.ratio(one, other, level, spec.metric)
        return found or by_lines(one, other, level)

    return ratio


def objective_ratio(
    one: TrialRecord, other: TrialRecord, spec: ObjectiveSpec, ratio: Ratio
) -> Interval | None:
    """The objective of `other` over that of `one`; None where a level of it was not measured.

    Of a geometric mean the deviations of the levels are added as those of independent errors. Of
    the lowest level it is that level's ratio where both have it at the same one.
    """
    levels = [spec.level] if spec.level is not None else [parse_level(each) for each in one.metrics]
    if spec.level is None and spec.over == "min":
        return _lowest(one, other, levels, ratio)
    found = [ratio(one, other, level) for level in levels]
    known = [each for each in found if each is not None and each.value > 0]
    if not known or len(known) < len(found):
        return None
    value = math.exp(math.fsum(math.log(each.value) for each in known) / len(known))
    below, above = (_joint(known, end) for end in ("low", "high"))
    if below is None or above is None:
        return Interval(value, None, None)
    return Interval(value, value * math.exp(-below), value * math.exp(above))


def is_distinguishable(ratio: Interval | None) -> bool:
    """Whether a 95 % interval leaves out 1; without one nothing is known to be alike."""
    return ratio is None or ratio.includes_one is not True


def measured_levels(record: TrialRecord) -> Iterator[Level]:
    """Those that a record has figures at."""
    return map(parse_level, record.metrics)


def _lowest(
    one: TrialRecord, other: TrialRecord, levels: list[Level], ratio: Ratio
) -> Interval | None:
    sides = [[(_speedup(each, level), level) for level in levels] for each in (one, other)]
    lowest = []
    for side in sides:
        known = [(bounds.value, level, bounds) for bounds, level in side if bounds is not None]
        if not known or len(known) < len(side):
            return None
        lowest.append(min(known, key=lambda each: each[0]))
    (first, level, bounds), (second, its, others) = lowest
    if level == its:
        return ratio(one, other, level)
    spreads = [_deviation(bounds), _deviation(others)]
    if None in spreads or first <= 0:
        return None if first <= 0 else Interval(second / first, None, None)
    half = _TWO_SIDED_95 * math.hypot(*(each or 0.0 for each in spreads))
    value = second / first
    return Interval(value, value * math.exp(-half), value * math.exp(half))


def _speedup(record: TrialRecord, level: Level) -> Interval | None:
    """To the baseline; 1 of the baseline itself."""
    figures: Mapping[str, Any] | None = record.metrics.get(str(level))
    if record.role == "baseline":
        return None if figures is None else Interval(1.0, 1.0, 1.0)
    if figures is None or not figures.get("speedup"):
        return None
    bounds = figures.get("speedup_low"), figures.get("speedup_high")
    return Interval(float(figures["speedup"]), *bounds)


def _deviation(bounds: Interval) -> float | None:
    """Of the logarithm of a ratio, from its 95 % interval."""
    low, high = bounds.low, bounds.high
    if not low or not high or not 0 < low <= high:
        return None
    return math.log(high / low) / (2 * _TWO_SIDED_95)


def _joint(ratios: list[Interval], end: str) -> float | None:
    """The distance from their geometric mean to that end of its interval, as a logarithm."""
    found = []
    for each in ratios:
        bound = getattr(each, end)
        if bound is None or bound <= 0:
            return None
        found.append(math.log(bound / each.value))
    return math.hypot(*found) / len(found)
