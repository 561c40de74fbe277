"""The study that optuna-dashboard shows: a trial for each ledger line, never in a run's way."""

import io
import sqlite3
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import InMemoryStorage
from optuna.trial import Trial as OptunaTrial
from optuna.trial import TrialState
from optuna_dashboard import get_note, save_note

from tests.factories import Trial, make_point, make_run
from tuner.config.point import Point
from tuner.dashboard.run_files import RunFiles, artifact_id
from tuner.dashboard.study import DashboardListener, RunStudy, open_own_study
from tuner.execution.progress import Phase, SweepProgress
from tuner.runs.run import Run
from tuner.search import optuna_storage
from tuner.search.optuna_storage import StorageUnusable, open_storage, sqlite_url

LL = (("NCCL_PROTO", "LL"),)
POINTS = [make_point(2), make_point(3, env=LL), make_point(4), make_point(5)]
TRIALS = [
    Trial(None, 90.0),
    Trial(POINTS[0], 95.0),
    Trial(POINTS[1], 130.0),
    Trial(POINTS[2], outcome="infeasible", failure="OOM", message="no memory is left"),
    Trial(POINTS[3], outcome="failed", failure="CRASH", message="it ended"),
]
STANDING = SweepProgress(1, 4, None, None, None)


def study_of(run: Run, url: str, points: list[Point] = POINTS) -> RunStudy:
    return RunStudy(open_storage(url), run, run.sweep(), points)


def read(run: Run, url: str) -> optuna.Study:
    return optuna.load_study(study_name=run.id, storage=url)


def note_of(study: optuna.Study, number: int) -> str:
    return get_note(OptunaTrial(study, study.trials[number]._trial_id))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path, TRIALS)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return sqlite_url(tmp_path / "team.db")


def test_trials_have_state_values_params_and_note_of_the_ledger(run: Run, url: str) -> None:
    study_of(run, url).extend()
    study, records = read(run, url), run.records()
    assert [trial.state for trial in study.trials] == [
        TrialState.COMPLETE, TrialState.COMPLETE, TrialState.COMPLETE,
        TrialState.PRUNED, TrialState.FAIL,
    ]  # fmt: skip
    assert [trial.number for trial in study.trials] == [record.trial for record in records]
    base, _, best, large, failed = study.trials
    assert (base.value, base.params["num_steps"]) == (1.0, 0)
    assert best.value == records[2].metrics["1"]["speedup"]
    assert best.params == {"num_steps": 3, "env.NCCL_PROTO": "LL"}
    assert best.user_attrs["c1.output_tok_s"] == records[2].metrics["1"]["output_tok_s"]
    started = datetime.fromisoformat(records[2].started)
    assert best.datetime_start == started.astimezone().replace(tzinfo=None)
    assert best.duration is not None and best.duration.total_seconds() >= 60
    constraints = [trial.system_attrs.get("constraints") for trial in study.trials]
    assert constraints == [[0.0], [0.0], [0.0], [1.0], None]
    assert large.values is None
    assert "cannot be served: OOM" in note_of(study, 3)
    assert failed.user_attrs["reason"] == "CRASH: it ended"
    assert study.metric_names == ["speed-up (geomean)"]
    assert study.best_trial.number == 2


def test_extend_adds_only_missing_trials_and_keeps_edits(run: Run, url: str) -> None:
    first = study_of(run, url)
    first.extend(2)
    study = read(run, url)
    save_note(OptunaTrial(study, study.trials[1]._trial_id), "mine")
    second = study_of(run, url)
    assert second.missing == 3
    second.extend()
    assert second.missing == 0
    study = read(run, url)
    assert len(study.trials) == 5
    assert note_of(study, 1) == "mine"


def test_fewer_points_on_resume_extend_the_same_study(run: Run, url: str) -> None:
    """Optuna refuses a parameter whose choices change."""
    study_of(run, url).extend(3)
    study_of(run, url, POINTS[:1]).extend()
    assert len(read(run, url).trials) == 5


def test_study_with_more_trials_than_the_ledger_is_replaced(run: Run, url: str) -> None:
    study_of(run, url).extend()
    lines = run.trials_file.read_bytes().splitlines(keepends=True)
    run.trials_file.write_bytes(b"".join(lines[:2]))
    study_of(run, url).extend()
    assert [trial.number for trial in read(run, url).trials] == [0, 1]


def test_study_of_another_run_is_not_overwritten(tmp_path: Path, url: str) -> None:
    """Two run folders can have the same name."""
    run = make_run(tmp_path, TRIALS[:2])
    study_of(run, url).extend()
    run.settings = run.settings.model_copy(update={"identity": "somebody else's"})
    with pytest.raises(StorageUnusable, match=f"has another run's study {run.id}"):
        study_of(run, url)
    assert len(read(run, url).trials) == 2


@pytest.mark.parametrize(
    "url",
    ["", "nonsense", "sqlite:////no/such/folder/study.db", "foo://x/y", "redis://x", "sqlite:///."],
)
def test_storage_that_cannot_be_used_has_one_reason(run: Run, url: str) -> None:
    with pytest.raises(StorageUnusable) as caught:
        study_of(run, url)
    assert len(str(caught.value).splitlines()) == 1


def test_study_note_that_a_user_edited_is_kept(run: Run) -> None:
    study = RunStudy(InMemoryStorage(), run, run.sweep(), POINTS)
    shown = study._study
    study._describe(None, None, measured=False)
    study.describe_so_far()
    best = run.records()[2]
    assert f"trial 2: {best.label}, " in shown.user_attrs["answer"]
    assert shown.user_attrs["answer"] in get_note(shown).replace("\\", "")
    save_note(shown, "mine")
    study._describe(None, None, measured=True)
    assert shown.user_attrs["answer"] == "no speculation"
    assert get_note(shown) == "mine"


def test_listener_shows_the_running_trial_and_extends_the_study(run: Run) -> None:
    study = RunStudy(InMemoryStorage(), run, run.sweep(), POINTS)
    listener, shown = DashboardListener(study), study._study
    listener.phase(Phase(1, "candidate", POINTS[0], "launching"))
    assert shown.user_attrs["running"] == f"trial 1: {POINTS[0].label()}"
    listener.recorded(run.records()[1], STANDING)
    assert len(shown.trials) == 5
    listener.stop()
    assert shown.user_attrs["running"] == "nothing"
    assert listener.lost is None


def test_full_disk_ends_the_writing_and_not_the_run(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        tried.append(1)
        raise OSError("disk full")

    tried: list[int] = []
    monkeypatch.setattr(optuna.Study, "add_trial", full)
    listener = DashboardListener(RunStudy(InMemoryStorage(), run, run.sweep(), POINTS))
    for record in run.records():
        listener.recorded(record, STANDING)
    listener.stop()
    assert listener.lost == "disk full"
    assert len(tried) == 1


def test_locked_study_is_given_up_within_seconds(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optuna_storage, "DERIVED_WAIT_S", 0.1)
    study, _ = open_own_study(run, run.sweep(), POINTS)
    listener = DashboardListener(study)
    holder = sqlite3.connect(run.study_file)
    holder.execute("BEGIN EXCLUSIVE")
    began = time.monotonic()
    for record in run.records():
        listener.recorded(record, STANDING)
    assert time.monotonic() - began < 30
    assert listener.lost is not None and "locked" in listener.lost
    holder.close()


def test_study_deleted_in_the_dashboard_does_not_end_the_run(run: Run, url: str) -> None:
    listener = DashboardListener(study_of(run, url))
    optuna.delete_study(study_name=run.id, storage=url)
    listener.phase(Phase(1, "candidate", POINTS[0], "launching"))
    listener.recorded(run.records()[1], STANDING)
    listener.stop()
    assert listener.lost


def test_run_files_serve_the_run_folder_and_nothing_else(tmp_path: Path) -> None:
    """A study from a stranger must not read this machine, nor delete a run's log."""
    run = tmp_path / "run"
    (run / "logs").mkdir(parents=True)
    (run / "logs" / "0001.log").write_text("The server is fired up")
    (tmp_path / "secret").write_text("key")
    (run / "logs" / "link").symlink_to(tmp_path / "secret")
    files = RunFiles(run)
    assert files.open_reader(artifact_id("logs/0001.log")).read() == b"The server is fired up"
    for name in ("../secret", str(tmp_path / "secret"), "logs/link", "logs", "gone", "a\0b"):
        assert b"no such file" in files.open_reader(artifact_id(name)).read()
    assert b"no such file" in files.open_reader("abc").read()
    files.remove(artifact_id("logs/0001.log"))
    with pytest.raises(PermissionError):
        files.write("abc", io.BytesIO(b"more"))
    assert (run / "logs" / "0001.log").exists()


def test_logs_and_reports_are_artifacts(run: Run, url: str) -> None:
    run.log_file(2).write_text("The server is fired up")
    run.report_html.write_text("<html>")
    run.figures.mkdir(exist_ok=True)
    (run.figures / "speedup.png").write_bytes(b"")
    study = study_of(run, url)
    study.extend()
    study.link(run.results)
    shown, storage = read(run, url), open_storage(url)
    kinds = {
        artifact.filename: artifact.mimetype
        for owner in (shown, shown.trials[2])
        for artifact in optuna.artifacts.get_all_artifact_meta(owner, storage=storage)
    }
    kinds.pop("samples/0002.jsonl.gz")
    assert kinds == {
        "logs/0002.log": "text/plain; charset=utf-8",
        "report.html": "application/octet-stream",  # its scripts, if any, must not run here
        "figures/speedup.png": "image/png",
    }
    assert artifact_id("logs/0002.log") in note_of(shown, 2)


def open_own(run: Run) -> tuple[Any, str | None]:
    return open_own_study(run, run.sweep(), POINTS)


def test_broken_study_file_is_set_aside_and_written_anew(run: Run) -> None:
    """The study is derived: a run must not depend on it."""
    run.study_file.write_bytes(b"no database" * 100)
    study, note = open_own(run)
    assert study is not None
    assert note is not None and "study.db.broken" in note and "search.storage" not in note
    assert (run.path / "study.db.broken").read_bytes().startswith(b"no database")
    assert open_own(run)[1] is None


def test_study_file_of_another_run_is_set_aside(run: Run) -> None:
    """A folder may be a copy of another run."""
    open_own(run)
    run.settings = run.settings.model_copy(update={"identity": "another"})
    study, note = open_own(run)
    assert study is not None and study.missing == 5
    assert note is not None and "another run's study" in note


def test_study_file_that_is_a_link_is_not_followed(run: Run, tmp_path: Path) -> None:
    """A run folder that somebody sent may hold links to one's own files."""
    run.study_file.symlink_to(tmp_path / "elsewhere.db")
    study, _ = open_own(run)
    assert study is not None
    assert not (tmp_path / "elsewhere.db").exists()
    assert not run.study_file.is_symlink()


def test_study_file_that_cannot_be_replaced_is_done_without(run: Run) -> None:
    run.study_file.mkdir()
    (run.path / "study.db.broken").mkdir()
    (run.path / "study.db.broken" / "full").touch()
    study, note = open_own(run)
    assert study is None
    assert note is not None and "goes on without" in note
