"""Which point to measure next: Optuna's samplers over the space's legal points."""

import json
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import Trial, TrialState

from tuner.search.stored import StoredStudy
from tuner.sweep.model import UNSET, SearchSpec
from tuner.sweep.point import Point
from tuner.sweep.space import Space

MAX_WASTED = 16
"""Illegal or known combinations in a row, after which a point is drawn from those left.

A sampler that has converged repeats itself, and one in a space where little is legal misses; both
learn nothing more from a longer try, which costs a model fit each time."""

FEASIBLE = "feasible"
"""Name of the constraint: 0 for a point that can be served, 1 for one that cannot."""

Outcome = Literal["ok", "infeasible", "failed"]
_STATES: Mapping[Outcome, TrialState] = {
    "ok": TrialState.COMPLETE,
    "infeasible": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


@dataclass(frozen=True)
class Verdict:
    """What became of a point. `value` is the objective, set exactly where the outcome is ok."""

    outcome: Outcome
    value: float | None = None
    reason: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Flat figures for the dashboard, such as `c1.output_tok_s`."""


@dataclass(frozen=True)
class Proposal:
    """A legal point that is not measured yet, answered with `Study.tell`."""

    point: Point
    trial: Trial


class Study:
    """Proposes each legal point at most once and learns from what it is told.

    Deterministic: the same space, spec, trials and verdicts give the same proposals, because the
    sampler of each proposal is seeded from the seed and the number of the proposal. That is what
    makes `replay` possible, and with it a resumed run that goes on as if it had not stopped.
    """

    def __init__(
        self, space: Space, spec: SearchSpec, trials: int, stored: StoredStudy | None = None
    ) -> None:
        """`trials` is the number that the run was begun with; an extension does not change it."""
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space = space
        self._spec = spec
        self._startup = startup_trials(trials)
        self._distributions = {n: _distribution(v) for n, v in space.dimensions.items()}
        self._study = optuna.create_study(direction="maximize")
        self._stored = stored
        self._told: dict[Point, Verdict] = {}
        self._spellings: set[str] = set()

    @property
    def storage_lost(self) -> str | None:
        """Why the stored copy is no longer kept up; None while it is."""
        return self._stored.lost if self._stored else None

    def propose(self) -> Proposal | None:
        """The next point to measure; None when every legal point has been told."""
        left = [point for point in self._space.points if point not in self._told]
        if not left:
            return None
        if self._spec.sampler == "grid":
            return self._take(left[0])
        for _ in range(MAX_WASTED):
            trial = self._ask()
            values = self._suggest(trial)
            found = self._space.at(values)
            if isinstance(found, str):
                trial.set_user_attr("reason", found)
                self._finish(trial, values, TrialState.PRUNED, feasible=False)
            elif found in self._told:
                self._tell_known(trial, values, found)
            else:
                return Proposal(found, trial)
        return self._take(self._random().choice(left))

    def tell(self, proposal: Proposal, verdict: Verdict) -> None:
        """Say what became of a proposal."""
        trial = proposal.trial
        self._told[proposal.point] = verdict
        trial.set_user_attr("point", proposal.point.label())
        for name, value in verdict.attributes.items():
            trial.set_user_attr(name, value)
        if verdict.reason is not None:
            trial.set_user_attr("reason", verdict.reason)
        state, feasible = _STATES[verdict.outcome], verdict.outcome != "infeasible"
        self._finish(trial, trial.params, state, verdict.value, feasible=feasible)
        if self._stored:
            self._stored.copy(self._study.get_trials(deepcopy=False))

    def tell_unasked(self, point: Point, verdict: Verdict) -> None:
        """Say what became of a point that was measured without being proposed."""
        self.tell(self._take(point), verdict)

    def replay(
        self,
        measured: Sequence[tuple[Point, Verdict]],
        unasked: Collection[Point] = (),
    ) -> int:
        """Bring a new study to where an earlier one was, from what the ledger remembers.

        The proposals are made again, wasted ones included, so that the next one is what the
        undisturbed run would have proposed; those in `unasked` were none. Returns how many
        differed from the ledger (0 unless Optuna has changed); those are told all the same.
        """
        differing = 0
        for point, verdict in measured:
            if point in unasked:
                self.tell_unasked(point, verdict)
                continue
            proposal = self.propose()
            if proposal is None or proposal.point != point:
                differing += 1
                if proposal is not None:
                    proposal.trial.set_user_attr("reason", "the ledger has another point here")
                    self._study.tell(proposal.trial, state=TrialState.FAIL)
                proposal = self._take(point)
            self.tell(proposal, verdict)
        return differing

    def _ask(self) -> Trial:
        seed = self._random().getrandbits(32)
        if self._spec.sampler == "tpe" and len(self._told) >= self._startup:
            self._study.sampler = optuna.samplers.TPESampler(
                seed=seed, n_startup_trials=1, constant_liar=False
            )
        else:
            self._study.sampler = optuna.samplers.RandomSampler(seed=seed)
        return self._study.ask()

    def _suggest(self, trial: Trial) -> dict[str, Any]:
        return {name: _suggest(trial, name, how) for name, how in self._distributions.items()}

    def _take(self, point: Point) -> Proposal:
        """A proposal for a given point, without a sampler's choice."""
        self._study.enqueue_trial(combination(self._space, point))
        trial = self._ask()
        self._suggest(trial)
        return Proposal(point, trial)

    def _random(self) -> random.Random:
        return random.Random(f"{self._spec.seed}:{len(self._study.get_trials(deepcopy=False))}")

    def _tell_known(self, trial: Trial, values: Mapping[str, Any], point: Point) -> None:
        """Answer a combination whose point has been told.

        Another spelling of the point (num_draft_tokens at topk 1) gets the known value, so that
        the sampler learns that the difference does not matter. The very same combination is
        pruned: its value again would only draw the sampler to where nothing is left to find.
        """
        known = self._told[point]
        trial.set_user_attr("point", point.label())
        trial.set_user_attr("reason", known.reason or "measured already")
        if known.outcome == "ok" and _spelling(values) not in self._spellings:
            self._finish(trial, values, TrialState.COMPLETE, known.value)
        else:
            feasible = known.outcome != "infeasible"
            self._finish(trial, values, TrialState.PRUNED, feasible=feasible)

    def _finish(
        self,
        trial: Trial,
        values: Mapping[str, Any],
        state: TrialState,
        value: float | None = None,
        *,
        feasible: bool = True,
    ) -> None:
        if state != TrialState.FAIL:  # of these nothing is known
            trial.set_constraint(FEASIBLE, 0.0 if feasible else 1.0)
        self._spellings.add(_spelling(values))
        self._study.tell(trial, value, state=state)


def startup_trials(trials: int) -> int:
    """Points that TPE draws at random before it models anything: a quarter of the run, 4 to 10.

    10 is Optuna's own number. A model fitted to fewer than 4 points is noise, and a short run
    that spends more than a quarter on random points would be a random search.
    """
    return min(10, max(4, trials // 4))


def combination(space: Space, point: Point) -> dict[str, Any]:
    """The value of each dimension that makes `point`, which is one of the space's."""
    return {name: _value(space, point, name) for name in space.dimensions}


def _value(space: Space, point: Point, name: str) -> Any:
    kind, _, key = name.partition(".")
    allowed = space.dimensions[name]
    same: tuple[Any, ...]  # spellings that make the same point
    if kind == "env":
        same = (dict(point.env).get(key, UNSET),)
    elif kind == "flags":
        flags = dict(point.flags)
        same = (flags[key],) if key in flags else (False, UNSET)
    elif name == "num_draft_tokens" and point.eagle_topk == 1:
        same = allowed  # it follows from num_steps
    elif name == "draft_tp" and point.draft_tp == "target":
        same = ("target", space.tp)
    else:
        same = (getattr(point, name),)
    wanted = {(type(value), value) for value in same}
    return next(value for value in allowed if (type(value), value) in wanted)


def _spelling(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True)


def _distribution(values: Sequence[Any]) -> BaseDistribution:
    """Integers in a row keep their order for the sampler; anything else is a set of choices."""
    if all(type(value) is int for value in values):
        low, high = min(values), max(values)
        if sorted(values) == list(range(low, high + 1)):
            return IntDistribution(low, high)
    return CategoricalDistribution(values)


def _suggest(trial: Trial, name: str, how: BaseDistribution) -> Any:
    if isinstance(how, IntDistribution):
        return trial.suggest_int(name, how.low, how.high)
    assert isinstance(how, CategoricalDistribution)
    return trial.suggest_categorical(name, how.choices)
