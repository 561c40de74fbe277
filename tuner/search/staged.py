"""What to launch next and why, from what has been measured: the order in which specbench searches.

anchors -> model -> check -> stop, or hand over to a sampler that assumes nothing (docs/search.md).
The decisions depend on the measurements and on the decisions before, nothing else, so the same
measurements told again give the same decisions: that makes a run resumable.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.config.point import Point
from tuner.config.schema import ObjectiveSpec
from tuner.core.formatting import ratio
from tuner.metrics.statistics import Interval
from tuner.search.cycle_time_gp import ROUGH, SMOOTH
from tuner.search.decision import Decision, Stage
from tuner.search.encoding import EncodedSpace, Floats, Indices, Mask
from tuner.search.feasibility import chance_of_running
from tuner.search.forecast import Forecast, Observations, forecast

SEEN = 2.0
"""And what launches can tell apart: so many standard deviations of one."""
OPTIMISTIC = 3.0
"""Standard deviations of the optimistic bound: a point that it excludes is not come back to."""
CHECKS = 4
"""Launches where the model knows least, before it is believed that nothing better is left."""
CLOSE = 0.15
"""Where nothing measured comes as near to the baseline, one such launch is enough."""
FAR = 8.0
"""Standard deviations that make such a launch worth while."""
MISSED = 0.15
"""A prediction that is off by this share, of a point whose settings were all known, is a miss, but
where it had said so (`predicted.held`)."""
MISSES, RECENT = 5, 6
"""So many of the last ones missed: the model does not explain this machine."""
SHORT = 0.6
"""Of the first chain's steps: the second anchor's at most."""
TREES_AFTER = 4
"""Measured points before a tree is proposed, while a chain could still win."""
UNLIKELY = 0.02
_DIGITS = 8
"""Differences beyond these are the order of additions, not of points."""
ANCHOR_TRIES = 4
MAX_POINTS = 20_000
"""Points that are considered; a drawn part of a larger space."""

CANNOT_WIN = "cannot beat the best so far, even at its best"
CANNOT_RUN = "has all that points which did not run have in common"


class StagedPlanner:
    """Decides over the points of one space."""

    def __init__(
        self,
        points: Sequence[Point],
        spec: ObjectiveSpec,
        seed: int,
        timed: Mapping[Point, float] | None = None,
    ) -> None:
        """`seed` breaks ties: which of two settings that nothing is known of comes first.

        `timed`: what the all-reduces of points were found to add to a cycle, as a share of it.
        """
        draw = random.Random(seed)
        if len(points) > MAX_POINTS:
            points = draw.sample(list(points), MAX_POINTS)
        fits = bool(points) and all(p.num_steps and p.eagle_topk for p in points)
        self._coded = EncodedSpace.of(points, timed) if fits else None
        self._spec = spec
        self._luck: Floats = np.array(draw.sample(range(len(points)), len(points)), dtype=float)
        self._made: dict[Point, Decision] = {}

    def decide(self, known: Observations) -> Decision:
        """The next launch; a decision for a point is remembered as made."""
        decision = self._decide(known)
        if decision.point is not None:
            self._made[decision.point] = decision
        return decision

    def recall(self, decision: Decision, known: Observations) -> None:
        """A decision that was made when so much was known, as a ledger tells of it."""
        point, index = decision.point, {} if self._coded is None else self._coded.index
        assert point is not None
        if self._coded is not None and point in index and _has_chain(known):
            rows = [index[each] for each in known.usable if each in index]
            decision = replace(decision, news=self._coded.new_settings(index[point], rows))
        self._made[point] = decision

    def smoothed(self, known: Observations) -> Mapping[Point, Interval]:
        """Ratios of the measured points to the baseline by all measurements together, of those
        that keep the limits; the fastest first.

        One launch's luck counts for less here than in its own figure, and for less than in what is
        launched next: there a launch that is off the lines may be a step of the machine's, which
        is not to be missed; here, where the others lie on them, it is luck. {} where there is no
        forecast.
        """
        if self._coded is None or not _has_chain(known):
            return {}
        told = forecast(self._coded, known, self._spec, (ROUGH, SMOOTH))
        rows = [self._coded.index[point] for point in known.answers]
        order = sorted(rows, key=lambda each: -float(told.mean[each]))
        return {self._coded.points[row]: told.interval(row) for row in order}

    def excluded(self, known: Observations) -> Mapping[Point, str]:
        """Unmeasured points that would not be launched now, each with the reason."""
        if self._coded is None or not _has_chain(known):
            return {}
        view = _View.of(self._coded, known, self._spec)
        return {
            self._coded.points[row]: CANNOT_WIN if runs else CANNOT_RUN
            for row, alive, runs in zip(view.left, view.alive, view.runs, strict=True)
            if not alive
        }

    def _decide(self, known: Observations) -> Decision:
        coded = self._coded
        if coded is None or not (coded.topk == 1).any():
            return Decision("sampler", "the space has no chain that could tell of other points")
        told = {p: v for p, v in known.told.items() if p in coded.index}
        known = replace(known, told=told, pending=known.pending & coded.index.keys())
        if missed := self._missed(known):
            return Decision("sampler", missed)
        if not _has_chain(known):
            return self._long_chain(coded, known)
        view = _View.of(coded, known, self._spec)
        if not len(view.left):
            return Decision("stop", "every point was measured")
        if view.alive.any():
            return self._promising(view, known)
        return self._check(view, known)

    def _long_chain(self, coded: EncodedSpace, known: Observations) -> Decision:
        """The longest chain that may run, everything else as plain as the space has it."""
        runs = chance_of_running(coded, known.told) > 0.5
        fresh = np.array([not known.is_taken(point) for point in coded.points])
        rows = np.flatnonzero(fresh & runs & (coded.topk == 1))
        failed = [p.num_steps or 0 for p, v in known.told.items() if v.outcome != "ok"]
        shorter = rows[coded.steps[rows] <= 0.7 * min(failed)] if failed else rows
        rows = shorter if len(shorter) else rows
        if known.pending:
            return self._beside_a_long_chain(coded, known, rows)
        if not len(rows) or len(known.told) >= ANCHOR_TRIES:
            return Decision("sampler", "no chain shows what it accepts, position by position")
        keys = (self._luck, coded.expected, -coded.steps, coded.plainness)
        row = rows[np.lexsort([key[rows] for key in keys])[0]]
        what = "the longest chain" if not failed else "a shorter chain after what failed"
        why = f"{what}, settings as plain as can be: what it accepts position by position"
        return Decision("anchors", f"{why} tells of every shorter chain", coded.points[row])

    def _beside_a_long_chain(
        self, coded: EncodedSpace, known: Observations, rows: Indices
    ) -> Decision:
        """The second anchor, while the first one is measured; then others, settings still plain."""
        if not len(rows):
            return Decision("stop", "what is being measured may be the first chain that runs")
        longest = max(point.num_steps or 0 for point in known.pending)
        short = rows[coded.steps[rows] <= SHORT * longest]
        rows = short if len(short) else rows
        keys = (self._luck, coded.expected, -coded.steps, coded.plainness)
        row = rows[np.lexsort([key[rows] for key in keys])[0]]
        why = "a shorter chain beside the longest, settings as plain as can be: what a step takes"
        return Decision("anchors", why, coded.points[row])

    def _promising(self, view: "_View", known: Observations) -> Decision:
        """Where most is to be gained, by expectation."""
        coded, left = view.coded, view.left
        gain = view.forecast.gain(view.goal, left) * view.chance
        gain[~view.alive] = 0.0
        chains = view.alive & (coded.topk[left] == 1)
        measured = {p.num_steps for p in (*known.usable, *known.pending) if p.eagle_topk == 1}
        stage: Stage = "model"
        if len(measured) == 1:
            shorter = chains & (coded.steps[left] <= SHORT * max(n or 0 for n in measured))
            if shorter.any():
                gain[~shorter], stage = 0.0, "anchors"
        elif len(known.usable) < TREES_AFTER and chains.any():
            gain[~chains] = 0.0
        row = int(left[np.lexsort((self._luck[left], -np.round(gain, _DIGITS)))[0]])
        news = coded.new_settings(row, view.rows)
        reason = f"{', '.join(news)} not measured yet" if news else "all its settings measured"
        if stage == "anchors":
            reason = f"a shorter chain shows what a step takes; {reason}"
        elif coded.topk[row] > 1:
            reason = f"a tree that the bounds leave room for; {reason}"
        return self._proposal(stage, row, view, known, f"most to be gained; {reason}")

    def _check(self, view: "_View", known: Observations) -> Decision:
        """Nothing is promising: look where the model knows least, then believe it."""
        lost = max(float(view.forecast.mean[row]) for row in view.rows) < -CLOSE
        wanted = 1 if lost else CHECKS
        over = [each for each in self._made.values() if each.point not in known.pending][-wanted:]
        calm = [each for each in over if each.stage == "check" and not surprised(each, known)]
        score = view.forecast.mean[view.left] + FAR * view.forecast.spread[view.left]
        score[view.chance < 0.3] = -math.inf
        if len(calm) + len(known.pending) >= wanted or score.max() <= view.goal:
            return Decision("stop", view.no_more(known, len(calm)), excluded=view.excluded)
        row = int(view.left[np.lexsort((self._luck[view.left], -np.round(score, _DIGITS)))[0]])
        why = "nothing unmeasured should be faster; this is where the model knows least"
        return self._proposal("check", row, view, known, why)

    def _proposal(
        self, stage: Stage, row: int, view: "_View", known: Observations, why: str
    ) -> Decision:
        told = view.forecast.interval(row)
        numbers = f"{ratio(told, 2)} times the baseline expected"
        still = "which is still the best"
        if view.goal > 0:
            still = f"{best_measured(known):.2f} is the best so far"
        numbers += f", {still}"
        point = view.coded.points[row]
        news = view.coded.new_settings(row, view.rows)
        return Decision(stage, f"{numbers}: {why}", point, told, news, view.excluded)

    def _missed(self, known: Observations) -> str | None:
        """Why the model is given up, None while it predicts."""
        made = [d for d in self._made.values() if d.stage in ("model", "check") and not d.news]
        told = [each for each in made if measured_value(each, known) is not None][-RECENT:]
        far = [each for each in told if off(each, known) > math.log1p(MISSED)]
        missed = [each for each in far if not held(each, known)]
        if len(missed) < MISSES:
            return None
        return (
            f"{len(missed)} of the last {len(told)} predictions were off by more than "
            f"{100 * MISSED:.0f} %, more than they allowed for, with settings that were known: "
            "the model does not explain this machine"
        )


@dataclass(frozen=True)
class _View:
    """The forecast beside what was measured: rows of unmeasured points, and which could win."""

    coded: EncodedSpace
    rows: list[int]
    """Points that were measured."""
    forecast: Forecast
    goal: float
    """Logarithm of the best ratio so far, 0 of the baseline."""
    margin: float
    left: Indices
    chance: Floats
    """Of running, a value for each of `left`."""
    runs: Mask
    alive: Mask

    @classmethod
    def of(cls, coded: EncodedSpace, known: Observations, spec: ObjectiveSpec) -> "_View":
        told = forecast(coded, known, spec)
        rows = [coded.index[point] for point in known.usable]
        kept = [float(told.mean[coded.index[point]]) for point in known.answers]
        goal = max([0.0, *kept])
        margin = max(MARGIN, SEEN * known.noise)
        done = np.array([known.is_taken(point) for point in coded.points])
        left: Indices = np.flatnonzero(~done)
        chance = chance_of_running(coded, known.told)[left]
        runs: Mask = chance > UNLIKELY
        alive: Mask = runs & (told.most(OPTIMISTIC)[left] > goal + math.log1p(margin))
        return cls(coded, rows, told, goal, margin, left, chance, runs, alive)

    @property
    def excluded(self) -> dict[str, int]:
        counts = {
            CANNOT_WIN: int((self.runs & ~self.alive).sum()),
            CANNOT_RUN: int((~self.runs).sum()),
        }
        return {reason: count for reason, count in counts.items() if count}

    def no_more(self, known: Observations, checks: int) -> str:
        """Why the search ends."""
        runs = self.left[self.runs]
        mean = self.forecast.mean[runs]
        near = self.forecast.interval(int(runs[np.argmax(mean)])) if len(runs) else None
        return no_more(known, self.goal, self.margin, len(self.left), near, checks)


def _has_chain(known: Observations) -> bool:
    """A chain was measured that shows what it accepts at each position."""
    return any(
        point.eagle_topk == 1 and all(each.reached for each in verdict.levels.values())
        for point, verdict in known.usable.items()
    )


MARGIN = 0.01
"""What an unmeasured point must be able to gain, as a share, to be worth a launch."""


def best_measured(known: Observations) -> float:
    """The best so far as the run's lines and its screen have it: a launch's own figure."""
    return max(known.told[point].value or 0.0 for point in known.answers)


def no_more(
    known: Observations, goal: float, margin: float, left: int, near: Interval | None, checks: int
) -> str:
    """Why none of the `left` unmeasured points is launched.

    `goal`: logarithm of the best ratio by all launches together, 0 of the baseline; `margin`: the
    share that a point would have to gain; `near`: the ratio that is expected of the best of them,
    None where none is likely to run; `checks`: launches that found nothing else.
    """
    whose = "the baseline"
    if goal > 0:
        best, by_all = f"{best_measured(known):.3f}", f"{math.exp(goal):.3f}"
        more = "" if best == by_all else f", {by_all} by all launches together"
        whose = f"the best so far ({best} times the baseline{more})"
    which = f"none of {left} unmeasured points can"
    if left == 1:
        which = "the one unmeasured point cannot"
    least = "the least that is worth a launch"
    if margin > MARGIN:
        least = "twice a launch's standard deviation"
    words = f"{which} beat {whose} by more than {100 * margin:.1f} % ({least}), even at its best"
    if near is not None:
        words += f"; {ratio(near, 2)} times the baseline is expected of the nearest"
    if checks:
        words += f"; {checks} {'check' if checks == 1 else 'checks'} found nothing else"
    return words


SURPRISE = 0.05
"""A prediction that is off by this share, and whose interval does not hold what came, surprises."""

VAGUE = 4.0
"""An interval whose ends are further apart than this factor says nothing that could hold."""


def measured_value(decision: Decision, known: Observations) -> float | None:
    """What was measured of its point; None where it was not, or did not run."""
    verdict = known.told.get(decision.point) if decision.point else None
    return verdict.value if verdict is not None and verdict.outcome == "ok" else None


def off(decision: Decision, known: Observations) -> float:
    """Distance of the measured value from the predicted one, as a logarithm."""
    value = measured_value(decision, known)
    if not value or decision.predicted is None:
        return 0.0
    return abs(math.log(value / decision.predicted.value))


def outside(decision: Decision, known: Observations) -> bool:
    """Whether what was measured is not in the predicted interval."""
    value, told = measured_value(decision, known), decision.predicted
    if value is None or told is None or told.low is None or told.high is None:
        return False
    return not told.low <= value <= told.high


def held(decision: Decision, known: Observations) -> bool:
    """Whether a prediction allowed for what came, and not for next to anything."""
    told = decision.predicted
    if told is None or not told.low or told.high is None or told.high > VAGUE * told.low:
        return False
    return not outside(decision, known)


def surprised(decision: Decision, known: Observations) -> bool:
    """Whether what came was not to be expected."""
    return off(decision, known) > SURPRISE and outside(decision, known)
