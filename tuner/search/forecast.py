"""What every point of a space would give, as a ratio to the baseline, from what was measured."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Literal

import numpy as np
from scipy.special import ndtr

from tuner.config.load_level import Level
from tuner.config.point import Point
from tuner.config.schema import ObjectiveSpec
from tuner.metrics.statistics import Interval
from tuner.search.acceptance import AcceptanceCurve, Lengths, draft_shape
from tuner.search.cycle_time_fit import CycleModel
from tuner.search.cycle_time_gp import ROUGH, Roughs, fit_cycles
from tuner.search.encoding import EncodedSpace, Floats, Indices
from tuner.search.observation import LevelFigures, Observation

NOISE = (0.005, 0.03)
"""Relative standard deviation between launches of one point: the least that is taken for it
whatever the intervals show, and the most, for those of a few short requests are far too wide."""
SURE = 1.96
MAX_EXPLANATIONS = 8


@dataclass(frozen=True)
class Observations:
    """Everything measured so far."""

    plain: Mapping[Level, LevelFigures]
    """The baseline, by concurrency."""
    told: Mapping[Point, Observation]
    """In the order of measurement."""
    pending: frozenset[Point] = frozenset()
    """What is being measured."""

    def is_taken(self, point: Point) -> bool:
        """Measured, or being measured."""
        return point in self.told or point in self.pending

    @cached_property
    def usable(self) -> Mapping[Point, Observation]:
        """Points that ran and speculated at every level, with all that a forecast reads."""
        return {point: v for point, v in self.told.items() if _is_usable(v, self.plain)}

    @cached_property
    def answers(self) -> list[Point]:
        """Usable points that keep the limits."""
        return [point for point, verdict in self.usable.items() if not verdict.excess]

    @cached_property
    def noise(self) -> float:
        """Relative standard deviation of one launch's figures."""
        spreads = [v.spread / math.sqrt(2) for v in self.usable.values() if v.spread is not None]
        return float(np.clip(np.median(spreads) if spreads else 0.0, *NOISE))


@dataclass(frozen=True)
class Explanation:
    """One account of what was measured: expected logarithm of each point's ratio."""

    weight: float
    mean: Floats
    spread: Floats


@dataclass(frozen=True)
class Forecast:
    """A row for each point of the space."""

    explanations: tuple[Explanation, ...]

    @cached_property
    def mean(self) -> Floats:
        """Expected logarithm of the ratio to the baseline."""
        return _sum([each.weight * each.mean for each in self.explanations])

    @cached_property
    def spread(self) -> Floats:
        """Its standard deviation, over all explanations."""
        parts = [e.weight * (e.spread**2 + (e.mean - self.mean) ** 2) for e in self.explanations]
        found: Floats = np.sqrt(_sum(parts))
        return found

    def most(self, sure: float) -> Floats:
        """The logarithm that a point could reach under the kindest explanation."""
        reached = [each.mean + sure * each.spread for each in self.explanations]
        found: Floats = np.max(reached, axis=0)
        return found

    def gain(self, goal: float, rows: Indices) -> Floats:
        """By how much each point is expected to be better than `goal`, worse ones counting 0."""
        found = np.zeros(len(rows))
        for each in self.explanations:
            spread = each.spread[rows]
            z = (each.mean[rows] - goal) / spread
            bell = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
            found += each.weight * spread * (z * ndtr(z) + bell)
        return found

    def interval(self, row: int) -> Interval:
        """A point's ratio to the baseline with its 95 % interval."""
        mean, half = float(self.mean[row]), SURE * float(self.spread[row])
        return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def forecast(
    coded: EncodedSpace, known: Observations, spec: ObjectiveSpec, roughs: Roughs = (ROUGH,)
) -> Forecast:
    """From at least one usable point, one chain among them; `roughs`: see `Roughs`."""
    levels = [spec.level] if spec.level is not None else sorted(known.plain)
    rows = [coded.index[point] for point in known.usable]
    choices = [_level(coded, known, level, rows, roughs) for level in levels]
    own = _combined([_measured(known, level) for level in levels], spec)
    values = np.log([verdict.value or 1.0 for verdict in known.usable.values()])
    offset = float(np.mean(values - own))  # prefill is in the objective and not in a cycle
    found = []
    for chosen in product(*choices):
        weight = math.prod(each.weight for each in chosen)
        mean = _combined([each.mean for each in chosen], spec)
        spread = np.mean([each.spread for each in chosen], axis=0)
        found.append(Explanation(weight, mean + offset, spread))
    found = sorted(found, key=lambda each: -each.weight)[:MAX_EXPLANATIONS]
    total = sum(each.weight for each in found)
    return Forecast(tuple(Explanation(e.weight / total, e.mean, e.spread) for e in found))


def _level(
    coded: EncodedSpace, known: Observations, level: Level, rows: Sequence[int], roughs: Roughs
) -> list[Explanation]:
    """Decoding speed beside the baseline's at one concurrency."""
    seen = {point: verdict.levels[level] for point, verdict in known.usable.items()}
    lengths = Lengths(seen)
    by_shape = {shape: lengths.at(shape) for shape in map(draft_shape, coded.points)}
    told = [by_shape[draft_shape(point)] for point in coded.points]
    expected = np.array([1.0 if each is None else each.value for each in told])
    unsure = np.array([1.0 if each is None else each.spread for each in told])
    plain = known.plain[level].cycle_ms or 1.0
    times = [figures.cycle_ms or 1.0 for figures in seen.values()]
    cycles = dict(zip(rows, times, strict=True))
    return [
        Explanation(
            field.weight,
            np.log(expected * plain / field.ms),
            np.hypot(unsure, field.spread / field.ms),
        )
        for field in fit_cycles(coded, plain, cycles, known.noise, roughs)
    ]


def _measured(known: Observations, level: Level) -> Floats:
    """The same of the usable points by their own measurements."""
    plain = known.plain[level].cycle_ms or 1.0
    seen = [verdict.levels[level] for verdict in known.usable.values()]
    return np.log([(f.accept_length or 1.0) * plain / (f.cycle_ms or 1.0) for f in seen])


def _combined(levels: Sequence[Floats], spec: ObjectiveSpec) -> Floats:
    found: Floats = (np.min if spec.over == "min" else np.mean)(levels, axis=0)
    return found


def _sum(parts: Sequence[Floats]) -> Floats:
    found: Floats = np.sum(parts, axis=0)
    return found


def _is_usable(verdict: Observation, plain: Mapping[Level, LevelFigures]) -> bool:
    if verdict.outcome != "ok" or not verdict.value or verdict.value <= 0:
        return False
    shown = [verdict.levels.get(level) for level in plain]
    return bool(shown) and all(f and f.cycle_ms and f.accept_length for f in shown)


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
