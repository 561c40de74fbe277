"""What Optuna's trials of a study are answered with, by what became of their points."""

from collections.abc import Mapping, Sequence
from typing import Any

from optuna.study import Study as OptunaStudy
from optuna.trial import Trial, TrialState

from tuner.search.given import GivenTrial
from tuner.search.verdict import Outcome, Verdict
from tuner.sweep.level import Level
from tuner.sweep.point import Point
from tuner.sweep.space import Space

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
        self.told: dict[Point, Verdict] = {}
        self._spellings: set[tuple[int, ...]] = set()

    def tell(self, trial: Trial | GivenTrial, point: Point, verdict: Verdict) -> None:
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
        return min((v.value for v in self.told.values() if v.value is not None), default=0.0)


def _explain(trial: Trial | GivenTrial, point: Point | None, reason: str | None) -> None:
    """For people, in what is asked now; no sampler reads it, so what is recalled goes without."""
    if isinstance(trial, GivenTrial):
        return
    if point is not None:
        trial.set_user_attr("point", point.label())
    if reason is not None:
        trial.set_user_attr("reason", reason)


def _excess(verdict: Verdict) -> float:
    """The constraint of a point."""
    return 1.0 if verdict.outcome == "infeasible" else verdict.excess
