"""Which point to measure next: Optuna's samplers over the space's legal points."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import optuna
from optuna.study import Study as OptunaStudy
from optuna.trial import FrozenTrial, Trial, TrialState

from tuner.config.load_level import Level
from tuner.config.point import Point
from tuner.config.schema import SearchSpec
from tuner.config.space import Space
from tuner.search.asked import Proposal, ProposalContext
from tuner.search.decision import Decision
from tuner.search.forecast import Observations
from tuner.search.given import GivenTrial
from tuner.search.observation import LevelFigures, Observation, Outcome
from tuner.search.recalled import Recollection, is_staged
from tuner.search.replayed import replay
from tuner.search.samplers import (
    combination,
    distribution,
    generation_sampler,
    model_sampler,
    startup_trials,
    suggest,
)
from tuner.search.staged import StagedPlanner

MAX_WASTED = 16
"""Illegal or known combinations in a row, after which a point is drawn from those left.

A sampler that has converged repeats itself, and one in a space where little is legal misses; both
learn nothing more from a longer try, which costs a model fit each time."""

MOST_MODELLED = 10_000
"""Points told up to which the sampler models what it was told: the time of a fit grows with them,
and there is no end to what is left that the model has not ranked by then. From there on points are
drawn at random."""

_BEFORE_MODEL = ("anchors", "sampler")


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
        is what the stage comm found, see `StagedPlanner`. `levels`: concurrencies whose speed-ups
        are an objective each (`objectives`); (): `Observation.value` is the only one.
        """
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space = space
        self._spec = spec
        self._trials = trials
        self._levels = tuple(levels)
        self._distributions = {n: distribution(v) for n, v in space.dimensions.items()}
        self._study = optuna.create_study(directions=["maximize"] * max(1, len(levels)))
        self._answers = Answers(self._study, space, spec.sampler, self._levels)
        self._told = self._answers.told
        self._pending: dict[Point, Proposal] = {}
        self._made = self._heard = 0
        """Proposals that were made; verdicts that were told."""
        self._drawn: list[tuple[int, ...]] = []
        """By the sampler, for the proposal that is being made."""
        self._staged: StagedPlanner | None = None
        if "anchors" in spec.active_stages:
            self._staged = StagedPlanner(space.points, spec.objective, spec.seed, timed)
        self._plain: Mapping[Level, LevelFigures] = {}
        self._persists = persists
        self.handed_over: str | None = None
        """Why the sampler chooses since then; None while the stages do."""
        self.stopped: Decision | None = None
        """Why nothing more is proposed, where the stages say so."""

    def tell_baseline(self, plain: Mapping[Level, LevelFigures]) -> None:
        """Say what the baseline takes, by concurrency; without it there are no stages."""
        self._plain = dict(plain)

    def recommended(self) -> tuple[Point, Decision] | None:
        """The measured point that is fastest by all measurements together, and why; None where
        there are no stages, the baseline is faster, or the model was given up."""
        if self._staged is None or not self._plain or self.handed_over:
            return None
        found = self._staged.smoothed(Observations(self._plain, self._told))
        point, its = next(iter(found.items()), (None, None))
        if point is None or its is None or its.value <= 1:
            return None
        why = f"by all measurements together it is the fastest: {its.value:.3f} times the baseline"
        smoothed = {each: ratio.value for each, ratio in found.items()}
        return point, Decision("confirm", why, point, its, smoothed=smoothed)

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
            if self._pending or along:
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
        asked = ProposalContext(self._made, self._heard, tuple(along), beside, tuple(self._drawn))
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
            decision = self._staged.decide(Observations(self._plain, self._told, pending))
            if "model" not in self._spec.active_stages and decision.stage not in _BEFORE_MODEL:
                decision = Decision("sampler", "the anchors are measured, search.stages ends here")
            if decision.point is not None:
                return decision
            if decision.stage == "stop" and (self._pending or along or not self._persists):
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
            self._drawn.append(self._answers.places(values))
            found = self._space.at(values)
            if isinstance(found, str) or found in taken:
                self._answers.tell_wasted(trial, values, found)
            else:
                return Proposal(found, trial, decision)
        return self._take(self._random().choice(left), decision)

    def tell(self, proposal: Proposal, verdict: Observation) -> None:
        """Say what became of a proposal."""
        self._pending.pop(proposal.point, None)
        self._heard += 1
        # Of very many points, what only the stages and several objectives ask for is not kept.
        kept = verdict if self.reads_levels or not verdict.levels else replace(verdict, levels={})
        self._answers.tell(proposal.trial, proposal.point, kept)

    def withdraw(self, proposal: Proposal, why: str) -> None:
        """Take a proposal back: it is not measured here."""
        assert isinstance(proposal.trial, Trial)
        self._pending.pop(proposal.point, None)
        proposal.trial.set_user_attr("reason", why)
        self._study.tell(proposal.trial, state=TrialState.FAIL)

    def tell_unasked(self, point: Point, verdict: Observation) -> None:
        """Say what became of a point that was measured without being proposed."""
        self.tell(self._take(point), verdict)

    def take(self, point: Point, instead: Proposal | None = None) -> Proposal:
        """A proposal for a point that somebody else chose, in the place of the study's own."""
        if instead is not None:
            self.withdraw(instead, "the ledger has another point here")
        return self._take(point)

    def replay(
        self,
        measured: Sequence[tuple[Point, Observation]],
        unasked: Collection[Point] = (),
        asked: Mapping[Point, ProposalContext] | None = None,
        decided: Mapping[Point, Decision] | None = None,
    ) -> int:
        """Bring a new study to where an earlier one was; `decided`: each point's decision, where
        it had one. See `recalled`, or `replayed` where that does not say enough."""
        told = Recollection(frozenset(unasked), asked or {}, decided or {})
        sizes = tuple(map(len, self._space.dimensions.values()))
        if told.is_enough(self._spec.sampler, measured, sizes) and self._leads_there(
            measured, told
        ):
            for point, verdict in measured:
                self._recall(point, verdict, told)
            return 0
        return replay(self, measured, unasked, asked or {})

    def _leads_there(
        self, measured: Sequence[tuple[Point, Observation]], told: Recollection
    ) -> bool:
        """Whether what was drawn for each point ends with it, as `_sampled` does: else the space
        has other values at these places, or somebody has changed a line."""
        drawn = ((point, told.drawn(point)) for point, _ in measured if point not in told.unasked)
        return all(
            len(all_drawn) == MAX_WASTED
            or self._space.at(self._answers.at_places(all_drawn[-1])) == point
            for point, all_drawn in drawn
            if all_drawn
        )

    def _recall(self, point: Point, verdict: Observation, told: Recollection) -> None:
        """What `propose` and `tell` did for a point, or `tell_unasked`, without asking again."""
        own: Mapping[str, Any] | None = None
        if point not in told.unasked:
            self._recall_decision(told.decided.get(point))
            all_drawn = told.drawn(point)
            for place, places in enumerate(all_drawn, start=1):
                own = self._answers.at_places(places)
                if place == len(all_drawn) < MAX_WASTED:
                    break  # `_leads_there` has seen where it leads
                if (found := self._space.at(own)) != point:
                    self._answers.tell_wasted(GivenTrial(own, self._distributions), own, found)
                    own = None
            self._made += 1
        trial = GivenTrial(own or combination(self._space, point), self._distributions)
        self.tell(Proposal(point, trial), verdict)

    def _recall_decision(self, decision: Decision | None) -> None:
        if decision is None or self._staged is None:
            return
        if is_staged(decision):
            self._staged.recall(decision, Observations(self._plain, self._told))
        else:
            self.handed_over = decision.why.removeprefix(self._sampler_chose)

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


FEASIBLE = "feasible"
"""Name of the constraint: 0 for a point that can be served, 1 for one that cannot, how far it is
over a limit (a share of that) for one that can and breaks it."""

_STATES: Mapping[Outcome, TrialState] = {
    "ok": TrialState.COMPLETE,
    "infeasible": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


class Answers:
    """Answers the trials of one study, and knows every point that has been told."""

    def __init__(
        self, study: OptunaStudy, space: Space, sampler: str, levels: Sequence[Level]
    ) -> None:
        self._study, self._space, self._sampler = study, space, sampler
        self._levels = tuple(levels)
        self._places = [
            {(type(value), value): place for place, value in reversed([*enumerate(values)])}
            for values in space.dimensions.values()
        ]
        """Of each dimension's values; 1 and True are two."""
        self.told: dict[Point, Observation] = {}
        self._spellings: set[tuple[int, ...]] = set()

    def tell(self, trial: Trial | GivenTrial, point: Point, verdict: Observation) -> None:
        """Answer a trial with what became of its point."""
        self.told[point] = verdict
        _explain(trial, point, verdict.reason)
        state, excess = _STATES[verdict.outcome], _excess(verdict)
        values = self._values(verdict)
        if self._sampler == "gp" and excess:  # it looks at complete trials only
            state, values = TrialState.COMPLETE, [self._worst()]
        self._finish(trial, trial.params, state, values, excess=excess)

    def places(self, values: Mapping[str, Any]) -> tuple[int, ...]:
        pairs = zip(self._places, values.values(), strict=False)
        return tuple([places[type(value), value] for places, value in pairs])

    def at_places(self, places: Sequence[int]) -> dict[str, Any]:
        dimensions = self._space.dimensions
        return {n: dimensions[n][place] for n, place in zip(dimensions, places, strict=True)}

    def tell_wasted(
        self, trial: Trial | GivenTrial, values: Mapping[str, Any], found: Point | str
    ) -> None:
        """Answer a combination that is illegal, for this reason, or whose point is not left."""
        if isinstance(found, str):
            _explain(trial, None, found)
            self._finish(trial, values, TrialState.PRUNED, excess=1.0)
        elif found in self.told:
            self._tell_known(trial, values, found)
        else:
            _explain(trial, None, "it is being measured")
            self._finish(trial, values, TrialState.PRUNED)

    def _tell_known(
        self, trial: Trial | GivenTrial, values: Mapping[str, Any], point: Point
    ) -> None:
        """Answer a combination whose point has been told.

        Another spelling of the point (num_draft_tokens at topk 1) gets the known value, so that
        the sampler learns that the difference does not matter. The very same combination is
        pruned: its value again would only draw the sampler to where nothing is left to find.
        """
        known = self.told[point]
        _explain(trial, point, known.reason or "measured already")
        if known.outcome == "ok" and self.places(values) not in self._spellings:
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
        self._spellings.add(self.places(values))
        if isinstance(trial, GivenTrial):
            trial.add_to(self._study, state, objectives)
        else:
            self._study.tell(trial, objectives, state=state)

    def _values(self, verdict: Observation) -> list[float] | None:
        """What is maximised; None where the point was not measured."""
        if verdict.value is None:
            return None
        if not self._levels:
            return [verdict.value]
        ratios = [verdict.levels[level].speedup for level in self._levels]
        return [each if each is not None else verdict.value for each in ratios]

    def _worst(self) -> float:
        """The lowest value so far, for what has none."""
        return min((v.value for v in self.told.values() if v.value is not None), default=0.0)


def _explain(trial: Trial | GivenTrial, point: Point | None, reason: str | None) -> None:
    """For people, in what is asked now; no sampler reads it, so what is recalled goes without."""
    if isinstance(trial, GivenTrial):
        return
    if point is not None:
        trial.set_user_attr("point", point.label())
    if reason is not None:
        trial.set_user_attr("reason", reason)


def _excess(verdict: Observation) -> float:
    """The constraint of a point."""
    return 1.0 if verdict.outcome == "infeasible" else verdict.excess
