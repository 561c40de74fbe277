"""How long a draft-verify cycle takes, fitted to the cycles that were measured. Milliseconds.

    cycle = once[settings] + token[settings] * batch * draft_tokens
          + draft[placement] * num_steps + tree * num_steps * (topk - 1)

`settings` are the point's environment and flags (communication), `placement` its draft_tp. No term
is negative. The terms are fitted by non-negative least squares to relative errors; what is
reported are only combinations that the measurements determine. At one concurrency, say, a further
draft step and a further token to verify always come together, and only their sum is known.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.special import stdtrit
from threadpoolctl import ThreadpoolController

from tuner.config.point import Point
from tuner.metrics.statistics import Interval

# Linear algebra in one thread: matrices here are small, and threads that wait for each other spin
# on CPUs that a server and its load client are measured on.


@contextmanager
def one_thread() -> Iterator[None]:
    """Numpy's BLAS has one thread within. Also a decorator."""
    with _controller().limit(limits=1, user_api="blas"):
        yield


@cache
def _controller() -> ThreadpoolController:
    """Of the libraries that are loaded, numpy's among them; to find them takes milliseconds."""
    return ThreadpoolController()


Floats = NDArray[np.float64]
Settings = tuple[object, ...]
Term = tuple[str, object]
"""`once` and `token` with their settings, `draft` with a placement, `tree`."""
Terms = Mapping[Term, float]

_TREE: Term = ("tree", None)
_SHARED = "shared"
_TOLERANCE = 1e-8


@dataclass(frozen=True)
class Cycle:
    """One measured cycle: the mean time per verify of a point at one concurrency."""

    point: Point
    concurrency: int
    ms: float


@dataclass(frozen=True)
class Split:
    """Where a cycle of one point goes, in ms; None for what the measurements cannot tell.

    `once + drafted` is the cycle. `drafted` is `draft + tokens` where these can be told apart.
    """

    cycle: Interval
    once: Interval | None
    """Whatever is drafted: the verify of one token per stream, the draft's extend, the host."""
    drafted: Interval | None
    """All draft steps, and verifying what they drafted."""
    draft: Interval | None
    """The draft steps alone."""
    tokens: Interval | None
    """What the verify takes more than for one token per stream."""
    per_step: Interval | None
    """What one draft step more would add."""


def point_settings(point: Point) -> Settings:
    """What besides the draft's shape and place a cycle depends on."""
    return (point.other_settings + point.env, point.flags)


class CycleModel:
    """Fitted cycle times. Points whose terms were not measured have no prediction."""

    def __init__(self, cycles: Iterable[Cycle]) -> None:
        """Cycles without steps, and those that are not positive finite numbers, are left out."""
        self.cycles = tuple(each for each in cycles if _usable(each))
        self._own_slope, self._reference = _slopes(self.cycles)
        rows = [self._row(each.point, each.concurrency) for each in self.cycles]
        self.terms = tuple(dict.fromkeys(term for row in rows for term in row))
        self._fit = _CycleFit.of([self._vector(row) for row in rows], [c.ms for c in self.cycles])

    @property
    def freedom(self) -> int:
        """Measured cycles beyond those that the terms need; without any there is no interval."""
        return self._fit.freedom

    @property
    def error(self) -> float | None:
        """Relative standard deviation of a measured cycle around the model; None without any
        degree of freedom."""
        return self._fit.sigma

    def cycle(self, point: Point, concurrency: int) -> Interval | None:
        """A cycle that is measured anew, with its 95 % prediction interval.

        None where the measurements do not determine it; the ends are None without a residual.
        """
        row = self._row(point, concurrency) if point.num_steps else None
        return None if row is None else self._estimate(row, noise=True)

    def difference(self, one: Point, other: Point, concurrency: int) -> Interval | None:
        """How much longer a cycle of `one` takes; negative where it is shorter."""
        return self._estimate(
            _minus(self._row(one, concurrency), self._row(other, concurrency)), signed=True
        )

    def split(self, point: Point, concurrency: int) -> Split | None:
        """The parts of a cycle; None where not even the whole is determined."""
        whole = self.cycle(point, concurrency)
        if whole is None:
            return None
        parts = {name: self._estimate(row) for name, row in self._parts(point, concurrency).items()}
        return Split(whole, **parts)

    def missing(self, point: Point, concurrency: int, part: str = "cycle") -> str | None:
        """What to measure so that a part (a field of `Split`) is determined; None if it is."""

        def known(model: "CycleModel") -> bool:
            split = model.split(point, concurrency)
            return split is not None and getattr(split, part) is not None

        if known(self):
            return None
        for term in self._row(point, concurrency):
            if term not in self.terms and term[0] in _UNSEEN:
                return _UNSEEN[term[0]]
        here = [*self.cycles, Cycle(point, concurrency, 1.0)]
        for words, more in _EXTENSIONS:
            if known(CycleModel([*self.cycles, *more(here)])):
                return words
        return "more points"

    def extrapolates(self, point: Point, concurrency: int) -> bool:
        """More tokens at once than in any measured verify: kernels may change beyond."""
        return _tokens(point, concurrency) > max(
            (_tokens(each.point, each.concurrency) for each in self.cycles), default=0
        )

    def _row(self, point: Point, concurrency: int) -> Terms:
        settings, steps = point_settings(point), point.num_steps or 0
        slope = settings if settings in self._own_slope else self._reference
        row: dict[Term, float] = {
            ("once", settings): 1.0,
            ("token", slope): _tokens(point, concurrency),
            ("draft", point.draft_tp): steps,
        }
        if (point.eagle_topk or 1) > 1:
            row[_TREE] = steps * ((point.eagle_topk or 1) - 1)
        return row

    def _parts(self, point: Point, concurrency: int) -> dict[str, Terms]:
        whole = self._row(point, concurrency)
        draft = {t: x for t, x in whole.items() if t[0] in ("draft", "tree")}
        first = {t: float(concurrency) for t in whole if t[0] == "token"}
        tokens = {t: whole[t] - x for t, x in first.items()}
        steps = point.num_steps or 1
        longer = {**{t: x / steps for t, x in draft.items()}, **first}
        return {
            "once": {**{t: 1.0 for t in whole if t[0] == "once"}, **first},
            "drafted": {**draft, **tokens},
            "draft": draft,
            "tokens": tokens,
            "per_step": longer,
        }

    def _vector(self, row: Terms) -> Floats:
        return np.array([row.get(term, 0.0) for term in self.terms])

    def _estimate(
        self, row: Terms, *, noise: bool = False, signed: bool = False
    ) -> Interval | None:
        if any(value and term not in self.terms for term, value in row.items()):
            return None
        found = self._fit.estimate(self._vector(row), noise)
        if found is None or signed or found.low is None:
            return found
        return replace(found, low=max(0.0, found.low))


@dataclass(frozen=True)
class _CycleFit:
    """Least squares with terms that are not negative, to relative errors."""

    rows: Floats
    """Each divided by the measured time: the fit aims at 1."""
    values: Floats

    @classmethod
    def of(cls, rows: Sequence[Floats], times: Sequence[float]) -> "_CycleFit":
        if not rows:
            return cls(np.zeros((0, 0)), np.zeros(0))
        scaled = np.array(rows) / np.array(times)[:, None]
        values, _ = nnls(scaled, np.ones(len(times)))
        return cls(scaled, values)

    @cached_property
    def _scale(self) -> Floats:
        """Of each term's column: it makes ranks independent of units."""
        lengths: Floats = np.linalg.norm(self.rows, axis=0)
        return np.where(lengths > 0, lengths, 1.0)

    @cached_property
    @one_thread()
    def _directions(self) -> tuple[Floats, Floats]:
        """Singular values and directions that the measurements determine."""
        if not self.rows.size:
            return np.zeros(0), np.zeros((0, self.rows.shape[1]))
        _, lengths, directions = np.linalg.svd(self.rows / self._scale, full_matrices=False)
        kept = lengths > _TOLERANCE * lengths.max()
        return lengths[kept], directions[kept]

    @property
    def freedom(self) -> int:
        return int(len(self.rows) - len(self._directions[0]))

    @cached_property
    def sigma(self) -> float | None:
        if self.freedom < 1:
            return None
        residuals = self.rows @ self.values - 1
        return float(np.sqrt((residuals**2).sum() / self.freedom))

    def estimate(self, row: Floats, noise: bool) -> Interval | None:
        """`row` times the terms; None where the measurements leave it open.

        The interval is that of ordinary least squares: it takes no account of the terms' bound.
        """
        if not row.any():
            return Interval(0.0, 0.0, 0.0)
        lengths, directions = self._directions
        scaled = row / self._scale
        along = directions @ scaled
        left = scaled - along @ directions
        if np.linalg.norm(left) > math.sqrt(_TOLERANCE) * np.linalg.norm(scaled):
            return None
        value = float(row @ self.values)
        if self.sigma is None:
            return Interval(value, None, None)
        variance = float(((along / lengths) ** 2).sum()) + (value**2 if noise else 0.0)
        half = float(stdtrit(self.freedom, 0.975)) * self.sigma * math.sqrt(variance)
        return Interval(value, value - half, value + half)


def _usable(cycle: Cycle) -> bool:
    return bool(cycle.point.num_steps) and math.isfinite(cycle.ms) and cycle.ms > 0


def _tokens(point: Point, concurrency: int) -> float:
    """Tokens in one verify of all streams together."""
    return float(concurrency * (point.num_draft_tokens or (point.num_steps or 0) + 1))


def _slopes(cycles: Sequence[Cycle]) -> tuple[frozenset[Settings], object]:
    """Settings that show their own time per token, and whose time the others take."""
    counts: dict[Settings, set[float]] = {}
    for each in cycles:
        found = counts.setdefault(point_settings(each.point), set())
        found.add(_tokens(each.point, each.concurrency))
    own = frozenset(settings for settings, tokens in counts.items() if len(tokens) > 1)
    most = max(own, key=lambda settings: (len(counts[settings]), repr(settings)), default=None)
    return own, _SHARED if most is None else most


def _minus(one: Terms, other: Terms) -> Terms:
    return {term: one.get(term, 0.0) - other.get(term, 0.0) for term in {**one, **other}}


def _other_steps(cycles: Sequence[Cycle]) -> list[Cycle]:
    return [
        replace(each, point=_chain(each.point, (each.point.num_steps or 0) + more))
        for each in cycles
        for more in (1, 2)
    ]


def _other_levels(cycles: Sequence[Cycle]) -> list[Cycle]:
    return [replace(each, concurrency=8 * each.concurrency) for each in cycles]


def _chain(point: Point, steps: int) -> Point:
    return replace(point, num_steps=steps, eagle_topk=1, num_draft_tokens=steps + 1)


_UNSEEN = {
    "once": "a launch with these settings",
    "draft": "a launch with this draft_tp",
    "tree": "a tree",
}
_EXTENSIONS: tuple[tuple[str, Callable[[Sequence[Cycle]], list[Cycle]]], ...] = (
    ("another step count", _other_steps),
    ("a second concurrency", _other_levels),
    (
        "another step count and a second concurrency",
        lambda cycles: _other_steps([*cycles, *_other_levels(cycles)]),
    ),
)


MORE_STEPS = 16
"""Beyond the best chain, as far as longer ones are reckoned with."""


@dataclass(frozen=True)
class BreakEven:
    """One configuration beside plain decoding at one concurrency. Times in ms."""

    plain_ms: float
    """A decode step without speculation; it brings one token to each stream."""
    cycle_ms: float
    accept_length: float
    """Tokens that a cycle brings to each stream, bonus included."""
    num_steps: int | None
    decode_ratio: float | None = None
    """Measured decode speed over that without speculation; None: not measured."""

    @property
    def needed(self) -> float:
        """The accept length at which decoding is as fast as without speculation."""
        return self.cycle_ms / self.plain_ms

    @property
    def gain(self) -> float:
        """Decode speed over that without speculation, as measured where it was.

        What accept length and cycle say alone is too much by the accepted drafts that the end of
        an answer cuts off.
        """
        return self.accept_length / self.needed if self.decode_ratio is None else self.decode_ratio

    def may_win(self, costs_ms: float, brings: float, falls: float) -> bool:
        """Whether a longer chain would beat no speculation in decoding, where each further step
        costs as much, the first one brings `brings` tokens and each `falls` of the one before."""
        length, cycle = self.accept_length, self.cycle_ms
        for _ in range(MORE_STEPS):
            length, cycle, brings = length + brings, cycle + costs_ms, brings * falls
            if length * self.plain_ms >= cycle:
                return True
        return False

    @property
    def delivered(self) -> float:
        """Tokens of a cycle that reached the client, per stream."""
        return self.gain * self.needed

    @property
    def hopeless(self) -> bool:
        """Not even a draft whose every token is accepted would be faster."""
        return self.num_steps is not None and self.num_steps + 1 <= self.needed


def break_even(
    plain: Mapping[str, Any], speculating: Mapping[str, Any], num_steps: int | None
) -> BreakEven | None:
    """From the metrics of both at one concurrency; None where one of the figures is missing."""
    step, cycle = plain.get("cycle_ms"), speculating.get("cycle_ms")
    length = speculating.get("accept_length")
    if step is None or cycle is None or length is None:
        return None
    if not all(math.isfinite(each) and each > 0 for each in (step, cycle, length)):
        return None
    speeds = plain.get("decode_tok_s"), speculating.get("decode_tok_s")
    ratio = speeds[1] / speeds[0] if speeds[0] and speeds[1] else None
    return BreakEven(float(step), float(cycle), float(length), num_steps, ratio)
