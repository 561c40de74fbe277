"""Whether `--resume` has anything to do is told by how the run ended, not by its count."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.factories import SWEEP, Trial, make_point, make_run
from tuner.analysis.summary import summarise_run
from tuner.cli.commands import specbench
from tuner.report.answer import describe_end
from tuner.runs.run import Run
from tuner.runs.status import Ended, read_ended, told_end, write_ended

FINISHED = Ended(True)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Two of six candidates."""
    return make_run(
        tmp_path, [Trial(None, 90.0), Trial(make_point(1), 88.0), Trial(make_point(2), 99.0)]
    )


def status(run: Run) -> str:
    done = CliRunner().invoke(specbench, ["status", str(run.path)])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_search_that_ended_by_itself_is_not_to_be_resumed(run: Run) -> None:
    """Its resume launches nothing, and whoever is told to do it thinks that the answer waits."""
    write_ended(run, FINISHED)
    shown = status(run)
    assert "2 of 6 candidates" in shown
    assert "the search ended by itself" in shown
    assert "--resume" not in shown
    assert describe_end(summarise_run(run)) is None


def test_missing_closing_launches_are_due_though_every_candidate_is_there(run: Run) -> None:
    run.extend_to(2)
    assert "--resume" not in status(run), "an older run says nothing of its end"
    with pytest.raises(KeyboardInterrupt), told_end(run):
        write_ended(run, Ended(False, None, closing=True))
        raise KeyboardInterrupt
    shown = status(run)
    assert "closing launches are missing" in shown
    assert f"go on with: specbench sweep --resume {run.path}" in shown
    assert describe_end(summarise_run(run)) == (
        "**Ended early at 2 of 2 candidates** (it was interrupted); closing launches missing; "
        f"go on with `specbench sweep --resume {run.path}`."
    )


@pytest.mark.parametrize("text", ["", "[]", '{"finished": 1}', "\xff", "[" * 100_000])
def test_a_broken_file_says_nothing(run: Run, text: str) -> None:
    run.ended_file.write_text(text, encoding="latin-1")
    assert read_ended(run) is None
    assert "--resume" in status(run)


def test_an_interrupt_after_the_end_changes_nothing(run: Run) -> None:
    with pytest.raises(KeyboardInterrupt), told_end(run):
        write_ended(run, FINISHED)
        raise KeyboardInterrupt
    assert read_ended(run) == FINISHED


def test_status_has_the_reports_figures(tmp_path: Path) -> None:
    """Two figures for one candidate leave nobody knowing which one to believe."""
    sweep = SWEEP.replace("concurrency: [1]", "concurrency: [1, 8]")
    trials = [Trial(None, 90.0), Trial(make_point(2), 120.0), Trial(None, 96.0)]
    run = make_run(tmp_path, trials, sweep=sweep, levels=(1, 8))
    found = summarise_run(run).speedup
    words = "; ".join(f"{each.value:.3f}x at concurrency {level}" for level, each in found.items())
    assert f"2 steps, 3 tokens, {words}" in status(run)
