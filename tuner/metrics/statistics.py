"""Intervals: how far a figure may be off, from the spread between windows and between prompts.

Each window sends the same prompts, so samples form a table of windows by prompts. Windows differ
by the machine's drift, prompts by how well they are drafted for, and cells by noise. Intervals are
bootstrapped over rows and columns with smooth (Dirichlet) weights, which unlike whole-number
weights also work for two or three windows. Row and column draws each carry the noise of the cells,
and few windows understate their spread, so the draws are then widened or narrowed to the variance
of the two-way layout and to Student's t at its degrees of freedom (Satterthwaite).
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from tuner.metrics.samples import RequestSample, Window

Metric = Literal["output_tok_s", "decode_tok_s"]
Floats = NDArray[np.float64]

DRAWS = 2000
LAUNCH_FREEDOM = 3.0
"""Degrees of freedom that an interval has at least once launches differ: two launches alone have
1, whose t of 12.7 would leave nothing to say. docs/statistics.md has what that costs."""
_MAX_COLUMNS = 1024
"""Prompts beyond this many share columns, so that memory stays small."""


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % interval; the ends are None where nothing shows the spread."""

    value: float
    low: float | None
    high: float | None

    def to_json(self) -> dict[str, float | None]:
        """The shape of `--json`."""
        return {"value": self.value, "low": self.low, "high": self.high}

    @property
    def includes_one(self) -> bool | None:
        """Of a ratio: whether it may as well be 1. None where nothing shows the spread."""
        if self.low is None or self.high is None:
            return None
        return self.low <= 1 <= self.high


def decode_time(sample: RequestSample) -> tuple[int, float]:
    """Tokens after the first chunk, and the seconds from the first chunk to the last.

    With one token in the first chunk this is (tokens - 1) and (last - first token time). Where
    the first chunk holds more, they all came before the clock starts and none of them counts.
    (0, 0.0) where there is no second chunk.
    """
    if len(sample.chunk_times) < 2:
        return 0, 0.0
    return sum(sample.chunk_tokens[1:]), sample.chunk_times[-1] - sample.chunk_times[0]


def complete(windows: Sequence[Window]) -> list[RequestSample]:
    """The samples that have their whole answer."""
    return [s for window in windows for s in window.samples if s.error is None]


def output_tok_s(windows: Sequence[Window]) -> float | None:
    """Tokens received, those of failed requests included, by the windows' wall time."""
    tokens = sum(sample.tokens for window in windows for sample in window.samples)
    wall = sum(window.wall_s for window in windows)
    return tokens / wall if tokens and wall > 0 else None


def decode_tok_s(samples: Sequence[RequestSample]) -> float | None:
    """Decode speed of one stream: all tokens after first chunks by all time spent on them."""
    pairs = [decode_time(sample) for sample in samples]
    tokens, seconds = sum(p[0] for p in pairs), sum(p[1] for p in pairs)
    return tokens / seconds if tokens and seconds > 0 else None


def pooled(windows: Sequence[Window], metric: Metric) -> float | None:
    """The figure over all windows, as `summarise` gives it."""
    if metric == "output_tok_s":
        return output_tok_s(windows)
    return decode_tok_s(complete(windows))


def throughput_interval(windows: Sequence[Window], seed: int = 0) -> Interval | None:
    """`output_tok_s` with its interval; None where no token came.

    With two windows or more: what another series of the same prompts would give. With one, the
    spread between prompts is all there is to go by, and the interval is wider for it.
    """
    value = output_tok_s(windows)
    if value is None:
        return None
    live = [window for window in windows if window.wall_s > 0]
    if len(live) > 1:
        tokens = np.array([[sum(s.tokens for s in window.samples)] for window in live], float)
        table = _Table(tokens, np.array([[window.wall_s] for window in live], float))
    else:
        table = _tables([live], "output_tok_s")[0]
    return _bootstrap(value, [table], [1.0], seed)


def speedup(
    baseline: Sequence[Window], candidate: Sequence[Window], metric: Metric, seed: int = 0
) -> Interval | None:
    """`candidate` over `baseline`; None where one of them has no such figure.

    The value is the ratio of the pooled figures. For the interval the same prompts are drawn for
    both sides, windows for each side by itself, and the statistic is tokens by request time
    (end to end for output_tok_s, from first to last chunk for decode_tok_s) of the complete
    requests whose prompts both sides have. A side with one window is taken to drift as the other
    one does; where both have one, the interval is too narrow by the machine's drift.
    """
    return power_ratio([(baseline, -1.0), (candidate, 1.0)], metric, seed=seed)


@dataclass(frozen=True)
class Spread:
    """Variance of a logarithm and its degrees of freedom."""

    variance: float
    freedom: float


def power_ratio(
    sides: Sequence[tuple[Sequence[Window], float]],
    metric: Metric,
    launches: Spread | None = None,
    seed: int = 0,
) -> Interval | None:
    """The product of each side's figure to the power of its weight, as `speedup` has it for -1, 1.

    `launches` is what the spread between launches adds; docs/statistics.md has the formula. None
    where a side has no figure.
    """
    logs = 0.0
    for windows, weight in sides:
        if (figure := pooled(windows, metric)) is None:
            return None
        logs += weight * math.log(figure)
    tables = _tables([windows for windows, _ in sides], metric)
    weights = [weight for _, weight in sides]
    return _bootstrap(math.exp(logs), tables, weights, seed, launches)


def log_variance(one: Sequence[Window], other: Sequence[Window], metric: Metric) -> float | None:
    """Of the logarithm of `other` over `one`, from the spread within both launches alone.

    None where they have no prompts in common, or nothing shows the spread.
    """
    tables = _tables([one, other], metric)
    if not _shows_spread(tables):
        return None
    return _variance(tables, [-1.0, 1.0])[0]


def ratio_interval(above: Sequence[float], below: Sequence[float], seed: int = 0) -> Interval:
    """Sum of `above` over sum of `below`, one entry of each per prompt, all of them positive.

    The interval is the spread between prompts: what other prompts of their kind would give.
    """
    table = _Table(np.array([above], float), np.array([below], float))
    return _bootstrap(float(table.tokens.sum() / table.seconds.sum()), [table], [1.0], seed)


@dataclass(frozen=True)
class _Table:
    """One side: tokens and seconds of each window (row) and prompt (column)."""

    tokens: Floats
    seconds: Floats

    @property
    def influence(self) -> Floats:
        """What each cell adds to the logarithm of tokens by seconds, to first order."""
        shares: Floats = self.tokens / self.tokens.sum() - self.seconds / self.seconds.sum()
        return shares

    def log_speeds(self, rows: Floats, columns: Floats) -> Floats:
        """The logarithm of the speed under each draw's weights."""
        tokens = ((columns @ self.tokens.T) * rows).sum(axis=1)
        seconds = ((columns @ self.seconds.T) * rows).sum(axis=1)
        logs: Floats = np.log(tokens / seconds)
        return logs


def _tables(sides: Sequence[Sequence[Window]], metric: Metric) -> list[_Table]:
    """A table for each side, over the prompts that all sides have."""
    cells: list[dict[str, dict[int, tuple[float, float]]]] = []
    for windows in sides:
        side: dict[str, dict[int, tuple[float, float]]] = defaultdict(dict)
        for row, window in enumerate(windows):
            for sample in complete([window]):
                tokens, seconds = cost(sample, metric)
                if tokens and seconds > 0:
                    old = side[sample.prompt_id].get(row, (0.0, 0.0))
                    side[sample.prompt_id][row] = (old[0] + tokens, old[1] + seconds)
        cells.append(side)
    prompts = sorted(set.intersection(*(set(side) for side in cells)))
    shape = min(len(prompts), _MAX_COLUMNS)
    tables = []
    for windows, side in zip(sides, cells, strict=True):
        table = _Table(np.zeros((len(windows), shape)), np.zeros((len(windows), shape)))
        for column, prompt in enumerate(prompts):
            for row, (tokens, seconds) in side[prompt].items():
                table.tokens[row, column % shape] += tokens
                table.seconds[row, column % shape] += seconds
        live = table.tokens.sum(axis=1) > 0
        tables.append(_Table(table.tokens[live], table.seconds[live]))
    return tables


def cost(sample: RequestSample, metric: Metric) -> tuple[float, float]:
    """Tokens of a request and the seconds that the metric counts for them."""
    if metric == "output_tok_s":
        return sample.tokens, sample.ended - sample.began
    return decode_time(sample)


def _bootstrap(
    value: float,
    tables: Sequence[_Table],
    signs: Sequence[float],
    seed: int,
    launches: Spread | None = None,
) -> Interval:
    """The interval of the product of the tables' speeds, each to the power of its sign."""
    if not _shows_spread(tables):
        return Interval(value, None, None)
    columns = tables[0].tokens.shape[1]
    variance, freedom = _variance(tables, signs, launches)
    draw = np.random.default_rng(seed)
    column_weights = draw.standard_exponential((DRAWS, columns)) / columns
    logs = np.zeros(DRAWS)
    for table, sign in zip(tables, signs, strict=True):
        logs += sign * table.log_speeds(
            draw.standard_exponential((DRAWS, len(table.tokens))), column_weights
        )
    deviations = logs - logs.mean()
    low, high = np.quantile(deviations, [0.025, 0.975])
    if variance == 0:
        return Interval(value, value, value)
    if high == low:  # windows that are all alike: nothing but the launches differs
        low, high = -1.0, 1.0
    # Draws of few rows are flat: their quantiles lie within 1.96 deviations, so they are not used
    # as such; the draws give the interval its shape and not its width.
    widening = stdtrit(freedom, 0.975) * np.sqrt(variance) * 2 / (high - low)
    ends = np.exp(np.array([low, high]) * widening) * value
    return Interval(value, float(ends[0]), float(ends[1]))


def _shows_spread(tables: Sequence[_Table]) -> bool:
    columns = tables[0].tokens.shape[1]
    return columns > 1 or (columns == 1 and any(len(table.tokens) > 1 for table in tables))


def _variance(
    tables: Sequence[_Table], signs: Sequence[float], launches: Spread | None = None
) -> tuple[float, float]:
    """Variance of the logarithm and its degrees of freedom.

    Windows are independent between sides; prompts are shared, so their influences are added
    before they are squared. Both contain the cells' noise once, which is taken off once. A side
    with one window has the other sides' variance of a window.
    """
    columns = tables[0].tokens.shape[1]
    parts: list[tuple[float, float]] = []
    noise = 0.0
    by_column = np.zeros(columns)
    several = sum(len(table.tokens) > 1 for table in tables)
    alone = sum(sign**2 for t, sign in zip(tables, signs, strict=True) if len(t.tokens) == 1)
    for table, sign in zip(tables, signs, strict=True):
        cells, rows = table.influence, len(table.tokens)
        by_row = cells.sum(axis=1)
        by_column += sign * cells.sum(axis=0)
        if rows > 1:
            own = float((by_row**2).sum()) * rows / (rows - 1)
            parts.append((own * (sign**2 + alone * rows / several), rows - 1))
        if rows > 1 and columns > 1:
            rest = cells - by_row[:, None] / columns - cells.sum(axis=0) / rows
            cell = float((rest**2).sum()) * rows * columns / ((rows - 1) * (columns - 1))
            noise += sign**2 * cell
    windows, prompts = sum((part for part, _ in parts), 0.0), 0.0
    if columns > 1:
        prompts = float((by_column**2).sum()) * columns / (columns - 1)
        parts.append((prompts, columns - 1))
    total, least = max(windows + prompts - noise, windows, prompts), 1.0
    if launches is not None and launches.variance > 0:
        parts.append((launches.variance, launches.freedom))
        total, least = total + launches.variance, LAUNCH_FREEDOM
    doubled = sum(part**2 / freedom for part, freedom in parts)
    return total, max(least, total**2 / doubled) if doubled > 0 else least


# Intervals of figures that were measured in rounds, each round beside the others' rounds.
#
# Rounds share the machine's drift, so ratios are taken round by round. Logarithms are averaged: the
# mean is a geometric one, and a ratio and its inverse have the same interval.


def mean_interval(rounds: Sequence[float]) -> Interval:
    """Geometric mean of positive figures with its 95 % interval (Student's t)."""
    logs = [math.log(each) for each in rounds]
    mean = math.fsum(logs) / len(logs)
    if len(logs) < 2:
        return Interval(math.exp(mean), None, None)
    variance = math.fsum((each - mean) ** 2 for each in logs) / (len(logs) - 1)
    half = float(stdtrit(len(logs) - 1, 0.975)) * math.sqrt(variance / len(logs))
    return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def ratio_of_rounds(above: Sequence[float], below: Sequence[float]) -> Interval:
    """`above` over `below`, entry by entry of the same round, with its 95 % interval."""
    return mean_interval([one / other for one, other in zip(above, below, strict=True)])
