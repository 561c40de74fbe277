"""What a run says it found, from ledger lines alone."""

from pathlib import Path

import pytest

from tests.sweeps import tiny_sweep
from tuner.analysis.summary import summarise_run
from tuner.analysis.winner import read_objective
from tuner.config.schema import ObjectiveSpec
from tuner.runner.observations import to_observation
from tuner.runner.sweep_run import begin_run
from tuner.runs.records import TrialRecord


def line(trial: int, outcome: str = "ok", **ratios: float | None) -> TrialRecord:
    """A baseline for trial 0, else a candidate with these speed-ups (c1=1.2, c8=None)."""
    figures = {
        name.removeprefix("c"): {
            "output_tok_s": 90.0,
            "speedup": ratio,
            "speedup_low": ratio,
            "speedup_high": ratio,
        }
        for name, ratio in ratios.items()
    }
    point = {"num_steps": trial, "eagle_topk": 1, "num_draft_tokens": trial + 1}
    return TrialRecord(
        trial=trial,
        role="candidate" if trial else "baseline",
        point={**point, "draft_tp": "target", "env": {}, "flags": {}} if trial else None,
        outcome=outcome,
        failure=None if outcome == "ok" else "CRASH",
        engine="simulated",
        engine_version="0.5.17",
        launch_id=trial,
        launch_s=1.0,
        started="2026-11-29T17:37:02Z",
        metrics=figures,
        samples=None,
    )


@pytest.fixture
def summary(tmp_path: Path):
    def summarised(*records: TrialRecord):
        run = begin_run(tmp_path / "runs", tiny_sweep(tmp_path, search="max_failures: 2"), None)
        with run.locked():
            for record in records:
                run.append(record)
        return summarise_run(run)

    return summarised


def test_the_first_of_equals_is_the_best(summary):
    result = summary(line(0, c1=None), line(1, c1=1.1), line(2, c1=1.2), line(3, c1=1.2))
    assert result.best is not None
    assert result.best.trial == 2
    assert result.speedup[1].value == 1.2


def test_nothing_beats_the_baseline_is_an_answer(summary):
    result = summary(line(0, c1=None), line(1, c1=0.9), line(2, c1=1.0))
    assert (result.best, result.exit_code) == (None, 0)
    assert result.to_json()["best"] is None
    assert result.to_json()["speedup"] == {"1": {"value": 1.0, "low": 1.0, "high": 1.0}}
    assert result.fastest is not None
    assert result.fastest.trial == 2


def test_a_run_where_every_candidate_failed_is_a_failure(summary):
    assert summary(line(0, c1=None), line(1, "infeasible")).exit_code == 1


def test_a_baseline_alone_is_no_answer(summary):
    """It would tell people to serve without speculation, which nobody has tried."""
    result = summary(line(0, c1=None))
    assert (result.exit_code, result.best, result.speedup) == (1, None, {})
    assert result.verdict == "no answer: no candidate was measured"


def test_candidates_without_the_objective_are_no_answer(summary):
    result = summary(line(0, c1=None, c8=None), line(1, c1=1.2, c8=None))
    assert (result.exit_code, result.best, result.speedup) == (1, None, {})
    assert result.verdict.startswith("no answer")


def test_failures_between_successes_are_no_failure_of_the_run(summary):
    records = [line(0, c1=None), line(1, "failed"), line(2, c1=1.1), line(3, "failed")]
    assert summary(*records).exit_code == 0


def test_failures_at_the_end_are(summary):
    records = [line(0, c1=None), line(1, c1=1.1), line(2, "failed"), line(3, "failed")]
    result = summary(*records)
    assert result.exit_code == 1
    assert result.best is not None


def test_an_empty_run_has_measured_nothing(summary):
    result = summary()
    assert (result.exit_code, result.trials, result.launches) == (1, 0, 0)


def test_a_candidate_without_one_levels_ratio_has_no_objective():
    assert read_objective(line(1, c1=1.2, c8=None), ObjectiveSpec()) is None
    verdict = to_observation(line(1, c1=1.2, c8=None), ObjectiveSpec())
    assert (verdict.outcome, verdict.value) == ("failed", None)


def test_one_level_decides_where_the_sweep_says_so():
    assert read_objective(line(1, c1=1.2, c8=0.8), ObjectiveSpec(over=8)) == 0.8
