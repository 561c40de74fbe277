"""Racing: whether a configuration's windows so far show that it is clearly slower, or are tight.

Window n is held against window n of another configuration, prompt by prompt. Prompts of one window
share what the machine did meanwhile, so a test over prompts alone would take a slow minute for a
slow configuration. Three things are therefore asked for: Wilcoxon's signed-rank test over the
prompts, a median ratio below the margin, and figures of whole windows below it, where the margin
follows from how far windows of one launch differ in this run.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from scipy.special import stdtrit

from tuner.metrics.samples import Window
from tuner.metrics.statistics import Metric, complete, cost, mean_interval, pooled

LEVEL = 0.01
"""Of the test and of the margin, one-sided."""
MARGIN = 0.03
"""Share that a configuration must be slower by, however quiet the machine is."""
MIN_PAIRS = 7
"""Fewer prompts cannot reach LEVEL: 6 that all agree have p = 1/64."""


@dataclass(frozen=True)
class WindowSpread:
    """How far the speeds of windows of one launch differ: variance of their logarithm, pooled."""

    squares: float = 0.0
    freedom: int = 0
    """Windows less launches."""

    @classmethod
    def of(cls, windows: Sequence[Window], metric: Metric) -> "WindowSpread":
        """What the windows of one launch at one concurrency show; nothing where there is one."""
        logs = [math.log(speed) for window in windows if (speed := pooled([window], metric))]
        if len(logs) < 2:
            return cls()
        mean = math.fsum(logs) / len(logs)
        return cls(math.fsum((each - mean) ** 2 for each in logs), len(logs) - 1)

    @classmethod
    def sum(cls, parts: Iterable["WindowSpread"]) -> "WindowSpread":
        """All of them together."""
        known = list(parts)
        return cls(math.fsum(each.squares for each in known), sum(each.freedom for each in known))

    def margin(self, windows: int, level: float) -> float | None:
        """Share by which two means of so many windows may differ by chance; None: not known.

        Student's t, one-sided at `level`. At least MARGIN.
        """
        if not self.freedom:
            return None
        deviation = math.sqrt(self.squares / self.freedom * 2 / windows)
        by_chance = 1 - math.exp(-float(stdtrit(self.freedom, 1 - level)) * deviation)
        return max(MARGIN, by_chance)


@dataclass(frozen=True)
class Slower:
    """By how much, and on what it rests."""

    ratio: float
    """Speed over the rival's: the median over prompts or that of whole windows, the higher."""
    pairs: int
    """Prompts."""
    p: float


def clearly_slower(
    windows: Sequence[Window],
    rival: Sequence[Window],
    metric: Metric,
    spread: WindowSpread,
    level: float = LEVEL,
) -> Slower | None:
    """Whether the first windows of one launch are slower than a rival's, all at one concurrency.

    The rival's further windows count only where they make it slower. None where they are not, or
    where it cannot be said: too few prompts in common, or `spread` knows nothing.
    """
    count = min(len(windows), len(rival))
    margin = spread.margin(count, level) if count else None
    if margin is None:
        return None
    ratios = _by_prompt(windows[:count], rival[:count], metric)
    figures = pooled(windows, metric), pooled(rival[:count], metric), pooled(rival, metric)
    if len(ratios) < MIN_PAIRS or not all(figures):
        return None
    own, same, whole = figures
    assert own and same and whole
    ratio = max(median(ratios), own / same, own / whole)
    if ratio >= 1 - margin:
        return None
    from scipy.stats import wilcoxon  # a second; most commands and most processes race nothing

    p = float(wilcoxon([math.log(each) for each in ratios], alternative="less").pvalue)
    return Slower(ratio, len(ratios), p) if p < level else None


def half_width(windows: Sequence[Window], metric: Metric) -> float | None:
    """Half the 95 % interval of the windows' speed, as a share of it; None below two windows."""
    speeds = [speed for window in windows if (speed := pooled([window], metric))]
    if len(speeds) < 2:
        return None
    interval = mean_interval(speeds)
    assert interval.low is not None and interval.high is not None
    return (interval.high - interval.low) / 2 / interval.value


def _by_prompt(one: Sequence[Window], other: Sequence[Window], metric: Metric) -> list[float]:
    """Speed of `one` over `other`'s for each prompt that both have answers to."""
    first, second = _speeds(one, metric), _speeds(other, metric)
    return [speed / second[prompt] for prompt, speed in first.items() if prompt in second]


def _speeds(windows: Sequence[Window], metric: Metric) -> dict[str, float]:
    """Tokens by time of each prompt, over all its requests."""
    sums: dict[str, tuple[float, float]] = {}
    for sample in complete(windows):
        tokens, seconds = cost(sample, metric)
        if tokens and seconds > 0:
            before = sums.get(sample.prompt_id, (0.0, 0.0))
            sums[sample.prompt_id] = before[0] + tokens, before[1] + seconds
    return {prompt: tokens / seconds for prompt, (tokens, seconds) in sums.items()}
