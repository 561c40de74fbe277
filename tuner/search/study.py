"""Which point to measure next: Optuna's samplers over the space's legal points."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from tuner.search.asked import Asked, Proposal
from tuner.search.decision import Decision
from tuner.search.dimensions import combination, distribution, suggest
from tuner.search.forecast import Known
from tuner.search.given import GivenTrial
from tuner.search.recalled import Recollection, is_staged
from tuner.search.replayed import replay
from tuner.search.samplers import generation_sampler, model_sampler, startup_trials
from tuner.search.staged import StagedSearch
from tuner.search.verdict import Figures, Outcome, Verdict
from tuner.sweep.level import Level
from tuner.sweep.model import SearchSpec
from tuner.sweep.point import Point
from tuner.sweep.space import Space

MAX_WASTED = 16
"""Illegal or known combinations in a row, after which a point is drawn from those left.

A sampler that has converged repeats itself, and one in a space where little is legal misses; both
learn nothing more from a longer try, which costs a model fit each time."""

MOST_MODELLED = 10_000
"""Points told up to which the sampler models what it was told: the time of a fit grows with them,
and there is no end to what is left that the model has not ranked by then. From there on points are
drawn at random."""

_BEFORE_MODEL = ("anchors", "sampler")

FEASIBLE = "feasible"
"""Name of the constraint: 0 for a point that can be served, 1 for one that cannot, how far it is
over a limit (a share of that) for one that can and breaks it."""

_STATES: Mapping[Outcome, TrialState] = {
    "ok": TrialState.COMPLETE,
    "infeasible": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


class Study:
    """Proposes each legal point at most once and learns from what it is told. Several proposals
    may wait for their verdicts at a time.

    Deterministic: the same space, spec, trials and verdicts give the same proposals, because the
    sampler of each proposal is seeded from the seed and the number of the proposal. That is what
    makes `replay` possible, and with it a resumed run that goes on as if it had not stopped.
    """

    def __init__(
        self,
        space: Space,
        spec: SearchSpec,
        trials: int,
        *,
        persists: bool = False,
        timed: Mapping[Point, float] | None = None,
        levels: Sequence[Level] = (),
    ) -> None:
        """`trials` is the number that the run was begun with; an extension does not change it.

        `persists`: where the stages say that nothing better is left, the sampler goes on. `timed`
        is what the stage comm found, see `StagedSearch`. `levels`: concurrencies whose speed-ups
        are an objective each (`objectives`); (): `Verdict.value` is the only one.
        """
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space = space
        self._spec = spec
        self._trials = trials
        self._levels = tuple(levels)
        self._distributions = {n: distribution(v) for n, v in space.dimensions.items()}
        self._study = optuna.create_study(directions=["maximize"] * max(1, len(levels)))
        self._told: dict[Point, Verdict] = {}
        self._pending: dict[Point, Proposal] = {}
        self._made = self._heard = 0
        """Proposals that were made; verdicts that were told."""
        self._spellings: set[tuple[int, ...]] = set()
        self._drawn: list[tuple[int, ...]] = []
        """By the sampler, for the proposal that is being made."""
        self._staged: StagedSearch | None = None
        if "anchors" in spec.active_stages:
            self._staged = StagedSearch(space.points, spec.objective, spec.seed, timed)
        self._plain: Mapping[Level, Figures] = {}
        self._persists = persists
        self.handed_over: str | None = None
        """Why the sampler chooses since then; None while the stages do."""
        self.stopped: Decision | None = None
        """Why nothing more is proposed, where the stages say so."""

    def tell_baseline(self, plain: Mapping[Level, Figures]) -> None:
        """Say what the baseline takes, by concurrency; without it there are no stages."""
        self._plain = dict(plain)

    def recommended(self) -> tuple[Point, Decision] | None:
        """The measured point that is fastest by all measurements together, and why; None where
        there are no stages, the baseline is faster, or the model was given up."""
        if self._staged is None or not self._plain or self.handed_over:
            return None
        found = self._staged.best(Known(self._plain, self._told))
        if found is None:
            return None
        point, ratio = found
        why = (
            f"by all measurements together it is the fastest: {ratio.value:.3f} times the baseline"
        )
        return point, Decision("confirm", why, point, ratio)

    @property
    def reads_levels(self) -> bool:
        """Whether anything is made of a verdict's figures by level."""
        return self._staged is not None or bool(self._levels)

    @property
    def asked(self) -> Sequence[FrozenTrial]:
        """Every combination that the sampler was asked for, the wasted ones too, as Optuna has it:
        `point` and `reason` are user attributes, what cannot be served has a constraint above 0."""
        return self._study.get_trials(deepcopy=False)

    @property
    def pending(self) -> tuple[Proposal, ...]:
        """Proposals without a verdict, in the order in which they were made."""
        return tuple(self._pending.values())

    def propose(self, along: Collection[Point] = ()) -> Proposal | None:
        """The next point to measure; None when every legal point has been told, or the stages
        find that nothing better is left; and while nothing more can be said before a pending
        proposal has its verdict. `along`: points that are being measured without being proposed.
        """
        self._drawn = []
        taken = {*self._told, *self._pending, *along}
        left = [point for point in self._space.points if point not in taken]
        if not left:
            return None
        decision = self._decision(along)
        if decision is not None and decision.stage == "stop":
            if self._pending:
                return None
            if not self._persists:
                self.stopped = decision
                return None
        if decision is not None and decision.point is not None:
            return self._noted(self._take(decision.point, decision), along)
        return self._noted(self._sampled(left, taken, decision), along)

    def _noted(self, proposal: Proposal, along: Collection[Point]) -> Proposal:
        """The same as one that waits for its verdict."""
        beside = tuple(replace(each.asked, beside=(), drawn=()) for each in self.pending)
        asked = Asked(self._made, self._heard, tuple(along), beside, tuple(self._drawn))
        proposal = replace(proposal, asked=asked)
        self._made += 1
        self._pending[proposal.point] = proposal
        return proposal

    def _decision(self, along: Collection[Point]) -> Decision | None:
        """What the stages say; the sampler's turn, once it came, does not end."""
        if self._staged is None or not self._plain:
            return None
        if self.handed_over is None:
            pending = frozenset({*self._pending, *along})
            decision = self._staged.decide(Known(self._plain, self._told, pending))
            if "model" not in self._spec.active_stages and decision.stage not in _BEFORE_MODEL:
                decision = Decision("sampler", "the anchors are measured, search.stages ends here")
            if decision.point is not None:
                return decision
            if decision.stage == "stop" and (self._pending or not self._persists):
                return decision
            self.handed_over = decision.why
        return Decision("sampler", f"{self._sampler_chose}{self.handed_over}")

    def _sampled(
        self, left: Sequence[Point], taken: Collection[Point], decision: Decision | None
    ) -> Proposal:
        """What the sampler proposes of the points that are left."""
        if self._spec.sampler == "grid":
            return self._take(left[0])
        for _ in range(MAX_WASTED):
            trial = self._ask(left)
            values = self._suggest(trial)
            self._drawn.append(self._places(values))
            found = self._space.at(values)
            if isinstance(found, str) or found in taken:
                self._tell_wasted(trial, values, found)
            else:
                return Proposal(found, trial, decision)
        return self._take(self._random().choice(left), decision)

    def tell(self, proposal: Proposal, verdict: Verdict) -> None:
        """Say what became of a proposal."""
        trial = proposal.trial
        # Of very many points, what only the stages and several objectives ask for is not kept.
        told = verdict if self.reads_levels or not verdict.levels else replace(verdict, levels={})
        self._told[proposal.point] = told
        self._pending.pop(proposal.point, None)
        self._heard += 1
        trial.set_user_attr("point", proposal.point.label())
        if verdict.reason is not None:
            trial.set_user_attr("reason", verdict.reason)
        state, excess = _STATES[verdict.outcome], _excess(verdict)
        values = self._values(verdict)
        if self._spec.sampler == "gp" and excess:  # it looks at complete trials only
            state, values = TrialState.COMPLETE, [self._worst()]
        self._finish(trial, trial.params, state, values, excess=excess)

    def tell_unasked(self, point: Point, verdict: Verdict) -> None:
        """Say what became of a point that was measured without being proposed."""
        self.tell(self._take(point), verdict)

    def take(self, point: Point, instead: Proposal | None = None) -> Proposal:
        """A proposal for a point that somebody else chose, in the place of the study's own."""
        if instead is not None:
            self._pending.pop(instead.point, None)
            instead.trial.set_user_attr("reason", "the ledger has another point here")
            assert isinstance(instead.trial, Trial)
            self._study.tell(instead.trial, state=TrialState.FAIL)
        return self._take(point)

    def replay(
        self,
        measured: Sequence[tuple[Point, Verdict]],
        unasked: Collection[Point] = (),
        asked: Mapping[Point, Asked] | None = None,
        decided: Mapping[Point, Decision] | None = None,
    ) -> int:
        """Bring a new study to where an earlier one was; `decided`: each point's decision, where
        it had one. See `recalled`, or `replayed` where that does not say enough."""
        told = Recollection(frozenset(unasked), asked or {}, decided or {})
        sizes = tuple(map(len, self._space.dimensions.values()))
        if told.is_enough(self._spec.sampler, measured, sizes):
            for point, verdict in measured:
                self._recall(point, verdict, told)
            return 0
        return replay(self, measured, unasked, asked or {})

    def _recall(self, point: Point, verdict: Verdict, told: Recollection) -> None:
        """What `propose` and `tell` did for a point, or `tell_unasked`, without asking again."""
        own: Mapping[str, Any] | None = None
        if point not in told.unasked:
            self._recall_decision(told.decided.get(point))
            for places in told.drawn(point):
                own = self._at_places(places)
                found = self._space.at(own)
                if found != point:
                    self._tell_wasted(GivenTrial(own, self._distributions), own, found)
                    own = None
            self._made += 1
        trial = GivenTrial(own or combination(self._space, point), self._distributions)
        self.tell(Proposal(point, trial), verdict)

    def _recall_decision(self, decision: Decision | None) -> None:
        if decision is None or self._staged is None:
            return
        if is_staged(decision):
            self._staged.recall(decision, Known(self._plain, self._told))
        else:
            self.handed_over = decision.why.removeprefix(self._sampler_chose)

    def _places(self, values: Mapping[str, Any]) -> tuple[int, ...]:
        return tuple(map(_place, self._space.dimensions.values(), values.values()))

    def _at_places(self, places: Sequence[int]) -> dict[str, Any]:
        dimensions = self._space.dimensions
        return {n: dimensions[n][place] for n, place in zip(dimensions, places, strict=True)}

    @property
    def _sampler_chose(self) -> str:
        return f"{self._spec.sampler} chose it: "

    def _ask(self, left: Sequence[Point] = ()) -> Trial:
        """A trial whose values the sampler suggests, out of `left` where it can."""
        seed, name = self._random().getrandbits(32), self._spec.sampler
        startup = 1 if self.handed_over else startup_trials(self._trials)
        if name == "nsga2":
            self._study.sampler = generation_sampler(seed, self._trials)
        elif startup <= len(self._told) < MOST_MODELLED and (left or name == "tpe"):
            combinations = self._combinations(left) if name == "gp" else []
            waits = bool(self._pending)
            self._study.sampler = model_sampler(self._spec, seed, combinations, waits=waits)
        else:
            self._study.sampler = optuna.samplers.RandomSampler(seed=seed)
        return self._study.ask()

    def _combinations(self, points: Sequence[Point]) -> list[dict[str, Any]]:
        """As the sampler spells them."""
        return [combination(self._space, point) for point in points]

    def _suggest(self, trial: Trial) -> dict[str, Any]:
        return {name: suggest(trial, name, how) for name, how in self._distributions.items()}

    def _take(self, point: Point, decision: Decision | None = None) -> Proposal:
        """A proposal for a given point, without a sampler's choice."""
        self._study.enqueue_trial(combination(self._space, point))
        trial = self._ask()
        self._suggest(trial)
        return Proposal(point, trial, decision)

    def _random(self) -> random.Random:
        return random.Random(f"{self._spec.seed}:{len(self._study.get_trials(deepcopy=False))}")

    def _tell_wasted(
        self, trial: Trial | GivenTrial, values: Mapping[str, Any], found: Point | str
    ) -> None:
        """Answer a combination that is illegal, for this reason, or whose point is not left."""
        if isinstance(found, str):
            trial.set_user_attr("reason", found)
            self._finish(trial, values, TrialState.PRUNED, excess=1.0)
        elif found in self._told:
            self._tell_known(trial, values, found)
        else:
            trial.set_user_attr("reason", "it is being measured")
            self._finish(trial, values, TrialState.PRUNED)

    def _tell_known(
        self, trial: Trial | GivenTrial, values: Mapping[str, Any], point: Point
    ) -> None:
        """Answer a combination whose point has been told.

        Another spelling of the point (num_draft_tokens at topk 1) gets the known value, so that
        the sampler learns that the difference does not matter. The very same combination is
        pruned: its value again would only draw the sampler to where nothing is left to find.
        """
        known = self._told[point]
        trial.set_user_attr("point", point.label())
        trial.set_user_attr("reason", known.reason or "measured already")
        if known.outcome == "ok" and self._places(values) not in self._spellings:
            known_values, excess = self._values(known), _excess(known)
            self._finish(trial, values, TrialState.COMPLETE, known_values, excess=excess)
        else:
            self._finish(trial, values, TrialState.PRUNED, excess=_excess(known))

    def _finish(
        self,
        trial: Trial | GivenTrial,
        values: Mapping[str, Any],
        state: TrialState,
        objectives: Sequence[float] | None = None,
        *,
        excess: float = 0.0,
    ) -> None:
        if state != TrialState.FAIL:  # of these nothing is known
            trial.set_constraint(FEASIBLE, excess)
        self._spellings.add(self._places(values))
        if isinstance(trial, GivenTrial):
            trial.add_to(self._study, state, objectives)
        else:
            self._study.tell(trial, objectives, state=state)

    def _values(self, verdict: Verdict) -> list[float] | None:
        """What is maximised; None where the point was not measured."""
        if verdict.value is None:
            return None
        if not self._levels:
            return [verdict.value]
        ratios = [verdict.levels[level].speedup for level in self._levels]
        return [each if each is not None else verdict.value for each in ratios]

    def _worst(self) -> float:
        """The lowest value so far, for what has none."""
        return min((v.value for v in self._told.values() if v.value is not None), default=0.0)


def _place(values: Sequence[Any], value: Any) -> int:
    """Of a value among those of its dimension; 1 and True are two values."""
    return next(
        place for place, each in enumerate(values) if type(each) is type(value) and each == value
    )


def _excess(verdict: Verdict) -> float:
    """The constraint of a point."""
    return 1.0 if verdict.outcome == "infeasible" else verdict.excess
