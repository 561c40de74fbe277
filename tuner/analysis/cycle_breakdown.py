"""A run's cycles taken apart: what the section and the figure "Where a cycle goes" show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tuner.analysis.summary import RunSummary, TrialResult
from tuner.config.load_level import Level, Rate, axis
from tuner.config.point import Point
from tuner.metrics.statistics import Interval
from tuner.search.acceptance import AcceptanceCurve, read_chain
from tuner.search.cycle_time_fit import (
    BreakEven,
    Cycle,
    CycleModel,
    Split,
    break_even,
    point_settings,
)
from tuner.search.forecast import Prediction, rank

PLAIN = "as a plain decode step"
ONCE = "once a cycle, besides (verify, draft's extend, host)"
DRAFT = "draft steps"
TOKENS = "verify of the drafted tokens"
DRAFTED = "drafted tokens: draft and verify together"
ADDED = "what speculation adds"
MAX_ERROR = 0.15
"""Of the model, relative, up to which its split is shown: beyond it fits noise."""
MOST_MODELLED, MOST_SETTINGS = 1000, 100
"""Candidates that the model is fitted to, and how many settings they have among them."""
PARTS = (PLAIN, ONCE, ADDED, DRAFT, TOKENS, DRAFTED)
"""Parts of a cycle in the order in which they are stacked."""


@dataclass(frozen=True)
class CycleTimes:
    """One configuration's cycle at one concurrency."""

    measured: TrialResult
    level: Level
    even: BreakEven
    split: Split | None
    """None without draft steps (NGRAM), and where the cycles scatter too much for a model."""

    @property
    def parts(self) -> list[tuple[str, float]]:
        """(name, ms) of what the measurements tell apart; together the model's cycle."""
        plain, split = self.even.plain_ms, self.split
        if split is None or split.once is None or split.drafted is None:
            whole = self.even.cycle_ms if split is None else split.cycle.value
            tokens = split.tokens.value if split and split.tokens else 0.0
            added = max(0.0, whole - tokens - plain)
            return [(PLAIN, min(plain, whole - tokens)), (ADDED, added), (TOKENS, tokens)]
        found = [(PLAIN, min(plain, split.once.value))]
        found.append((ONCE, max(0.0, split.once.value - plain)))
        if split.draft is None or split.tokens is None:
            return [*found, (DRAFTED, split.drafted.value)]
        return [*found, (DRAFT, split.draft.value), (TOKENS, split.tokens.value)]


class Cycles:
    """The cycles of a run that has a baseline and candidates; empty where one is missing."""

    def __init__(self, summary: RunSummary) -> None:
        self.summary = summary

    def model(self, level: Level) -> CycleModel:
        """Fitted to every candidate that gave a cycle, or to the best of very many; at a request
        rate to those there, since nobody says how many streams were in a batch."""
        return self._models[level]

    @property
    def _models(self) -> Mapping[Level, CycleModel]:
        """Fitted once for a run: a section and a figure look at them."""
        return self.summary.ledger.once("models of cycles", self._all_fitted)

    def _all_fitted(self) -> Mapping[Level, CycleModel]:
        levels = self.summary.levels
        if axis(levels) == "rate":
            return {level: self._fitted([level]) for level in levels}
        return dict.fromkeys(levels, self._fitted(levels))

    def _fitted(self, levels: Sequence[Level]) -> CycleModel:
        return CycleModel(
            Cycle(each.point, concurrent_streams(level), ms)
            for each in modelled(self.summary.ranked)
            for level in levels
            if each.point is not None and (ms := each.metric(level, "cycle_ms")) is not None
        )

    @property
    def scattered(self) -> float | None:
        """How far the model misses the measured cycles, relative, where that is too far to go by
        it; None where it is not."""
        errors = [each.error for each in self._models.values() if each.error is not None]
        return max(errors) if errors and max(errors) > MAX_ERROR else None

    @property
    def levels(self) -> list[Level]:
        """Those at which the best candidate can be held against a plain decode step."""
        best = self.summary.best_candidate
        return [n for n in self.summary.levels if best is not None and self.taken(best, n)]

    def taken(self, each: TrialResult, level: Level) -> CycleTimes | None:
        """A candidate beside the baseline; None where a figure of one of them is missing."""
        base = self.summary.no_speculation
        steps = each.point.num_steps if each.point else None
        even = base and break_even(base.metrics(level), each.metrics(level), steps)
        if not even:
            return None
        known = each.point is not None and steps and self.scattered is None
        split = (
            self.model(level).split(each.point, concurrent_streams(level))
            if each.point and known
            else None
        )
        return CycleTimes(each, level, even, split)

    @cached_property
    def block(self) -> Sequence[TrialResult]:
        """The chains that share the best one's settings and placement, by steps; then the best
        itself where it is no chain."""
        best = self.summary.best_candidate
        if best is None or best.point is None:
            return []
        chains = [
            each
            for each in self.summary.ranked
            if each.point is not None
            and each.point.eagle_topk == 1
            and _block(each.point) == _block(best.point)
        ]
        chains.sort(key=lambda each: (each.point and each.point.num_steps) or 0)
        return chains if best in chains else [*chains, best]

    def shown(self, level: Level) -> list[CycleTimes]:
        """The block's cycles at one concurrency."""
        found = [self.taken(each, level) for each in self.block]
        return [each for each in found if each is not None]

    def unmeasured(self, level: Level) -> list[Prediction]:
        """Chains of the block, up to the longest one measured, that nobody measured; the fastest
        first. Empty where cycles or acceptance do not determine them."""
        chains = {e.point.num_steps: e.point for e in self.block if e.point and _is_chain(e.point)}
        longest = max((steps for steps in chains if steps), default=0)
        some = chains.get(longest)
        points = [_chain(some, k) for k in range(1, longest) if k not in chains] if some else []
        if isinstance(level, Rate):  # a speed takes the number of streams in a batch
            return []
        if not points or self.scattered or self.model(level).cycle(points[0], level) is None:
            return []
        return rank(self.model(level), self._curve(level), points, level)

    def longer(self, point: Point, level: Level) -> Prediction | None:
        """The fastest of a chain one step longer and the longer ones of the space that nobody
        measured, as predicted; None where that is not determined."""
        if isinstance(level, Rate) or self.scattered or point.num_steps is None:
            return None
        measured = {each.point for each in self.summary.ranked}
        points = [
            each
            for each in self.summary.space.points
            if _is_chain(each)
            and _block(each) == _block(point)
            and each not in measured
            and (each.num_steps or 0) > point.num_steps
        ]
        points = list(dict.fromkeys([_chain(point, point.num_steps + 1), *points]))
        if self.model(level).cycle(points[0], level) is None:
            return None
        return next(iter(rank(self.model(level), self._curve(level), points, level)), None)

    def placement(self, level: Level) -> tuple[TrialResult, TrialResult, Interval] | None:
        """The best candidate, its twin with the draft placed otherwise, and how much longer the
        twin's cycle takes; None without such a twin."""
        best = self.summary.best_candidate
        for other in self.summary.ranked if best and best.point and not self.scattered else ():
            assert best is not None and best.point is not None
            if other.point is None or other.point.draft_tp == best.point.draft_tp:
                continue
            if _anywhere(other.point) == _anywhere(best.point):
                longer = self.model(level).difference(
                    other.point, best.point, concurrent_streams(level)
                )
                return None if longer is None else (best, other, longer)
        return None

    def _curve(self, level: Level) -> AcceptanceCurve:
        """Of all chains of the run, or the best of very many: what is accepted does not depend on
        where it is computed."""
        told = [
            read_chain(self.summary.windows(each, level), each.point.num_steps)
            for each in modelled(self.summary.ranked)
            if each.point is not None and each.point.num_steps and _is_chain(each.point)
        ]
        return AcceptanceCurve(tuple(chain for chain in told if chain is not None))


def concurrent_streams(level: Level) -> int:
    """By which a cycle's tokens are counted: a concurrency, and one stream at a request rate."""
    return 1 if isinstance(level, Rate) else level


def modelled(ranked: Sequence[TrialResult]) -> list[TrialResult]:
    """Those that the model of cycles is fitted to: the first `MOST_MODELLED` of the best settings.

    Each settings are two terms of it, and the time of a fit grows with the cube of the terms.
    """
    found, settings = list[TrialResult](), set[object]()
    for each in ranked:
        if each.point is None:
            continue
        its = point_settings(each.point)
        if its not in settings and len(settings) == MOST_SETTINGS:
            continue
        settings.add(its)
        found.append(each)
        if len(found) == MOST_MODELLED:
            break
    return found


def _is_chain(point: Point) -> bool:
    return point.eagle_topk == 1


def _block(point: Point) -> tuple[object, ...]:
    return (point.draft_tp, point.env, point.flags)


def _anywhere(point: Point) -> tuple[object, ...]:
    return (point.num_steps, point.eagle_topk, point.num_draft_tokens, point.env, point.flags)


def _chain(like: Point, steps: int) -> Point:
    return replace(like, num_steps=steps, eagle_topk=1, num_draft_tokens=steps + 1)
