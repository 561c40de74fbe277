"""What points that were not measured would give: accept length by cycle time, with intervals."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from tuner.measure.statistics import Interval
from tuner.search.acceptance_curve import AcceptanceCurve
from tuner.search.cycle_model import CycleModel
from tuner.sweep.point import Point

Basis = Literal["measured", "curve", "bounds"]


@dataclass(frozen=True)
class Prediction:
    """One point at one concurrency. An interval's ends are None where nothing shows the spread."""

    point: Point
    concurrency: int
    cycle_ms: Interval
    accept_length: Interval
    basis: Basis
    """Where the accept length is from. `bounds`: of a tree that was not measured; its value is the
    pessimistic bound, the ends are the two bounds."""
    decode_tok_s: Interval
    """All streams together, prefill excluded."""
    extrapolated: bool
    """Verifies more tokens at once than any measured cycle."""


def predict(
    model: CycleModel,
    curve: AcceptanceCurve,
    point: Point,
    concurrency: int,
    measured: Mapping[Point, Interval] | None = None,
) -> Prediction | None:
    """None where cycle time or accept length are not determined by the measurements.

    `measured` has accept lengths of points that were measured, which go before the curve.
    """
    cycle = model.cycle(point, concurrency)
    found = _accept_length(curve, point, measured or {})
    if cycle is None or found is None or cycle.value <= 0:
        return None
    length, basis = found
    return Prediction(
        point,
        concurrency,
        cycle,
        length,
        basis,
        _rate(concurrency, length, cycle),
        model.extrapolates(point, concurrency),
    )


def rank(
    model: CycleModel,
    curve: AcceptanceCurve,
    points: Iterable[Point],
    concurrency: int,
    measured: Mapping[Point, Interval] | None = None,
) -> list[Prediction]:
    """Predictions of the points that have one, the fastest first."""
    told = [predict(model, curve, point, concurrency, measured) for point in points]
    found = [each for each in told if each is not None]
    return sorted(found, key=lambda each: -each.decode_tok_s.value)


def _accept_length(
    curve: AcceptanceCurve, point: Point, measured: Mapping[Point, Interval]
) -> tuple[Interval, Basis] | None:
    if point in measured:
        return measured[point], "measured"
    steps, topk = point.num_steps, point.eagle_topk or 1
    if steps is None:
        return None
    if topk == 1:
        found = curve.accept_length(steps)
        return None if found is None else (found, "curve")
    low = curve.pessimistic_tree(steps, point.num_draft_tokens or steps + 1)
    high = curve.optimistic_tree(steps, topk)
    return None if low is None or high is None else (Interval(low, low, high), "bounds")


def _rate(streams: int, length: Interval, cycle: Interval) -> Interval:
    """streams * length / cycle; distances to the ends are added as those of independent errors."""
    value = 1000 * streams * length.value / cycle.value
    if length.low is None or length.high is None or cycle.low is None or cycle.high is None:
        return Interval(value, None, None)
    below = _joint(length.low / length.value, cycle.value / cycle.high)
    if cycle.low <= 0:
        return Interval(value, value * below, None)
    above = _joint(length.high / length.value, cycle.value / cycle.low)
    return Interval(value, value * below, value * above)


def _joint(one: float, other: float) -> float:
    """Two factors on the same side of 1, as independent deviations of the logarithm."""
    if one <= 0 or other <= 0:
        return 0.0
    distance = math.hypot(math.log(one), math.log(other))
    return math.exp(distance if one * other >= 1 else -distance)
