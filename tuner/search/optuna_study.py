"""Which point to measure next: Optuna's samplers over the space's legal points."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.study import Study as OptunaStudy
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from tuner.config.load_level import Level
from tuner.config.point import Point
from tuner.config.schema import SearchSpec
from tuner.config.space import Space
from tuner.search.decision import Decision
from tuner.search.forecast import Observations
from tuner.search.observation import LevelFigures, Observation, Outcome
from tuner.search.samplers import (
    combination,
    distribution,
    fixed_sampler,
    generation_sampler,
    model_sampler,
    startup_trials,
    suggest,
)
from tuner.search.staged import StagedPlanner

MAX_WASTED = 16
"""Illegal or known combinations in a row, after which a point is drawn from those left.

A sampler that has converged repeats itself, and a sampler in a space with few legal points misses.
Both learn nothing more from a longer try, and each try costs a model fit."""

MOST_MODELLED = 10_000
"""Trials that the sampler models. The time of a fit grows with the number of trials. Beyond this
number points are drawn at random."""

_BEFORE_MODEL = ("anchors", "sampler")
_STAGED = ("anchors", "model", "check")
"""Stages of decisions that named the point themselves."""


@dataclass(frozen=True)
class Proposal:
    """A legal point that is not measured yet, answered with `Study.tell`."""

    point: Point
    trial: Trial
    decision: Decision | None = None
    """Why this point; None without stages."""


class Study:
    """Proposes each legal point at most once and learns from observations. Several proposals may
    wait for their observations at a time.

    Each proposal's sampler is seeded from `search.seed` and the number of trials before it, so the
    same calls give the same proposals.
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

        `persists`: the sampler goes on after the stages have found that nothing better is left.
        `timed` is the result of the stage comm, see `StagedPlanner`. `levels`: concurrencies whose
        speed-ups are an objective each (`objectives`); if empty, `Observation.value` is the only
        objective.
        """
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space = space
        self._spec = spec
        self._trials = trials
        self._levels = tuple(levels)
        self._study = optuna.create_study(directions=["maximize"] * max(1, len(levels)))
        self._answers = Answers(self._study, space, spec.sampler, self._levels)
        self._told = self._answers.told
        self._pending: dict[Point, Proposal] = {}
        self._staged: StagedPlanner | None = None
        if "anchors" in spec.active_stages:
            self._staged = StagedPlanner(space.points, spec.objective, spec.seed, timed)
        self._plain: Mapping[Level, LevelFigures] = {}
        self._persists = persists
        self.handed_over: str | None = None
        """Why the sampler chooses from now on; None while the stages choose."""
        self.stopped: Decision | None = None
        """Why nothing more is proposed; None while something is."""

    def tell_baseline(self, plain: Mapping[Level, LevelFigures]) -> None:
        """Tell the baseline's figures, by concurrency. Without them there are no stages."""
        self._plain = dict(plain)

    def recommended(self) -> tuple[Point, Decision] | None:
        """Return the point that is fastest by all measurements together, and why.

        Returns None if there are no stages, the baseline is faster, or the model was given up.
        """
        if self._staged is None or not self._plain or self.handed_over:
            return None
        found = self._staged.smoothed(Observations(self._plain, self._told))
        point, ratio = next(iter(found.items()), (None, None))
        if point is None or ratio is None or ratio.value <= 1:
            return None
        why = (
            f"by all measurements together it is the fastest: {ratio.value:.3f} times the baseline"
        )
        smoothed = {point: ratio.value for point, ratio in found.items()}
        return point, Decision("confirm", why, point, ratio, smoothed=smoothed)

    @property
    def reads_levels(self) -> bool:
        """Whether the study uses an observation's figures by level."""
        return self._staged is not None or bool(self._levels)

    @property
    def optuna_trials(self) -> Sequence[FrozenTrial]:
        """Every trial of the Optuna study, wasted combinations included.

        The trials of proposals have the user attributes `point` and `reason`. A combination that
        cannot be served has a constraint above 0."""
        return self._study.get_trials(deepcopy=False)

    @property
    def pending(self) -> tuple[Proposal, ...]:
        """Proposals without an observation, in the order in which they were made."""
        return tuple(self._pending.values())

    def propose(self, along: Collection[Point] = ()) -> Proposal | None:
        """Return the next point to measure. `along`: points that are measured unproposed.

        Returns None if every legal point was measured, if the stages find that nothing better is
        left, or if nothing can be proposed before a pending proposal has its observation.
        """
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
            proposal = self._take(decision.point, decision)
        else:
            proposal = self._sampled(left, taken, decision)
        self._pending[proposal.point] = proposal
        return proposal

    def _decision(self, along: Collection[Point]) -> Decision | None:
        """Return the stages' decision. Once the sampler's turn has come, it does not end."""
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
        """Return the sampler's choice among the points that are left."""
        if self._spec.sampler == "grid":
            return self._take(left[0])
        for _ in range(MAX_WASTED):
            trial = self._ask(left)
            values = self._suggest(trial)
            found = self._space.at(values)
            if isinstance(found, str) or found in taken:
                self._answers.tell_wasted(trial, values, found)
            else:
                return Proposal(found, trial, decision)
        return self._take(self._random().choice(left), decision)

    def tell(self, proposal: Proposal, observation: Observation) -> None:
        """Tell what was observed of a proposal."""
        self._pending.pop(proposal.point, None)
        self._answers.tell(proposal.trial, proposal.point, self._slim(observation))

    def withdraw(self, proposal: Proposal, why: str) -> None:
        """Take a proposal back: it is not measured here."""
        self._pending.pop(proposal.point, None)
        proposal.trial.set_user_attr("reason", why)
        self._study.tell(proposal.trial, state=TrialState.FAIL)

    def add(self, point: Point, observation: Observation, decision: Decision | None = None) -> None:
        """Add a point that was measured without a proposal of this study.

        It comes from the ledger of a resumed run, a shared launch or another worker. `decision` is
        why an earlier call of the run proposed it."""
        if decision is not None and self._staged is not None:
            if decision.stage in _STAGED:
                self._staged.recall(decision, Observations(self._plain, self._told))
            else:
                self.handed_over = decision.why.removeprefix(self._sampler_chose)
        if self._spec.sampler == "nsga2":  # it learns only from trials of its own generations
            self._answers.tell(self._take(point).trial, point, self._slim(observation))
        else:
            self._answers.add(point, self._slim(observation))

    def _slim(self, observation: Observation) -> Observation:
        """Drop the levels if nothing reads them, to save memory."""
        if self.reads_levels or not observation.levels:
            return observation
        return replace(observation, levels={})

    @property
    def _sampler_chose(self) -> str:
        return f"{self._spec.sampler} chose it: "

    def _ask(self, left: Sequence[Point] = (), fixed: Mapping[str, Any] | None = None) -> Trial:
        """Return a trial whose values the sampler suggests, out of `left` if it can, or `fixed`."""
        seed, name = self._random().getrandbits(32), self._spec.sampler
        startup = 1 if self.handed_over else startup_trials(self._trials)
        if name == "nsga2":
            self._study.sampler = generation_sampler(seed, self._trials)
        elif startup <= len(self._told) < MOST_MODELLED and (left or name == "tpe"):
            combinations = [combination(self._space, p) for p in left] if name == "gp" else []
            waits = bool(self._pending)
            self._study.sampler = model_sampler(self._spec, seed, combinations, waits=waits)
        else:
            self._study.sampler = optuna.samplers.RandomSampler(seed=seed)
        if fixed is not None:
            self._study.sampler = fixed_sampler(fixed, self._study.sampler)
        return self._study.ask()

    def _suggest(self, trial: Trial) -> dict[str, Any]:
        distributions = self._answers.distributions
        return {name: suggest(trial, name, how) for name, how in distributions.items()}

    def _take(self, point: Point, decision: Decision | None = None) -> Proposal:
        """Return a proposal for a given point, without a sampler's choice."""
        trial = self._ask(fixed=combination(self._space, point))
        self._suggest(trial)
        return Proposal(point, trial, decision)

    def _random(self) -> random.Random:
        return random.Random(f"{self._spec.seed}:{len(self._study.get_trials(deepcopy=False))}")


FEASIBLE = "feasible"
"""Name of the constraint: 0 for a point that can be served, 1 for one that cannot. For a point that
can be served and breaks a limit, its excess over the limit, as a share of the limit."""

_STATES: Mapping[Outcome, TrialState] = {
    "ok": TrialState.COMPLETE,
    "infeasible": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


@dataclass(frozen=True)
class _Answer:
    """How a trial of the Optuna study ends."""

    state: TrialState
    values: Sequence[float] | None = None
    excess: float = 0.0
    """The constraint FEASIBLE."""


class Answers:
    """Ends the trials of one Optuna study, and knows every point that was told."""

    def __init__(
        self, study: OptunaStudy, space: Space, sampler: str, levels: Sequence[Level]
    ) -> None:
        self._study, self._space, self._sampler = study, space, sampler
        self._levels = tuple(levels)
        self.distributions = {n: distribution(v) for n, v in space.dimensions.items()}
        self.told: dict[Point, Observation] = {}
        self._spellings: set[tuple[Any, ...]] = set()

    def tell(self, trial: Trial, point: Point, observation: Observation) -> None:
        """End a trial with what was observed of its point."""
        self.told[point] = observation
        _explain(trial, point, observation.reason)
        self._finish(trial, trial.params, self._answer(observation))

    def add(self, point: Point, observation: Observation) -> None:
        """Add a finished trial for a point that was measured without being asked for."""
        self.told[point] = observation
        params, answer = combination(self._space, point), self._answer(observation)
        self._spellings.add(_spelling(params))
        self._study.add_trial(_recorded_trial(params, self.distributions, answer))

    def tell_wasted(self, trial: Trial, values: Mapping[str, Any], found: Point | str) -> None:
        """End a combination that is illegal, for this reason, or whose point is not left."""
        if isinstance(found, str):
            _explain(trial, None, found)
            self._finish(trial, values, _Answer(TrialState.PRUNED, excess=1.0))
        elif found in self.told:
            self._tell_known(trial, values, found)
        else:
            _explain(trial, None, "it is being measured")
            self._finish(trial, values, _Answer(TrialState.PRUNED))

    def _tell_known(self, trial: Trial, values: Mapping[str, Any], point: Point) -> None:
        """End a combination whose point has been told.

        Another spelling of the point (num_draft_tokens at topk 1) gets the known value, so that
        the sampler learns that the difference does not matter. The very same combination is
        pruned: its value again would only draw the sampler to a place where nothing is left.
        """
        known = self.told[point]
        _explain(trial, point, known.reason or "measured already")
        answer = _Answer(TrialState.PRUNED, excess=_excess(known))
        if known.outcome == "ok" and _spelling(values) not in self._spellings:
            answer = _Answer(TrialState.COMPLETE, self._values(known), _excess(known))
        self._finish(trial, values, answer)

    def _answer(self, observation: Observation) -> _Answer:
        state, excess = _STATES[observation.outcome], _excess(observation)
        if self._sampler == "gp" and excess:  # it looks at complete trials only
            return _Answer(TrialState.COMPLETE, [self._worst()], excess)
        return _Answer(state, self._values(observation), excess)

    def _finish(self, trial: Trial, values: Mapping[str, Any], answer: _Answer) -> None:
        if answer.state != TrialState.FAIL:  # nothing is known of a failed trial
            trial.set_constraint(FEASIBLE, answer.excess)
        self._spellings.add(_spelling(values))
        self._study.tell(trial, answer.values, state=answer.state)

    def _values(self, observation: Observation) -> list[float] | None:
        """Return what is maximised. Returns None if the point was not measured."""
        if observation.value is None:
            return None
        if not self._levels:
            return [observation.value]
        ratios = [observation.levels[level].speedup for level in self._levels]
        return [ratio if ratio is not None else observation.value for ratio in ratios]

    def _worst(self) -> float:
        """Return the lowest value so far, for a point that has no value."""
        values = (o.value for o in self.told.values() if o.value is not None)
        return min(values, default=0.0)


class _RecordedTrial(FrozenTrial):
    """A finished trial that Optuna keeps as it is. A copy of its distributions would take most of
    the time of a resume."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "_RecordedTrial":
        return self


_EPOCH = datetime(1970, 1, 1)
"""Start and end of recorded trials; no sampler reads them."""


def _recorded_trial(
    params: dict[str, Any], distributions: dict[str, BaseDistribution], answer: _Answer
) -> FrozenTrial:
    is_known = answer.state != TrialState.FAIL
    return _RecordedTrial(
        number=-1,  # the study sets the number and the id
        trial_id=-1,
        state=answer.state,
        value=None,
        values=answer.values,
        datetime_start=_EPOCH,
        datetime_complete=_EPOCH,
        params=params,
        distributions=distributions,
        user_attrs={},
        system_attrs=_constraint_attributes(float(answer.excess)) if is_known else {},
        intermediate_values={},
    )


@lru_cache(maxsize=1024)
def _constraint_attributes(excess: float) -> dict[str, Any]:
    """Return the attributes that hold the constraint, one dictionary for all trials of it."""
    return create_trial(value=0.0, constraints={FEASIBLE: excess}).system_attrs


def _spelling(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a key of a combination, in which 1 and True are different."""
    return tuple((type(value), value) for value in values.values())


def _explain(trial: Trial, point: Point | None, reason: str | None) -> None:
    """Set attributes for people; no sampler reads them."""
    if point is not None:
        trial.set_user_attr("point", point.label())
    if reason is not None:
        trial.set_user_attr("reason", reason)


def _excess(observation: Observation) -> float:
    """Return the constraint of a point."""
    return 1.0 if observation.outcome == "infeasible" else observation.excess
