"""Whether prompts are text at all, or words drawn at random."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice, pairwise
from statistics import mean, pstdev

MIN_WORDS = 600
"""In all prompts together, below which chance hides the difference."""
MAX_WORDS = 6000
"""From which on more of them show nothing new; a prompt file may have millions."""
DRAWS = 20
MIN_ORDER = 3.0
"""Standard deviations. The built-in prompts have 10 and more from `MIN_WORDS` on, words drawn from
lists of 50 to 3,000 have less than 2, whatever the language."""

# Scripts without spaces: each character stands for a word.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+|[^\w\s]")


def describe_random_text(texts: Sequence[str]) -> str | None:
    """What shows that the texts are words in no order; None for text, or for too few words.

    Language repeats its pairs of neighbouring words more often than the same words do when they
    are shuffled. Words, tokens and characters that were drawn at random do not.
    """
    words, count = list[list[str]](), 0
    for text in dict.fromkeys(texts):
        words.append([each[0].lower() for each in islice(_WORD.finditer(text), MAX_WORDS - count)])
        count += len(words[-1])
        if count == MAX_WORDS:
            break
    if count < MIN_WORDS:
        return None
    draw = random.Random(0)
    pool = [word for each in words for word in each]
    shuffled = []
    for _ in range(DRAWS):
        draw.shuffle(pool)
        rest = iter(pool)
        shuffled.append(_repeated([[next(rest) for _ in each] for each in words]))
    found, by_chance = _repeated(words), mean(shuffled)
    if found - by_chance >= MIN_ORDER * max(1.0, pstdev(shuffled)):
        return None
    return (
        f"{count:,} words of the prompts stand in no order: {found} of their neighbouring pairs "
        f"occur again, {by_chance:.0f} when they are shuffled"
    )


def _repeated(texts: Sequence[Sequence[str]]) -> int:
    """Pairs of neighbouring words that were there before."""
    counts = Counter(pair for words in texts for pair in pairwise(words))
    return counts.total() - len(counts)
