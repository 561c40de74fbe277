"""The accept length of every chain up to the longest one measured, from what that one accepted.

A chain of k drafts (topk 1) is the beginning of a longer one, so a verify of the longer chain that
accepted a drafts would have accepted min(a, k). That much is exact, verify by verify. What is not:
the verifies of the shorter chain begin at other places of the text (after at most k + 1 tokens),
and how much is accepted differs from place to place. docs/cycle_model.md has the measured error.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from operator import mul

from tuner.config.point import Point
from tuner.metrics.level_metrics import accept_histogram
from tuner.metrics.samples import Window
from tuner.metrics.statistics import Interval, ratio_interval
from tuner.search.observation import LevelFigures


@dataclass(frozen=True)
class Chain:
    """What a chain of `steps` drafts accepted: for each prompt, verifies by accepted drafts."""

    steps: int
    histograms: Mapping[str, Sequence[float]]

    def at_risk(self, position: int, prompt: str | None = None) -> tuple[float, float]:
        """Verifies that came to a position (from 1), and those that accepted it.

        Of all prompts for None. (0, 0) beyond the chain: there nothing was drafted.
        """
        if position > self.steps:
            return 0.0, 0.0
        chosen = self.histograms.values() if prompt is None else [self.histograms.get(prompt, ())]
        came = sum(sum(histogram[position - 1 :]) for histogram in chosen)
        return came, sum(sum(histogram[position:]) for histogram in chosen)


def read_chain(windows: Sequence[Window], steps: int) -> Chain | None:
    """A measured chain; None where a request does not show its verifies one by one."""
    found: dict[str, list[float]] = {}
    for window in windows:
        for sample in window.samples:
            if sample.spec is None or sample.spec.verify_ct == 0:
                continue
            histogram = accept_histogram(sample)
            if histogram is None or any(histogram[steps + 1 :]):
                return None
            counts = found.setdefault(sample.prompt_id, [0.0] * (steps + 1))
            for accepted, times in enumerate(histogram[: steps + 1]):
                counts[accepted] += times
    return Chain(steps, found) if found else None


def chain_of_rates(rates: Sequence[float]) -> Chain | None:
    """A chain from `accept_rate_by_position` alone; it has no interval, prompts are not told apart.

    Its weight is that of one verify: of no use beside chains that have their counts.
    """
    if not rates:
        return None
    survival = [1.0, *rates, 0.0]
    counts = [before - after for before, after in pairwise(survival)]
    if not all(0 <= count <= 1 for count in counts):  # NaN is neither
        return None
    return Chain(len(rates), {"": counts})


@dataclass(frozen=True)
class AcceptanceCurve:
    """Several chains of one draft model, pooled.

    Each chain tells of the positions that it has. At each of them, the chance of acceptance given
    that all before it were accepted is pooled by counts (Kaplan and Meier's estimate: a chain is
    censored at its end). Prompts are kept apart until the end, because a shorter chain verifies
    the hard ones relatively less often: AL(k) = tokens / sum of tokens_i / AL_i(k).
    """

    chains: tuple[Chain, ...]

    @property
    def longest(self) -> int:
        """Steps of the longest chain; 0 without any."""
        return max((chain.steps for chain in self.chains), default=0)

    @cached_property
    def conditional(self) -> tuple[float, ...]:
        """Chance of each position, given those before it, over all prompts."""
        return tuple(self._chance(position, None) or 0.0 for position in self._positions)

    @property
    def reached(self) -> tuple[float, ...]:
        """P(accepted >= j) for j = 1, 2, ... `longest`."""
        return _survival(self.conditional)

    def accept_length(self, steps: int) -> Interval | None:
        """Tokens per verify of a chain, bonus included; None beyond the longest one measured.

        The interval is the spread between prompts; with one prompt there is none.
        """
        return self._lengths.get(steps)

    def optimistic_tree(self, steps: int, topk: int) -> float | None:
        """More than a tree of this depth can be expected to bring.

        As if every one of the topk candidates behind an accepted token were as good as the first
        and independent of it, and the tree had room for all. None beyond the longest chain.
        """
        if not 1 <= steps <= self.longest:
            return None
        chances = [1.0 - math.pow(1.0 - chance, topk) for chance in self.conditional[:steps]]
        return 1 + sum(_survival(chances))

    def pessimistic_tree(self, steps: int, draft_tokens: int) -> float | None:
        """As if all candidates but the first brought nothing, in `draft_tokens` places."""
        found = self.accept_length(min(steps, draft_tokens - 1))
        return None if found is None else found.value

    @cached_property
    def _lengths(self) -> Mapping[int, Interval]:
        return {steps: self._length(steps) for steps in self._positions} if self._tokens else {}

    def _length(self, steps: int) -> Interval:
        tokens, verifies = [], []
        for prompt, emitted in self._tokens.items():
            tokens.append(emitted)
            verifies.append(emitted / (1 + sum(self._by_prompt[prompt][:steps])))
        found = ratio_interval(tokens, verifies)
        if found.low is None or found.high is None:
            return found
        return Interval(found.value, max(1.0, found.low), min(steps + 1.0, found.high))

    @property
    def _positions(self) -> range:
        return range(1, self.longest + 1)

    @cached_property
    def _tokens(self) -> Mapping[str, float]:
        """Tokens that the verifies of each prompt brought."""
        found: dict[str, float] = {}
        for chain in self.chains:
            for prompt, histogram in chain.histograms.items():
                brought = sum((accepted + 1) * n for accepted, n in enumerate(histogram))
                found[prompt] = found.get(prompt, 0.0) + brought
        return {prompt: tokens for prompt, tokens in found.items() if tokens > 0}

    @cached_property
    def _by_prompt(self) -> Mapping[str, Sequence[float]]:
        """P(accepted >= j) of each prompt; a position that it never came to is as elsewhere."""
        found = {}
        for prompt in self._tokens:
            chances = [self._chance(position, prompt) for position in self._positions]
            whole = [
                elsewhere if own is None else own
                for own, elsewhere in zip(chances, self.conditional, strict=True)
            ]
            found[prompt] = _survival(whole)
        return found

    def _chance(self, position: int, prompt: str | None) -> float | None:
        told = [chain.at_risk(position, prompt) for chain in self.chains]
        came, accepted = sum(each[0] for each in told), sum(each[1] for each in told)
        return accepted / came if came > 0 else None


def _survival(chances: Sequence[float]) -> tuple[float, ...]:
    """P(accepted >= j) for j = 1, 2, ... from the chance of each position."""
    return tuple(accumulate(chances, mul))


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


def draft_shape(point: Point) -> Shape:
    """What acceptance depends on; the point has steps."""
    steps, topk = point.num_steps or 1, point.eagle_topk or 1
    return steps, topk, point.num_draft_tokens or steps + 1


class Lengths:
    """Accept lengths of every tree at one concurrency."""

    def __init__(self, seen: Mapping[Point, LevelFigures]) -> None:
        """Of points that were measured; None of it need be a chain, but then nothing is known."""
        self._measured: dict[Shape, list[float]] = {}
        chains = []
        for point, figures in seen.items():
            shape = draft_shape(point)
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
