"""Which candidate is the one to run: the report's first line and what best.sh launches."""

from typing import Any

import pytest

from tuner.choice import complexity, fastest_candidate
from tuner.ledger.lines import Ledger
from tuner.ledger.record import TrialRecord
from tuner.sweep.model import ObjectiveSpec
from tuner.sweep.point import Point

SPEC = ObjectiveSpec()


def record(trial: int, value: float, half: float, **point: Any) -> TrialRecord:
    """A candidate with this ratio at two levels, and 95 % intervals of `half` either way."""
    whole = {"num_steps": 3, "eagle_topk": 1, "draft_tp": "target", "env": {}, "flags": {}} | point
    whole = {"num_draft_tokens": whole["num_steps"] + 1} | whole
    level = {
        "speedup": value,
        "speedup_low": value * (1 - half),
        "speedup_high": value * (1 + half),
    }
    return TrialRecord(
        trial=trial, role="candidate", point=whole, outcome="ok", failure=None, engine="sglang",
        engine_version=None, launch_id=trial, launch_s=1.0, started="2026-11-29T00:00:00Z",
        metrics={"1": level, "8": dict(level)}, samples=None,
    )  # type: ignore[arg-type]  # fmt: skip


@pytest.mark.parametrize(
    "heavier",
    [{"draft_tp": 1}, {"env": {"NCCL_PROTO": "LL"}}, {"flags": {"x": True}}, {"num_steps": 5},
     {"eagle_topk": 2, "num_draft_tokens": 4}],
)  # fmt: skip
def test_a_tie_goes_to_the_simpler_configuration(heavier: dict[str, Any]) -> None:
    """Else a user patches SGLang, or sets variables, for what is noise."""
    simple = record(2, 1.574, 0.05)
    found = fastest_candidate(Ledger((record(1, 1.582, 0.05, **heavier), simple)), SPEC)
    assert found == (simple, pytest.approx(1.574))


@pytest.mark.parametrize(
    ("value", "half", "why"),
    [
        (1.574, 0.001, "the intervals tell them apart"),
        (1.540, 0.05, "more is given up than a simpler configuration is worth"),
    ],
)
def test_what_is_told_apart_is_no_tie(value: float, half: float, why: str) -> None:
    """A gain that was measured is not thrown away for tidiness."""
    best = record(1, 1.582, half, draft_tp=1)
    assert fastest_candidate(Ledger((best, record(2, value, half))), SPEC)[0] is best, why


def test_a_tie_does_not_turn_a_win_into_no_speculation() -> None:
    """A simpler candidate below the baseline would make the answer `do not speculate`."""
    best = record(1, 1.01, 0.05, draft_tp=1)
    assert fastest_candidate(Ledger((best, record(2, 0.995, 0.05))), SPEC)[0] is best


def test_without_intervals_the_higher_figure_wins() -> None:
    best, simple = record(1, 1.582, 0.05, draft_tp=1), record(2, 1.580, 0.05)
    for figures in simple.metrics.values():
        del figures["speedup_low"]
    assert fastest_candidate(Ledger((best, simple)), SPEC)[0] is best


def test_a_plug_in_weighs_more_than_settings_and_these_more_than_tokens() -> None:
    order = [
        Point(num_steps=2, eagle_topk=1, num_draft_tokens=3),
        Point(num_steps=7, eagle_topk=1, num_draft_tokens=8),
        Point(num_steps=2, eagle_topk=2, num_draft_tokens=3),
        Point(num_steps=1, eagle_topk=1, num_draft_tokens=2, env=(("NCCL_PROTO", "LL"),)),
        Point(num_steps=1, eagle_topk=1, num_draft_tokens=2, draft_tp=1),
    ]
    mixed = [*order[2:], *order[:2]]
    assert sorted(mixed, key=complexity) == order
