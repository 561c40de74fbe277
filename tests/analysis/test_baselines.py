"""Speed-ups over all launches of the baseline, from the ledger and the samples alone."""

import re
from pathlib import Path

import pytest

from tests.factories import Trial, make_point, make_run
from tuner.analysis.baselines import settle
from tuner.analysis.summary import summarise_run
from tuner.report.report import write_report

SLOWING = [
    Trial(None, 100.0),
    Trial(make_point(1), 110.0),
    Trial(make_point(2), 109.0),
    Trial(None, 90.0),
]
"""Launches a minute apart on a machine that loses a tenth: the second candidate is the faster."""


def test_drift_decides_which_candidate_is_the_best(tmp_path: Path) -> None:
    """Otherwise the candidate that was measured first wins for that."""
    run = make_run(tmp_path, SLOWING)
    written = run.ledger()
    assert written.records[1].metrics["1"]["speedup"] > written.records[2].metrics["1"]["speedup"]
    result = summarise_run(run)
    assert result.best is not None and result.best.at == make_point(2)
    assert result.speedup[1].value == pytest.approx(1.09 / 0.9 ** (2 / 3), rel=0.01)
    drift = result.to_json()["baseline_drift"]["1"]
    assert drift["value"] == pytest.approx(0.9, rel=0.01)
    assert (drift["launches"], drift["corrected"]) == (2, True)
    assert run.ledger() == written, "the ledger is what was measured"


def test_the_report_says_that_it_was_corrected(tmp_path: Path) -> None:
    """Otherwise nobody can check the quotient of the figures in the table."""
    report = write_report(summarise_run(make_run(tmp_path, SLOWING))).read_text()
    assert "**The baseline drifted**: its last launch was 9." in report
    assert re.search(
        r"had 2 launches \(output_tok_s\): 96\.\d, 87\.\d, the last 9\.\d % slower", report
    )
    assert "how far the baseline's launches differ" in report


def test_baselines_that_agree_are_said_to(tmp_path: Path) -> None:
    """Otherwise a reader does not know whether drift was looked for."""
    run = make_run(tmp_path, [Trial(None, 100.0), Trial(make_point(1), 110.0), Trial(None, 100.0)])
    report = write_report(summarise_run(run)).read_text()
    assert "The baseline drifted" not in report
    assert "launches differ by no more than their windows explain" in report
    assert summarise_run(run).to_json()["baseline_drift"]["1"]["corrected"] is False


def test_a_run_with_one_baseline_reads_as_before(tmp_path: Path) -> None:
    """Otherwise the figures of published runs change."""
    run = make_run(tmp_path, [Trial(None, 100.0, outcome="failed"), *SLOWING[:3]])
    settled = settle(run)
    assert settled.ledger == run.ledger()
    assert settled.baselines == {}
    assert "baseline_drift" not in summarise_run(run).to_json()
    report = write_report(summarise_run(run)).read_text()
    assert "They do not cover the spread between launches." in report


def test_samples_that_are_gone_leave_the_figures_as_they_were(tmp_path: Path) -> None:
    """Otherwise a run folder without its samples has no report."""
    run = make_run(tmp_path, SLOWING)
    run.samples_file(1).unlink()
    settled = settle(run).ledger
    assert settled.records[1] == run.ledger().records[1]
    assert settled.records[2] != run.ledger().records[2]
    run.samples_file(3).unlink()
    assert settle(run).ledger == run.ledger()
    write_report(summarise_run(run))


def test_baselines_that_disagree_stand_in_the_headline(tmp_path: Path) -> None:
    """A machine that was disturbed in one launch answers nothing, however the rest reads."""
    trials = [Trial(None, 90.0), Trial(make_point(2), 70.0), Trial(None, 60.0)]
    run = make_run(tmp_path, trials)
    report = write_report(summarise_run(run)).read_text()
    assert "**Doubtful**: the baseline's launches disagree (" in report
    assert "No speculation is fastest here" not in report
    calm = make_run(tmp_path / "calm", [*trials[:2], Trial(None, 89.0)])
    assert "launches disagree" not in write_report(summarise_run(calm)).read_text()
