"""A run that is not named by its whole path: nobody remembers a folder's second."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tests.factories import Trial, make_point, make_run
from tuner.cli.commands import specbench
from tuner.core.errors import UserError
from tuner.runs.run import Run


def run_at(path: Path) -> Path:
    """A whole run under this name."""
    made = make_run(path.parent, [Trial(None, 90.0), Trial(make_point(2), 99.0)])
    made.path.rename(path)
    return path


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place with runs of two sweeps; the newest is of the one whose name comes first."""
    monkeypatch.chdir(tmp_path)
    for name in ("b/20261129-100000", "a/20261130-100000", "a/20261130-100000-2"):
        run_at(Path("results") / name)
    run_at(Path("results/a/20261130-100000-10"))
    Path("results/figures").mkdir()
    return Path("results")


def said(*words: str) -> Result:
    return CliRunner().invoke(specbench, list(words), standalone_mode=False)


def usage(words: list[str]) -> str:
    found = said(*words).exception
    assert isinstance(found, click.UsageError)
    return found.message


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ([], "a/20261130-100000-10"),
        (["results"], "a/20261130-100000-10"),
        (["results/a"], "a/20261130-100000-10"),
        (["results/b/"], "b/20261129-100000"),
    ],
)
def test_status_and_report_are_of_the_newest_run(
    results: Path, given: list[str], meant: str
) -> None:
    """And say which one, not on stdout: scripts read that."""
    done = said("status", *given, "--json")
    assert json.loads(done.stdout)["run"] == str(results / meant)
    assert done.stderr == f"specbench: the newest run: {results / meant}\n"
    assert said("report", *given).stdout.strip() == str(results / meant / "report.md")
    other = said("status", "results/a/20261130-100000", "--json")
    assert json.loads(other.stdout)["run"] == "results/a/20261130-100000"
    assert other.stderr == ""


def test_the_dashboard_is_of_the_newest_run(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    monkeypatch.setattr("tuner.cli.dashboard.open_dashboard", lambda run, *_: opened.append(run))
    said("dashboard", "results/b")
    assert opened == [results / "b/20261129-100000"]


def test_what_ends_or_removes_wants_the_run_by_its_name(results: Path) -> None:
    """The newest run need not be the one that is meant; what was at work for a night is gone."""
    newest = "the newest: results/a/20261130-100000-10, results/a/20261130-100000-2 (at work), res"
    with Run.open(results / "a/20261130-100000-2").locked():
        for words in (["stop"], ["clean"], ["clean", "--yes"]):
            assert newest in usage(words)
    for words in (
        ["stop", "results/a"],
        ["clean", "results/a"],
        ["sweep", "--resume", "results/a"],
    ):
        found = said(*words).exception
        assert isinstance(found, UserError)
        assert "no run folder" in str(found)
        assert "its newest run is results/a/20261130-100000-10" in str(found)


def test_where_there_is_no_run_a_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["status"], ["report"], ["dashboard"]):
        assert "there is no run in results/" in str(said(*words).exception)
    assert usage(["stop"]) == "Give the run that is to stop."
    Path("results").mkdir()
    for path in ("results", "gone", "x" * 300):
        found = said("status", path).exception
        assert isinstance(found, UserError), path
