"""What is done with a run's trials takes time in proportion to them, and a bounded report."""

import time
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from benchmarks.large_runs import large_run, measured_run
from tuner.analysis.cycle_breakdown import MOST_SETTINGS, modelled
from tuner.analysis.run_results import RunView
from tuner.analysis.summary import summarise_run
from tuner.config.loader import load_sweep
from tuner.dashboard import live
from tuner.dashboard.live import Showing
from tuner.dashboard.study import StoredStudy
from tuner.dashboard.trials import make_schema
from tuner.report.figures import figures
from tuner.report.report import write_report
from tuner.runner.observations import make_study
from tuner.runs.run import Run

FEW, MANY = 100, 1000
MOST = 30
"""Times the CPU time that ten times the trials may take: with the square it would be a hundred."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    small = measured_run(tmp_path_factory.mktemp("small"))
    few, many = (
        Run.open(large_run(tmp_path_factory.mktemp(str(count)), count, small=small))
        for count in (FEW, MANY)
    )
    return few, many


def seconds(act: Callable[[Run], object], run: Run) -> float:
    """Of CPU."""
    began = time.process_time()
    act(run)
    return time.process_time() - began


def resumed(run: Run) -> None:
    loaded = load_sweep(run.sweep_file)
    with run.locked():
        study = make_study(loaded, run)
        assert study.propose() is not None


def displayed(run: Run) -> None:
    loaded = load_sweep(run.sweep_file)
    layout = make_schema(run, loaded.sweep, loaded.space.points)
    Showing(run, loaded.sweep, layout, StoredStudy("sqlite:///:memory:", layout))


def test_ten_times_the_trials_take_no_more_than_ten_times_the_work(runs: tuple[Run, Run]) -> None:
    for act in (Run.records, resumed, displayed, summarise_run):
        act(runs[0])  # what is imported and looked up once is no part of it
        few, many = (seconds(act, run) for run in runs)
        assert many < MOST * few, act.__name__


def test_the_report_of_many_trials_is_as_long_as_that_of_few(
    runs: tuple[Run, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 200
    monkeypatch.setattr(figures, "MOST_TRIALS", most)
    few, many = (write_report(run) for run in runs)
    assert many.stat().st_size < 1.5 * few.stat().st_size
    figure = ElementTree.parse(runs[1].figures / "history.svg")
    marks = [each for each in figure.iter() if each.tag.endswith("use")]
    assert FEW < len(marks) < 1.2 * most


def test_the_model_of_cycles_is_fitted_to_the_best_settings_of_many(runs: tuple[Run, Run]) -> None:
    found = RunView(runs[1]).ranked
    settings = {(each.point.env, each.point.flags) for each in found if each.point}
    assert len(settings) > MOST_SETTINGS  # else this shows nothing
    fitted = modelled(found)
    assert len({(each.point.env, each.point.flags) for each in fitted}) == MOST_SETTINGS
    assert fitted[0] is found[0]


def test_the_dashboard_has_the_newest_of_very_many(
    runs: tuple[Run, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_SHOWN", 40)
    monkeypatch.setattr(live, "DETAILED", 10)
    run = runs[0]
    loaded = load_sweep(run.sweep_file)
    layout = make_schema(run, loaded.sweep, loaded.space.points)
    stored = StoredStudy("sqlite:///:memory:", layout)
    assert Showing(run, loaded.sweep, layout, stored).lost is None
    trials = stored.storage.get_all_trials(stored._id)
    records = run.records()[-40:]
    assert [trial.user_attrs["trial"] for trial in trials] == [each.trial for each in records]
    assert ["c1.output_tok_s" in trial.user_attrs for trial in trials] == [False] * 30 + [True] * 10
