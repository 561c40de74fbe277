"""What a sweep cost against what it saves."""

from pathlib import Path

import pytest

from tests.factories import SWEEP, Trial, make_point, make_run
from tuner.analysis.summary import summarise_run
from tuner.report.sections import describe_cost
from tuner.runs.gpu_lock import spent
from tuner.runs.ledger import Ledger


def words(root: Path, trials: list[Trial], sweep: str = SWEEP) -> str | None:
    return describe_cost(summarise_run(make_run(root, trials, sweep=sweep)))


def test_the_hours_and_when_they_are_paid_back(tmp_path: Path) -> None:
    """Otherwise nobody can say whether the sweep was worth it. Two launches of 60 s and twice 30 s
    of load are 180 s; at 1.25 times the baseline an hour saves a quarter of one."""
    trials = [Trial(None, 100.0), Trial(make_point(2), 125.0)]
    run = make_run(tmp_path, trials)
    found = spent(run.ledger(), run.sweep())
    assert found is not None
    assert (found.hours, found.gpus, found.unknown) == (pytest.approx(180 / 3600), 4, 0)
    assert found.gpu_hours == pytest.approx(0.2)
    assert found.paid_back_after(1.25) == pytest.approx(0.2)
    told = words(tmp_path / "more", trials)
    assert told is not None
    assert told.startswith("The sweep took 3.0 min of servers on 4 GPUs, 0.2 GPU-hours. At 1.2")
    assert "(its first measurement) it is paid back after 1" in told


def test_other_prompts_are_what_is_expected(tmp_path: Path) -> None:
    """Otherwise a lucky figure pays the sweep back too early."""
    trials = [
        Trial(None, 100.0, unseen_tok_s=100.0),
        Trial(make_point(2), 150.0),
        Trial(make_point(2), 145.0, unseen_tok_s=120.0, role="confirm"),
    ]
    told = words(tmp_path, trials)
    assert told is not None and "(on other prompts)" in told and "At 1.1" in told


def test_nothing_is_made_up(tmp_path: Path) -> None:
    """Otherwise a failed launch costs 0 s, and no speculation pays for itself."""
    lost = [Trial(None, 100.0), Trial(make_point(1), 90.0)]
    told = words(tmp_path / "lost", lost)
    assert told is not None and "saves none" in told
    failed = Trial(make_point(2), failure="OOM", message="no", outcome="infeasible", launch_s=None)
    told = words(tmp_path / "failed", [*lost, failed])
    assert told is not None and "at least" in told and "1 launch without a time not counted" in told
    assert words(tmp_path / "none", [Trial(None, 100.0, launch_s=None)]) is None
    stages = SWEEP.replace("space:", "server: {flags: {pp-size: 2}}\nspace:", 1)
    told = words(tmp_path / "pp", lost, stages)
    assert told is not None and "on 8 GPUs" in told
    replicas = SWEEP.replace("space:", "server: {flags: {dp-size: 2}}\nspace:", 1)
    told = words(tmp_path / "dp", lost, replicas)
    assert told is not None and "on 8 GPUs" in told


def test_a_launch_before_a_retry_has_cost_something(tmp_path: Path) -> None:
    """Otherwise the hours look whole where a server hung before the one that was measured."""
    run = make_run(tmp_path, [Trial(None, 100.0), Trial(make_point(1), 120.0)])
    ledger = run.ledger()
    retried = ledger.records[1].model_copy(update={"launch_id": 2})
    found = spent(Ledger((ledger.records[0], retried)), run.sweep())
    assert found is not None and found.unknown == 1


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("concurrency: [1]", "concurrency: [1], request_rate: 4", "requests came at a given rate"),
        (
            "trials: 6",
            "trials: 6, objective: {metric: decode_tok_s}",
            "the objective is the speed of decoding",
        ),
    ],
)
def test_what_is_no_work_pays_nothing_back(tmp_path: Path, old: str, new: str, why: str) -> None:
    """`each such hour does the work of 1.45 without it` was said of answers that came quicker at
    the same rate: a boss would order fewer GPUs."""
    trials = [Trial(None, 100.0), Trial(make_point(2), 125.0)]
    told = words(tmp_path, trials, SWEEP.replace(old, new))
    assert told is not None and told.startswith("The sweep took 3.0 min of servers on 4 GPUs")
    assert f"paid back is not told: {why}" in told
    assert "full load" not in told
