"""Whether an answer says anything or goes round in a loop. Pure; over token ids or words."""

from collections.abc import Hashable, Sequence
from itertools import pairwise

BLOCK = 64
"""Items looked at together: a loop may begin late, and a long text repeats words by right."""
FEW_PAIRS = 0.25
"""Share of a block's neighbouring pairs that are distinct, below which it is a loop. Prose and code
have three in four and more."""


def distinct_pairs(items: Sequence[Hashable]) -> float | None:
    """The share of neighbouring pairs that are distinct; None where there is no pair.

    A loop of two tokens has two distinct pairs, however long it is.
    """
    pairs = list(pairwise(items))
    return len(set(pairs)) / len(pairs) if pairs else None


def looped_share(items: Sequence[Hashable]) -> float | None:
    """The share of an answer's blocks that are loops; None for one shorter than a block.

    What is left over at the end counts with the last whole block.
    """
    count = len(items) // BLOCK
    if count == 0:
        return None
    ends = [(n + 1) * BLOCK for n in range(count - 1)] + [len(items)]
    shares = [distinct_pairs(items[n * BLOCK : end]) for n, end in enumerate(ends)]
    return sum(share is not None and share < FEW_PAIRS for share in shares) / count
