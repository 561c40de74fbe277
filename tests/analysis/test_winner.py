"""The winner's rules: the report's first line and what best.sh launches."""

from typing import Any

import pytest

from tests.factories import make_point_json, make_record, make_speedup
from tuner.analysis.best_per_level import not_told_apart
from tuner.analysis.equivalence import by_lines, objective_ratio
from tuner.analysis.winner import (
    Selection,
    complexity,
    divergent_outputs,
    fastest_candidate,
    next_confirmation,
    pooled_figures,
)
from tuner.config.point import Point
from tuner.config.schema import ObjectiveSpec
from tuner.runs.ledger import Ledger
from tuner.runs.records import DecisionLine, OutputsLine, TrialRecord
from tuner.search.decision import Decision

SPEC = ObjectiveSpec()


def record(trial: int, value: float, half: float, **point: Any) -> TrialRecord:
    """A candidate with this ratio at two levels, and 95 % intervals of `half` either way."""
    whole = make_point_json(point.pop("num_steps", 3), **point)
    level = make_speedup(value, half)
    return make_record(trial, point=whole, metrics={"1": level, "8": dict(level)}, engine="sglang")


@pytest.mark.parametrize(
    "heavier",
    [{"draft_tp": 1}, {"env": {"NCCL_PROTO": "LL"}}, {"flags": {"x": True}}, {"num_steps": 5},
     {"eagle_topk": 2, "num_draft_tokens": 4}],
)  # fmt: skip
def test_tie_goes_to_simpler_configuration(heavier: dict[str, Any]) -> None:
    """A user would patch SGLang, or set variables, for a gain that is noise."""
    simple = record(2, 1.574, 0.05)
    found = fastest_candidate(Ledger((record(1, 1.582, 0.05, **heavier), simple)), SPEC)
    assert found == (simple, pytest.approx(1.574))
    ledger = Ledger((record(1, 1.582, 0.05, **heavier), simple))
    assert len(Selection(ledger, SPEC).indistinguishable) == 2


@pytest.mark.parametrize(
    ("value", "half", "why"),
    [
        (1.574, 0.001, "the intervals exclude a tie"),
        (1.540, 0.05, "more is given up than a simpler configuration is worth"),
    ],
)
def test_distinguishable_candidates_are_not_tied(value: float, half: float, why: str) -> None:
    """A user would lose a measured gain for a simpler command."""
    best = record(1, 1.582, half, draft_tp=1)
    assert fastest_candidate(Ledger((best, record(2, value, half))), SPEC)[0] is best, why


def test_candidate_below_baseline_is_not_tied_with_winner() -> None:
    """A simpler candidate below the baseline would turn the answer into "do not speculate"."""
    best = record(1, 1.01, 0.05, draft_tp=1)
    assert fastest_candidate(Ledger((best, record(2, 0.995, 0.05))), SPEC)[0] is best


def test_without_intervals_highest_objective_wins() -> None:
    best, simple = record(1, 1.582, 0.05, draft_tp=1), record(2, 1.580, 0.05)
    for figures in simple.metrics.values():
        del figures["speedup_low"]
    assert fastest_candidate(Ledger((best, simple)), SPEC)[0] is best


def test_complexity_orders_plugin_settings_tree_tokens() -> None:
    order = [
        Point(num_steps=2, eagle_topk=1, num_draft_tokens=3),
        Point(num_steps=7, eagle_topk=1, num_draft_tokens=8),
        Point(num_steps=2, eagle_topk=2, num_draft_tokens=3),
        Point(num_steps=1, eagle_topk=1, num_draft_tokens=2, env=(("NCCL_PROTO", "LL"),)),
        Point(num_steps=1, eagle_topk=1, num_draft_tokens=2, draft_tp=1),
    ]
    mixed = [*order[2:], *order[:2]]
    assert sorted(mixed, key=complexity) == order


def own_launch(trial: int, of: TrialRecord, value: float) -> TrialRecord:
    """Return the confirmation of a candidate that the search chose."""
    metrics = {level: {"speedup": value} for level in of.metrics}
    decision = DecisionLine(stage="confirm", why="why")
    changed = {"trial": trial, "role": "confirm", "metrics": metrics, "decision": decision}
    return of.model_copy(update=changed)


def test_choice_refuted_by_its_confirmation_is_not_winner() -> None:
    """best.sh would launch a server that was slower than no speculation when last measured."""
    chosen, other = record(1, 1.04, 0.001), record(2, 1.10, 0.001, num_steps=5)
    for value, answer in ((1.03, chosen), (0.9, other)):
        again = own_launch(3, chosen, value)
        assert fastest_candidate(Ledger((chosen, other, again)), SPEC)[0] is answer


def test_choice_tied_with_simpler_candidate_is_not_winner() -> None:
    """The search does not know complexity, so its choice must not undo the rule for ties."""
    heavier, simple = record(1, 1.582, 0.05, draft_tp=1), record(2, 1.574, 0.05)
    higher = record(3, 1.60, 0.001, draft_tp=2)
    ledger = Ledger((heavier, simple, higher, own_launch(4, heavier, 1.58)))
    assert fastest_candidate(ledger, SPEC)[0] is simple


def with_pooled(of: TrialRecord, trial: int, **smoothed: float) -> TrialRecord:
    """Return a confirmation with the pooled figures of trials t1, t2, ..."""
    told = {name.removeprefix("t"): value for name, value in smoothed.items()}
    return own_launch(trial, of, 1.58).model_copy(update={"decision": None, "smoothed": told})


def test_candidate_below_leader_by_pooled_figures_is_not_tied() -> None:
    """One lucky launch of a simple candidate would cost the user more than the rule allows."""
    best, simple = record(1, 1.582, 0.05, draft_tp=1), record(2, 1.574, 0.05)
    for its, answer in ((1.52, best), (1.56, best), (1.57, simple), (1.60, simple)):
        ledger = Ledger((best, simple, with_pooled(best, 3, t1=1.58, t2=its)))
        assert fastest_candidate(ledger, SPEC)[0] is answer
    # Without a pooled figure, only the launches count.
    ledger = Ledger((best, simple, with_pooled(best, 3, t1=1.58)))
    assert fastest_candidate(ledger, SPEC)[0] is simple
    # Pooled figures are out of date once a further candidate was measured.
    ledger = Ledger((best, simple, with_pooled(best, 3, t1=1.58, t2=1.52), record(4, 1.0, 0.01)))
    assert fastest_candidate(ledger, SPEC)[0] is simple


def test_choice_leads_if_pooled_figures_contradict_rival() -> None:
    """Two launches and the model give 3 steps 1.26; a single launch gives 2 steps 1.27."""
    chosen, simple = record(1, 1.25, 0.01), record(2, 1.27, 0.01, num_steps=2)
    again = own_launch(3, chosen, 1.26)
    assert fastest_candidate(Ledger((chosen, simple, again)), SPEC)[0] is simple
    for its, answer in ((1.22, chosen), (1.25, simple)):
        told = again.model_copy(update={"smoothed": {"1": 1.255, "2": its}})
        assert fastest_candidate(Ledger((chosen, simple, told)), SPEC)[0] is answer


def test_next_confirmation_is_of_the_later_answer() -> None:
    """The recommended configuration would have no confirmation."""
    best, simple = record(1, 1.582, 0.05, draft_tp=1), record(2, 1.574, 0.05)
    assert best.at is not None and simple.at is not None
    ledger = Ledger((best, simple))
    for its, answer in ((1.52, best), (1.57, simple)):
        smoothed = {best.at: 1.58, simple.at: its}
        recommended = best.at, Decision("confirm", "why", best.at, smoothed=smoothed)
        assert pooled_figures(ledger, recommended) == {1: 1.58, 2: its}
        assert next_confirmation(ledger, SPEC, by_lines, recommended) == (answer, None)
    # A third candidate has the highest objective: the search's choice is launched first.
    higher = record(3, 1.59, 0.05, draft_tp=2)
    assert higher.at is not None
    smoothed = {best.at: 1.58, simple.at: 1.55, higher.at: 1.56}
    recommended = best.at, Decision("confirm", "why", best.at, smoothed=smoothed)
    ledger = Ledger((best, simple, higher))
    assert next_confirmation(ledger, SPEC, by_lines, recommended) == (best, recommended[1])


def at_levels(of: TrialRecord, *ratios: tuple[float, float]) -> TrialRecord:
    """Return a copy with these (ratio, half of its interval) at concurrency 1 and 8."""
    metrics = {
        level: {"speedup": r, "speedup_low": r * (1 - half), "speedup_high": r * (1 + half)}
        for level, (r, half) in zip(("1", "8"), ratios, strict=True)
    }
    return of.model_copy(update={"metrics": metrics})


def test_choice_does_not_lead_if_simpler_rival_is_faster() -> None:
    """The report would recommend 3 steps (1.249) although 2 steps (1.259) are simpler."""
    chosen = at_levels(record(1, 1.0, 0.0), (1.40, 0.002), (1.114, 0.002))
    simple = at_levels(record(2, 1.0, 0.0, num_steps=2), (1.354, 0.002), (1.171, 0.002))
    for again, answer in ((1.247, simple), (1.28, chosen)):  # 1.28: together 1.264
        ledger = Ledger((chosen, simple, own_launch(3, chosen, again)))
        assert fastest_candidate(ledger, SPEC)[0] is answer
    # The rival's confirmation counts as much as that of the choice.
    both = (chosen, simple, own_launch(3, chosen, 1.247), own_launch(4, simple, 1.23))
    found = both[3].model_copy(update={"decision": None})
    assert fastest_candidate(Ledger((*both[:3], found)), SPEC)[0] is chosen


def test_choice_with_highest_figure_does_not_lead_if_launches_refute_it() -> None:
    """One lucky launch of the choice must not outweigh two launches of a simpler rival."""
    chosen, simple = record(1, 1.29, 0.01), record(2, 1.25, 0.01, num_steps=2)
    again = own_launch(4, simple, 1.25).model_copy(update={"decision": None})
    ledger = Ledger((chosen, simple, own_launch(3, chosen, 1.20), again))
    assert fastest_candidate(ledger, SPEC)[0] is simple


def test_confirmation_of_shared_server_trial_is_not_averaged() -> None:
    """A server with a single configuration is faster than the shared server of its rivals."""
    shared = {"warm_steps": (2, 3)}
    chosen = record(1, 1.249, 0.01).model_copy(update=shared)
    simple = record(2, 1.259, 0.01, num_steps=2).model_copy(update=shared)
    ledger = Ledger((chosen, simple, own_launch(3, chosen, 1.30)))
    assert fastest_candidate(ledger, SPEC)[0] is simple


def test_not_told_apart_compares_objectives() -> None:
    """4 steps are faster at one load and slower at the other, so they are as good overall."""
    best = at_levels(record(1, 1.0, 0.0), (1.30, 0.01), (1.20, 0.01))
    other = at_levels(record(2, 1.0, 0.0, num_steps=4), (1.36, 0.01), (1.15, 0.01))
    slower = at_levels(record(3, 1.0, 0.0, num_steps=5), (1.30, 0.01), (1.10, 0.01))
    ledger = Ledger((best, other, slower))
    assert not_told_apart(ledger, SPEC, best) == [other]
    assert not_told_apart(ledger, ObjectiveSpec(over=8), best) == []
    assert not_told_apart(ledger, ObjectiveSpec(over="min"), best) == []


def test_not_told_apart_without_intervals_is_empty() -> None:
    one = at_levels(record(1, 1.0, 0.0), (1.30, 0.01), (1.20, 0.01))
    other = at_levels(record(2, 1.0, 0.0), (1.19, 0.01), (1.40, 0.01))
    found = objective_ratio(one, other, ObjectiveSpec(over="min"), by_lines)
    assert found is not None
    assert (found.value, found.includes_one) == (pytest.approx(1.19 / 1.20), True)
    del other.metrics["1"]["speedup_low"]
    ledger = Ledger((one, other))
    assert not_told_apart(ledger, SPEC, one) == []
    assert not_told_apart(ledger, ObjectiveSpec(over="min"), one) == []


def test_candidate_without_objective_level_is_not_eligible() -> None:
    other = record(2, 1.1, 0.01)
    lacking = record(1, 2.0, 0.01)
    del lacking.metrics["8"]
    ledger, spec = Ledger((lacking, other)), ObjectiveSpec(over=8)
    assert fastest_candidate(ledger, spec)[0] is other


def test_tie_allows_simpler_candidate_to_be_faster_at_a_level() -> None:
    """With `over: 8` the other concurrency is not part of the objective."""
    spec = ObjectiveSpec(over=8)
    best, simple = record(1, 1.50, 0.02, draft_tp=1), record(2, 1.495, 0.02)
    simple.metrics["1"].update(speedup=3.0, speedup_low=2.9, speedup_high=3.1)
    assert fastest_candidate(Ledger((best, simple)), spec)[0] is simple
    simple.metrics["1"].update(speedup=1.0, speedup_low=0.98, speedup_high=1.02)
    assert fastest_candidate(Ledger((best, simple)), spec)[0] is best


def with_divergent_outputs(of: TrialRecord) -> TrialRecord:
    return of.model_copy(update={"outputs": {"8": OutputsLine(outcome="far", stops=True)}})


def test_candidate_with_divergent_outputs_is_not_winner() -> None:
    """The next best candidate is the answer, or no speculation."""
    wrong, right = with_divergent_outputs(record(1, 2.0, 0.01)), record(2, 1.2, 0.01)
    assert fastest_candidate(Ledger((wrong, right)), SPEC) == (right, pytest.approx(1.2))
    assert fastest_candidate(Ledger((wrong,)), SPEC) == (wrong, 1.0)


def test_confirmation_with_divergent_outputs_refutes_candidate() -> None:
    """The server that goes to production may differ from the shared one."""
    first, other = record(1, 2.0, 0.01), record(2, 1.2, 0.01, num_steps=5)
    again = with_divergent_outputs(first).model_copy(update={"trial": 3, "role": "confirm"})
    ledger = Ledger((first, other, again))
    assert fastest_candidate(ledger, SPEC)[0] is other
    assert divergent_outputs(ledger, first) is again


def test_divergent_outputs_without_stop_are_accepted() -> None:
    fast = record(1, 2.0, 0.01)
    warned = fast.model_copy(update={"outputs": {"1": OutputsLine(outcome="far")}})
    assert fastest_candidate(Ledger((warned, record(2, 1.2, 0.01))), SPEC)[0] is warned
