"""Greedy outputs of a configuration against the baseline's, prompt by prompt. Pure.

Speculation changes no greedy output but where two tokens are all but equally likely: verifying
several tokens at once runs other kernels than decoding one, and those round otherwise. Such flips
are rare for each token, so they come late and in some prompts. A broken verification accepts what
the target would not say: nearly every prompt is another one within a few tokens, or ends in a loop.
"""

from array import array
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from scipy.special import bdtr, betaincinv

from tuner.metrics.samples import RequestSample, Window

EARLY = 16
"""Tokens: outputs that part before that part early. At one flip in 100 tokens, which is much, one
prompt in seven does; where wrong drafts are accepted nearly all do."""
LONGEST_CYCLE, LOOPING = 8, 64
"""An output loops where its last LOOPING tokens repeat a cycle of at most LONGEST_CYCLE."""
CHANCE = 0.05
PERCENTS = (10, 25, 50, 75, 90)
EXCERPT = 60

Outcome = Literal["equal", "differ", "far"]


@dataclass(frozen=True)
class OutputPair:
    """Two outputs of one prompt."""

    prompt_id: str
    prefix: int
    """Tokens that they have in common from the start."""
    equal: bool
    looping: bool
    """Only the second one ends in a loop."""

    @property
    def early(self) -> bool:
        """They part within the first tokens."""
        return not self.equal and self.prefix < EARLY

    @property
    def off(self) -> bool:
        """They part as no rounding makes outputs part."""
        return self.early or self.looping


@dataclass(frozen=True)
class OutputComparison:
    """Pairs in counts. Lengths are tokens."""

    prompts: int
    """Pairs; a prompt that was sent twice counts twice."""
    equal: int
    early: int
    """Parted within the first EARLY tokens."""
    looping: int
    """Parted and ended in a loop where the other one does not."""
    off: int
    """Early or looping."""
    prefix: tuple[int, ...]
    """Common prefix at PERCENTS of the pairs, all tokens for an equal one."""
    tokens_to_part: float | None
    """Tokens compared for each pair that parted: how rare flips are, whatever the output's length;
    None where all are equal."""

    @classmethod
    def of(cls, pairs: Sequence[OutputPair]) -> "OutputComparison":
        """The counts of one pair or more."""
        parted = [pair for pair in pairs if not pair.equal]
        compared = sum(pair.prefix for pair in pairs) + len(parted)
        ranks = np.percentile([pair.prefix for pair in pairs], PERCENTS, method="lower")
        return cls(
            prompts=len(pairs),
            equal=len(pairs) - len(parted),
            early=sum(pair.early for pair in pairs),
            looping=sum(pair.looping for pair in pairs),
            off=sum(pair.off for pair in pairs),
            prefix=tuple(int(rank) for rank in ranks),
            tokens_to_part=compared / len(parted) if parted else None,
        )

    @property
    def median(self) -> int:
        """Of the common prefix."""
        return self.prefix[PERCENTS.index(50)]

    @property
    def surely_off(self) -> float:
        """The share of prompts that is off at least, with 95 % confidence (Clopper-Pearson)."""
        if not self.off:
            return 0.0
        return float(betaincinv(self.off, self.prompts - self.off + 1, CHANCE))

    def to_json(self) -> dict[str, Any]:
        """As ledgers and `--json` have it; `prefix` by percentile."""
        return {
            "prompts": self.prompts,
            "equal": self.equal,
            "early": self.early,
            "looping": self.looping,
            "off": self.off,
            "prefix": {f"p{p}": n for p, n in zip(PERCENTS, self.prefix, strict=True)},
            "tokens_to_part": self.tokens_to_part,
        }


@dataclass(frozen=True)
class Judged:
    """A candidate's outputs at one concurrency, and what to think of them."""

    outcome: Outcome
    found: OutputComparison
    itself: OutputComparison | None
    """The baseline's later windows against its first; None with one window."""
    across: OutputComparison | None
    """Its first windows at other concurrencies against this one: what other kernels alone do, so
    the nearer of both to what is normal; None with one concurrency."""


def judge(
    baseline: Sequence[Window],
    measured: Sequence[Window],
    limit: float,
    elsewhere: Sequence[Window] = (),
) -> Judged | None:
    """Hold the first window of `measured` against the first of `baseline`.

    `elsewhere`: the baseline's first windows at other concurrencies. Far: more than `limit` of the
    prompts are off, and more than of the baseline against itself, both beyond the chance of so few
    prompts. The baseline can only excuse: alone on the server it repeats itself to the token, which
    speculation, with its other kernels, need not. None where no prompt has a complete output with
    token ids on both sides.
    """
    if not baseline or not measured:
        return None
    pairs = list(paired(baseline[0], measured[0]))
    if not pairs:
        return None
    found = OutputComparison.of(pairs)
    itself, across = _against(baseline[0], baseline[1:]), _against(baseline[0], elsewhere)
    normal = max((each.off / each.prompts for each in (itself, across) if each), default=0.0)
    if found.surely_off > max(limit, normal):
        return Judged("far", found, itself, across)
    return Judged("equal" if found.equal == found.prompts else "differ", found, itself, across)


def _against(first: Window, others: Sequence[Window]) -> OutputComparison | None:
    pairs = [pair for other in others for pair in paired(first, other)]
    return OutputComparison.of(pairs) if pairs else None


def paired(one: Window, other: Window) -> Iterator[OutputPair]:
    """Pairs of two windows' outputs, in the order of `one`; a repeated prompt's in turn."""
    others = dict(_outputs(other.samples))
    for key, ids in _outputs(one.samples):
        if key in others:
            yield _pair(key[0], ids, others[key])


def _outputs(samples: Iterable[RequestSample]) -> Iterator[tuple[tuple[str, int], "array[int]"]]:
    """Complete outputs by prompt and how often it was sent before."""
    sent: dict[str, int] = {}
    for sample in samples:
        turn = sent[sample.prompt_id] = sent.get(sample.prompt_id, -1) + 1
        if sample.error is None and sample.output_ids is not None:
            yield (sample.prompt_id, turn), sample.output_ids


def _pair(prompt_id: str, one: "array[int]", other: "array[int]") -> OutputPair:
    prefix, equal = common_prefix(one, other), one == other
    return OutputPair(prompt_id, prefix, equal, not equal and loops(other) and not loops(one))


def common_prefix(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many items are alike from the start."""
    shorter = min(len(one), len(other))
    return next((n for n in range(shorter) if one[n] != other[n]), shorter)


def loops(ids: Sequence[int]) -> bool:
    """Whether an output ends in a short cycle that it repeats."""
    tail = ids[-LOOPING:]
    return len(tail) == LOOPING and any(
        tail[cycle:] == tail[:-cycle] for cycle in range(1, LONGEST_CYCLE + 1)
    )


@dataclass(frozen=True)
class Example:
    """Where two texts part."""

    prompt_id: str
    before: str
    """The last of what they have in common."""
    baseline: str
    measured: str
    """How each goes on."""


def example(baseline: Window, measured: Window) -> Example | None:
    """The texts of the prompt with the median prefix among those that parted; None without texts.

    Half of them part no later, so it is neither the worst nor the best.
    """
    parted = sorted((p for p in paired(baseline, measured) if not p.equal), key=lambda p: p.prefix)
    if not parted:
        return None
    wanted = parted[(len(parted) - 1) // 2].prompt_id
    texts = [
        next((s.text for s in window.samples if s.prompt_id == wanted and s.text), None)
        for window in (baseline, measured)
    ]
    one, other = texts
    if one is None or other is None or one == other:
        return None
    at = common_prefix(one, other)
    return Example(
        wanted,
        one[max(0, at - EXCERPT) : at],
        one[at : at + EXCERPT],
        other[at : at + EXCERPT],
    )


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


LEVEL = 0.01
"""Chance at which an equal configuration is taken for a worse one."""

RIGHT, WRONG, MISSING = "1", "0", "-"


@dataclass(frozen=True)
class Worse:
    """McNemar's exact test of whether answers got worse, one-sided."""

    lost: int
    """Questions that only the baseline has right."""
    won: int
    """Questions that only the other one has right."""
    p: float
    """The chance of so many lost among those that changed, if either way were as likely."""

    @property
    def clearly(self) -> bool:
        """By more than chance."""
        return self.p < LEVEL


def mark(right: float, said: float | None, missing: bool) -> str:
    """The letter of one question; `said` None is an answer without a number."""
    if missing:
        return MISSING
    is_right = said is not None and abs(right - said) <= 1e-6 * max(1.0, abs(right))
    return RIGHT if is_right else WRONG


def worse(baseline: str, measured: str) -> Worse:
    """`measured` against `baseline`, marks of the same questions; those missing do not count."""
    pairs = list(zip(baseline, measured, strict=True))
    lost, won = pairs.count((RIGHT, WRONG)), pairs.count((WRONG, RIGHT))
    return Worse(lost, won, float(bdtr(won, lost + won, 0.5)) if lost + won else 1.0)
