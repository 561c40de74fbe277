"""Cycle times of a whole space from few launches: a Gaussian process whose parts are those of a
cycle. It says how long a cycle of every point takes, and how far that may be off.

The parts, as shares of the first speculative cycle that was measured (the reference):

- a line in draft steps and one in draft tokens, as in `cycle_model`, and a rough deviation from it;
- each setting (variable, flag, placement of the draft) that differs from the reference's adds a
  share of its own, and a share per token; settings are nearly separable: pairs of them deviate by
  less, whole combinations by little;
- a setting that is far out (a cliff) gets a wide part of its own. One launch may change several
  settings at once: where it is far out, each of them is an explanation, until a launch tells.

The widths below are assumptions, the same for every machine, but for what SCALES and SMOOTH say.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product

import numpy as np

from tuner.search.encoding import PLACEMENT, EncodedSpace, Floats, Indices, Mask

INTERCEPT = 0.3
ROUGH, SMOOTH, ROUGH_TOKENS = 0.03, 0.01, 8.0
"""Of the deviation from the lines, what else it may be, and over how many tokens it is alike."""
Roughs = Sequence[float]
"""How far cycles may be off the lines; the one that explains the measurements best counts."""
SLOPE, SLOPE_SPREAD = 0.4, 0.35
"""Of a step and its token, as shares of the most that the reference leaves for them."""
TREE_MEAN, TREE = 0.003, 0.006
"""Each step, for each candidate beyond the first."""
ONCE, TOKEN, BY_TREE = 0.09, 0.008, 0.05
"""Of a setting: once a cycle, for each token to verify, and in trees."""
PLACED, PLACED_STEP = 0.04, 0.02
"""Of a placement of the draft: once a cycle, and for each draft step."""
PAIR, WHOLE = 0.03, 0.01
MOST_TOKENS = 16.0
"""Beyond this a setting's share per token is taken to have ended."""
TIMED, TIMED_SHARE = 0.2, 0.7
"""Where all-reduces were timed: how wide a setting of NCCL is beside one that was not, and how far
what it is expected to add may be off, as a share of that."""
SCALES = ((1.0, 0.0), (0.4, -1.0), (0.12, -1.0))
"""How much settings matter beside what is assumed, and the logarithm of the chance of that."""
CLIFF, MAX_CLIFFS = 1.0, 3
CLIFF_EVIDENCE, PAIR_PENALTY = 2.0, 1.5
"""How much likelier a cliff, and one of two settings together, must make the measurements; natural
logarithms."""
ALIKE, MAX_EXPLANATIONS = 3.0, 6
"""Explanations within this of the best one are kept, so many at most."""
SURPRISE = (0.6, 4.0)
"""How far all deviations together may be scaled by what was measured."""
FASTEST = 0.5
"""No cycle is taken to be shorter than this share of a plain decode step."""
_JITTER = 1e-10
_DIGITS = 8


@dataclass(frozen=True)
class Field:
    """One explanation: cycle times in ms of every point, with standard deviations."""

    weight: float
    ms: Floats
    spread: Floats


@dataclass(frozen=True)
class _Cliff:
    """A setting (place, value) that is far out, or two of them together."""

    parts: tuple[tuple[int, int], ...]

    def holds(self, settings: Indices) -> Floats:
        """1 for each row that has it, 0 for the others."""
        found: Mask = np.logical_and.reduce([settings[:, p] == value for p, value in self.parts])
        return found.astype(float)


def fit_cycles(
    coded: EncodedSpace, plain_ms: float, cycles: Mapping[int, float], noise: float, roughs: Roughs
) -> list[Field]:
    """Every explanation of the measured cycles of one concurrency level, weights adding to 1.

    `cycles` has ms by row, of one at least; the first is the reference. `plain_ms` is the
    baseline's decode step, `noise` the relative deviation between launches.
    """
    measured, ms = np.array([*cycles], dtype=np.int64), np.array([*cycles.values()], dtype=float)
    first, shares = float(ms[0]), ms / ms[0]
    frames = [
        (_Frame(coded, int(measured[0]), plain_ms / first, scale, rough), chance)
        for rough, (scale, chance) in product(roughs, SCALES)
    ]
    residual, errors = shares - frames[0][0].mean[measured], np.diag((noise * shares) ** 2)
    fits = [(_Fit(frame, measured, residual, errors), chance) for frame, chance in frames]
    fit = max(fits, key=lambda each: each[0].evidence + each[1])[0]
    told = fit.explanations()
    return [Field(weight, share * first, spread * first) for weight, share, spread in told]


@dataclass(frozen=True)
class _Frame:
    """What is assumed of a space before its cycles are known, beside the reference `start`."""

    coded: EncodedSpace
    start: int
    plain: float
    """A plain decode step as a share of the reference."""
    scale: float
    """How much settings matter."""
    rough: float
    """How far cycles are off the lines."""

    @cached_property
    def slope(self) -> tuple[float, float]:
        """Guess and deviation of a step with its token: what a plain step leaves, by the steps."""
        most = max(0.01, 1 - self.plain) / max(1.0, float(self.coded.steps[self.start]))
        return SLOPE * most, SLOPE_SPREAD * most

    @cached_property
    def lines(self) -> tuple[Floats, Floats, Floats]:
        """Steps, tokens and width, each less the reference's."""
        coded, start = self.coded, self.start
        width = coded.steps * (coded.topk - 1)
        return (
            coded.steps - coded.steps[start],
            coded.tokens - coded.tokens[start],
            width - width[start],
        )

    @cached_property
    def mean(self) -> Floats:
        steps, tokens, width = self.lines
        expected = self.coded.expected - self.coded.expected[self.start]
        found: Floats = 1 + 0.5 * self.slope[0] * (steps + tokens) + TREE_MEAN * width + expected
        return found

    @cached_property
    def changed(self) -> Floats:
        """1 where a setting differs from the reference's."""
        found: Floats = (self.coded.settings != self.coded.settings[self.start]).astype(float)
        return found

    def _width(self, place: int) -> float:
        return TIMED if self.coded.known[place] else 1.0

    def kernel(self, one: Indices, other: Indices) -> Floats:
        """Covariance of the rows `one` with the rows `other`."""
        coded, each = self.coded, self.slope[1] / math.sqrt(2)
        found: Floats = np.full((len(one), len(other)), INTERCEPT**2)
        for line, spread in zip(self.lines, (each, each, TREE), strict=True):
            found += spread**2 * np.outer(line[one], line[other])
        apart = np.abs(coded.tokens[one][:, None] - coded.tokens[other][None, :])
        found += self.rough**2 * np.exp(-apart / ROUGH_TOKENS)
        few, trees = np.minimum(coded.tokens, MOST_TOKENS), (coded.topk > 1).astype(float)
        setting = ONCE**2 + TOKEN**2 * np.outer(few[one], few[other])
        in_trees = BY_TREE**2 * np.outer(trees[one], trees[other])
        placement = PLACED**2 + PLACED_STEP**2 * np.outer(coded.steps[one], coded.steps[other])
        alike = []
        for place, name in enumerate(coded.names):
            column = coded.settings[:, place]
            same = (column[one][:, None] == column[other][None, :]) * self.changed[one, place][
                :, None
            ]
            alike.append(same)
            own = self.scale**2 * (self._width(place) ** 2 * setting + in_trees)
            found += same * (placement if name == PLACEMENT else own)
        timed = coded.timed - coded.timed[self.start]
        found += TIMED_SHARE**2 * np.outer(timed[one], timed[other])
        for first, second in combinations(alike, 2):
            found += (self.scale * PAIR) ** 2 * first * second
        settings = coded.settings
        whole = (settings[one][:, None, :] == settings[other][None, :, :]).all(axis=2)
        found += (self.scale * WHOLE) ** 2 * whole
        return found

    @cached_property
    def variance(self) -> Floats:
        """The kernel of each point with itself."""
        coded, each = self.coded, self.slope[1] / math.sqrt(2)
        found: Floats = np.full(len(coded.points), INTERCEPT**2 + self.rough**2)
        for line, spread in zip(self.lines, (each, each, TREE), strict=True):
            found = found + (spread * line) ** 2
        few, wide = np.minimum(coded.tokens, MOST_TOKENS), coded.topk > 1
        setting, in_trees = ONCE**2 + (TOKEN * few) ** 2, BY_TREE**2 * wide
        placement = PLACED**2 + (PLACED_STEP * coded.steps) ** 2
        for place, name in enumerate(coded.names):
            own = self.scale**2 * (self._width(place) ** 2 * setting + in_trees)
            found = found + (placement if name == PLACEMENT else own) * self.changed[:, place]
        found += (TIMED_SHARE * (coded.timed - coded.timed[self.start])) ** 2
        many = self.changed.sum(axis=1)
        found += self.scale**2 * (PAIR**2 * many * (many - 1) / 2 + WHOLE**2)
        return found


class _Fit:
    """A frame with measurements: how well it explains them, and what it says of all points."""

    def __init__(self, frame: _Frame, measured: Indices, residual: Floats, errors: Floats) -> None:
        self._frame = frame
        self._measured = measured
        self._residual = residual
        self._settings = frame.coded.settings[measured]
        self._covariance = frame.kernel(measured, measured) + errors
        self._gains = self._gains_over(self._covariance)

    @property
    def evidence(self) -> float:
        """How likely the measurements are, the clearest cliff allowed for; a logarithm."""
        cliff = max(self._gains.values(), default=0.0) - CLIFF_EVIDENCE
        return _likelihood(self._covariance, self._residual) + max(0.0, cliff)

    def explanations(self) -> list[tuple[float, Floats, Floats]]:
        """(weight, expected share, deviation) of all points, for each set of cliffs."""
        frame, measured = self._frame, self._measured
        every = np.arange(len(frame.coded.points))
        across = frame.kernel(every, measured)
        return [(weight, *self._posterior(across, cliffs)) for weight, cliffs in self._cliffs()]

    def _posterior(self, across: Floats, cliffs: Sequence[_Cliff]) -> tuple[Floats, Floats]:
        covariance, variance = self._covariance, self._frame.variance
        for cliff in cliffs:
            here = cliff.holds(self._frame.coded.settings)
            covariance = self._with(covariance, cliff)
            across = across + CLIFF**2 * np.outer(here, here[self._measured])
            variance = variance + CLIFF**2 * here
        factor = np.linalg.cholesky(covariance + _JITTER * np.eye(len(covariance)))
        white = np.linalg.solve(factor, self._residual)
        half = np.linalg.solve(factor, across.T)
        surprise = float(np.clip(math.sqrt(white @ white / len(white)), *SURPRISE))
        value = np.maximum(self._frame.mean + half.T @ white, FASTEST * self._frame.plain)
        spread = surprise * np.sqrt(np.maximum(variance - (half**2).sum(axis=0), 1e-8))
        return value, spread

    def _cliffs(self) -> list[tuple[float, list[_Cliff]]]:
        """Which settings are far out: every explanation with its weight."""
        most = max(self._gains.values(), default=0.0)
        if most < CLIFF_EVIDENCE:
            return [(1.0, [])]
        near = sorted((c for c in self._gains if self._gains[c] > most - ALIKE), key=self._rank)
        found = []
        for first in near[:MAX_EXPLANATIONS]:
            cliffs, gain = [first], self._gains[first]
            covariance = self._with(self._covariance, first)
            while len(cliffs) < MAX_CLIFFS:
                more = self._gains_over(covariance)
                best = max(more, key=lambda cliff: more[cliff], default=None)
                if best is None or more[best] < CLIFF_EVIDENCE:
                    break
                cliffs.append(best)
                gain, covariance = gain + more[best], self._with(covariance, best)
            found.append((gain, cliffs))
        top = max(gain for gain, _ in found)
        weights = [math.exp(gain - top) for gain, _ in found]
        return [(w / sum(weights), cliffs) for w, (_, cliffs) in zip(weights, found, strict=True)]

    def _rank(self, cliff: _Cliff) -> float:
        return -self._gains[cliff]

    def _gains_over(self, covariance: Floats) -> dict[_Cliff, float]:
        """How much likelier each possible cliff makes the measurements; logarithms."""
        now = _likelihood(covariance, self._residual)
        return {
            cliff: round(
                _likelihood(self._with(covariance, cliff), self._residual)
                - now
                - PAIR_PENALTY * (len(cliff.parts) - 1),
                _DIGITS,
            )
            for cliff in self._possible()
        }

    def _possible(self) -> Iterable[_Cliff]:
        """Settings, alone and by two, that some measured points have and not all."""
        settings = self._settings
        singles = [
            (place, int(value))
            for place in range(settings.shape[1])
            for value in np.unique(settings[:, place])
            if value != settings[0, place]
        ]
        yield from (_Cliff((single,)) for single in singles)
        for one, other in combinations(singles, 2):
            pair = _Cliff((one, other))
            if one[0] != other[0] and pair.holds(settings).any():
                yield pair

    def _with(self, covariance: Floats, cliff: _Cliff) -> Floats:
        here = cliff.holds(self._settings)
        found: Floats = covariance + CLIFF**2 * np.outer(here, here)
        return found


def _likelihood(covariance: Floats, residual: Floats) -> float:
    """Logarithm of how likely the residuals are, up to a constant."""
    factor = np.linalg.cholesky(covariance + _JITTER * np.eye(len(residual)))
    white = np.linalg.solve(factor, residual)
    return float(-0.5 * white @ white - np.log(np.diag(factor)).sum())
