"""How many drafted tokens the target accepts: the curve, trees, and one request's cycles. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

_CEILING = 0.99


@dataclass(frozen=True)
class SimulatedAcceptance:
    """Chances that a draft position is accepted, given that all before it were.

    `by_position` holds the chance at positions 1, 2, ...; its last value goes on for ever.
    `topk_gain` g: with m candidates at a depth, the chance of a miss is multiplied by m**-g.
    `kinds` multiplies the chance by prompt kind; a kind that is not there has factor 1.
    """

    by_position: tuple[float, ...]
    topk_gain: float = 0.0
    kinds: Mapping[str, float] = field(default_factory=dict)

    def conditional(self, steps: int, topk: int, draft_tokens: int, kind: str) -> tuple[float, ...]:
        """The chance at each depth of this draft tree, or chain for topk 1."""
        factor = self.kinds.get(kind, 1.0)
        depth = min(steps, draft_tokens - 1)
        chances = [
            min(_CEILING, factor * self.by_position[min(j, len(self.by_position) - 1)])
            for j in range(depth)
        ]
        return self._widen(chances, topk, draft_tokens - 1)

    def _widen(self, chances: Sequence[float], topk: int, nodes: int) -> tuple[float, ...]:
        """Spend the nodes that a chain leaves over where they raise the expectation most."""
        widths = [1] * len(chances)
        caps = [topk if depth == 0 else topk * topk for depth in range(len(chances))]

        def chance(depth: int, width: int) -> float:
            return 1.0 - (1.0 - chances[depth]) * math.pow(width, -self.topk_gain)

        def gain(depth: int) -> float:
            if widths[depth] >= caps[depth]:
                return -1.0
            now = [chance(j, w) for j, w in enumerate(widths)]
            wider = [*now[:depth], chance(depth, widths[depth] + 1), *now[depth + 1 :]]
            return expected_length(wider) - expected_length(now)

        if topk > 1:
            for _ in range(nodes - len(chances)):
                best = max(range(len(chances)), key=gain)
                if widths[best] >= caps[best]:
                    break
                widths[best] += 1
        return tuple(chance(j, w) for j, w in enumerate(widths))

    def expected_accept_length(self, steps: int, topk: int, draft_tokens: int, kind: str) -> float:
        """Tokens emitted per verify, bonus included."""
        return expected_length(self.conditional(steps, topk, draft_tokens, kind))


def fixed_length(length: float, steps: int) -> tuple[float, ...]:
    """Chances that give this accept length (bonus included) as SGLANG_SIMULATE_ACC_LEN does.

    Every verify accepts the floor or the ceiling of it; clamped to 1 .. steps + 1.
    """
    drafts = min(max(length, 1.0), steps + 1.0) - 1.0
    whole = int(drafts)
    rest = [drafts - whole] if drafts > whole else []
    return tuple([1.0] * whole + rest)


def survival(conditional: Sequence[float]) -> list[float]:
    """P(at least j drafts accepted) for j = 1, 2, ..."""
    return list(accumulate(conditional, mul))


def expected_length(conditional: Sequence[float]) -> float:
    """1 + a1 + a1*a2 + ...: tokens per verify, bonus included."""
    return 1.0 + sum(survival(conditional))


def plan_cycles(conditional: Sequence[float], tokens: int) -> list[int]:
    """Accepted drafts of each verify of a request that still needs `tokens` tokens.

    The counts are apportioned, not drawn: the whole request is within half a token of its
    expectation, each position within one, and the lengths are spread evenly over the cycles.
    The last verify may overshoot, as in a real engine.
    """
    if tokens <= 0:
        return []
    length = expected_length(conditional)
    cycles = max(1, int(tokens / length) - 1)
    while cycles + round(cycles * (length - 1)) < tokens:
        cycles += 1
    reached = _apportion([cycles * s for s in survival(conditional)], round(cycles * (length - 1)))
    counts = [a - b for a, b in zip([cycles, *reached], [*reached, 0], strict=True)]
    return _spread(counts, overshoot=cycles + sum(reached) - tokens)


def _apportion(ideal: Sequence[float], total: int) -> list[int]:
    """Integers near `ideal` that sum to `total`; still non-increasing where `ideal` is."""
    # The tolerance keeps a product such as 84.99999999999999 at 85.
    floors = [int(x + 1e-9) for x in ideal]
    by_remainder = sorted(range(len(ideal)), key=lambda j: floors[j] - ideal[j])
    for j in by_remainder[: max(0, total - sum(floors))]:
        floors[j] += 1
    return floors


def _spread(counts: Sequence[int], overshoot: int) -> list[int]:
    """`counts[n]` times n, evenly mixed, ending with one that covers the overshoot."""
    places = [((i + 0.5) / count, n) for n, count in enumerate(counts) for i in range(count)]
    order = [n for _, n in sorted(places)]
    for index in range(len(order) - 1, -1, -1):
        if order[index] >= overshoot:
            order[index], order[-1] = order[-1], order[index]
            break
    return order
