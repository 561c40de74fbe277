"""How many tokens a verify of any tree would bring, from what chains and trees accepted so far."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.measure.statistics import Interval
from tuner.search.acceptance_curve import AcceptanceCurve, chain_of_rates
from tuner.search.verdict import Figures
from tuner.sweep.point import Point

Shape = tuple[int, int, int]
"""(num_steps, eagle_topk, num_draft_tokens): what acceptance depends on."""

CURVE_SPREAD = 0.012
"""Relative standard deviation of a chain's accept length from a longer one's (docs/cycle_model.md
has the cases; texts accepted in long stretches are worse)."""
BEYOND_SPREAD = 0.06
"""The same for each position beyond the longest chain, taken to go on like the last one."""
MEASURED_SPREAD = 0.004
SHARE, SHARE_SPREAD = 0.2, 0.3
"""Before any tree: how much of what topk independent candidates would add it brings."""
TREE_SPREAD = 0.06
"""Standard deviation of that share between trees of one draft."""


@dataclass(frozen=True)
class Length:
    """An accept length, with its relative standard deviation and the most that it can be."""

    value: float
    spread: float
    most: float


def shape_of(point: Point) -> Shape:
    """What acceptance depends on; the point has steps."""
    steps, topk = point.num_steps or 1, point.eagle_topk or 1
    return steps, topk, point.num_draft_tokens or steps + 1


class Lengths:
    """Accept lengths of every tree at one concurrency."""

    def __init__(self, seen: Mapping[Point, Figures]) -> None:
        """Of points that were measured; None of it need be a chain, but then nothing is known."""
        self._measured: dict[Shape, list[float]] = {}
        chains = []
        for point, figures in seen.items():
            shape = shape_of(point)
            if figures.accept_length is not None:
                self._measured.setdefault(shape, []).append(figures.accept_length)
            if shape[1] == 1 and (chain := chain_of_rates(figures.reached)) is not None:
                chains.append(chain)
        self.curve = AcceptanceCurve(tuple(chains))
        self._share, self._share_spread = self._learnt_share()

    @property
    def longest(self) -> int:
        """Steps of the longest chain measured."""
        return self.curve.longest

    def at(self, shape: Shape) -> Length | None:
        """None where no chain was measured and not this tree either."""
        steps, topk, tokens = shape
        most = self._expected(shape, 1.0) if self.longest else steps + 1.0
        if shape in self._measured:
            told = self._measured[shape]
            return Length(sum(told) / len(told), MEASURED_SPREAD, most)
        if not self.longest:
            return None
        beyond = max(0, min(steps, tokens - 1) - self.longest)
        spread = CURVE_SPREAD + BEYOND_SPREAD * beyond
        value = self._expected(shape, self._share)
        if topk > 1:
            wider = self._expected(shape, min(1.0, self._share + self._share_spread))
            spread = math.hypot(spread, wider / value - 1)
        return Length(value, spread, most)

    def interval(self, shape: Shape) -> Interval | None:
        """The accept length with its 95 % interval."""
        found = self.at(shape)
        if found is None:
            return None
        half = 1.96 * found.spread * found.value
        return Interval(found.value, max(1.0, found.value - half), found.value + half)

    def _expected(self, shape: Shape, share: float) -> float:
        """1 + a1 + a1 * a2 + ..., each chance widened by a share of independent candidates."""
        steps, topk, tokens = shape
        depth = min(steps, tokens - 1)
        chances = self.curve.conditional
        width = 1.0 if topk == 1 else max(1.0, min(float(topk), (tokens - 1) / depth))
        total, product = 1.0, 1.0
        for position in range(depth):
            chance = chances[min(position, len(chances) - 1)]
            wide = 1.0 - math.pow(1.0 - chance, width)
            product *= chance + share * (wide - chance)
            total += product
        return total

    def _learnt_share(self) -> tuple[float, float]:
        """What the measured trees say of the share, with the guess before any as one of them."""
        if not self.longest:
            return SHARE, SHARE_SPREAD
        weight, total = 1 / SHARE_SPREAD**2, SHARE / SHARE_SPREAD**2
        for shape, told in self._measured.items():
            low, high = self._expected(shape, 0.0), self._expected(shape, 1.0)
            if shape[1] == 1 or high - low < 0.02 * low:
                continue
            share = min(1.0, max(-0.2, (sum(told) / len(told) - low) / (high - low)))
            own = 1 / (TREE_SPREAD**2 + (0.01 * low / (high - low)) ** 2)
            weight, total = weight + own, total + own * share
        return total / weight, math.sqrt(1 / weight + TREE_SPREAD**2)
