"""The study that optuna-dashboard shows: all of a trial or none of it, and never in a run's way."""

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import Trial, TrialState
from optuna_dashboard import get_note, save_note

from tuner.dashboard import study as stored_room
from tuner.dashboard.run_files import RunFiles, artifact_id
from tuner.dashboard.shown import DashboardSchema, DashboardTrial
from tuner.dashboard.study import StoredStudy, find, link_files, open_own_study
from tuner.search.optuna_storage import StorageUnusable, open_storage, sqlite_url

AXES = {"num_steps": (0, 1, 2, 3), "env.NCCL_PROTO": ("unset", "LL")}


def layout(owner: str = "me") -> DashboardSchema:
    return DashboardSchema("run-1", owner, ("speed-up",), AXES)


def shown(steps: int, state: Any = "ok", *values: float, **more: Any) -> DashboardTrial:
    return DashboardTrial({"num_steps": steps, "env.NCCL_PROTO": "LL"}, state, values, **more)


def read(url: str) -> optuna.Study:
    return optuna.load_study(study_name="run-1", storage=url)


def note_of(study: optuna.Study, number: int) -> str:
    return get_note(Trial(study, study.trials[number]._trial_id))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return sqlite_url(tmp_path / "study.db")


def test_each_trial_is_shown_as_what_it_was(url: str) -> None:
    """optuna-dashboard knows an infeasible point by a list that Optuna 5 itself does not write."""
    began = datetime(2026, 11, 29, 17, 0, tzinfo=UTC)
    StoredStudy(url, layout()).add(
        [
            shown(1, "ok", 1.2, attributes={"c1.output_tok_s": 94.5}, started=began),
            shown(2, "infeasible", note="OOM", started=began, ended=began),
            shown(3, "failed", attributes={"reason": "CRASH: ended"}),
        ]
    )
    study = read(url)
    good, large, failed = study.trials
    assert [t.state for t in study.trials] == [
        TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL]  # fmt: skip
    assert (good.value, good.params) == (1.2, {"num_steps": 1, "env.NCCL_PROTO": "LL"})
    assert good.user_attrs == {"c1.output_tok_s": 94.5}
    assert good.datetime_start == began.astimezone().replace(tzinfo=None)
    assert [t.system_attrs.get("constraints") for t in study.trials] == [[0.0], [1.0], None]
    assert note_of(study, 1) == "OOM"
    assert failed.user_attrs == {"reason": "CRASH: ended"}
    assert study.metric_names == ["speed-up"]
    assert large.values is None


def test_a_trial_is_seen_while_it_runs_and_is_the_same_one_when_it_ends(url: str) -> None:
    stored = StoredStudy(url, layout())
    stored.begin(shown(2, "running", note="It runs."))
    (running,) = read(url).trials
    assert running.state == TrialState.RUNNING
    assert note_of(read(url), 0) == "It runs."
    # A shared launch can end with another point's line than the one it began with.
    stored.finish(shown(3, "ok", 1.1, attributes={"launch": 4}, note="x" * 5000))
    stored.finish(shown(1, "ok", 1.3))
    first, second = read(url).trials
    assert (first.state, first.value, first.params["num_steps"]) == (TrialState.COMPLETE, 1.1, 3)
    assert first.user_attrs == {"launch": 4}
    assert note_of(read(url), 0) == "x" * 5000
    assert second.value == 1.3
    assert stored.lost is None


def test_nobody_sees_a_finished_trial_without_its_figures(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page asks for a finished trial once: what came later would not be seen."""
    stored = StoredStudy(url, layout())
    stored.begin(shown(2, "running"))

    def full(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(stored_room, "put", full)
    stored.finish(shown(2, "ok", 1.1))
    assert stored.lost == "disk full"
    assert [t.state for t in read(url).trials] == [TrialState.RUNNING]


def test_what_was_cut_off_is_no_running_trial_and_no_line(url: str) -> None:
    stored = StoredStudy(url, layout())
    stored.finish(shown(1, "ok", 1.1))
    stored.begin(shown(2, "running"))
    storage = open_storage(url)
    found = find(storage, "run-1", "me")
    assert found is not None and not found.is_whole
    stored.give_up("stopped")
    found = find(storage, "run-1", "me")
    assert found is not None
    assert (found.is_whole, found.trials) == (True, 1)
    assert read(url).trials[1].user_attrs["reason"] == "stopped"
    assert find(storage, "run-1", "somebody else") is None


def test_the_users_own_note_of_a_study_is_kept(url: str) -> None:
    stored = StoredStudy(url, layout())
    stored.describe("a" * 5000, {"answer": "none"})
    stored.describe("b", {"answer": "trial 1"})
    assert get_note(read(url)) == "b"
    save_note(read(url), "mine")
    stored.describe("c", {"answer": "trial 2"})
    assert get_note(read(url)) == "mine"


def test_a_study_made_anew_has_nothing_of_the_one_before(url: str) -> None:
    stored = StoredStudy(url, layout())
    for steps in (1, 2, 3):
        stored.finish(shown(steps, "ok", 1.0, note=f"old {steps}", attributes={"old": 1}))
    StoredStudy(url, layout()).add([shown(3, "ok", 1.5, note="new")])
    study = read(url)
    assert [(t.number, t.value, t.user_attrs) for t in study.trials] == [(0, 1.5, {})]
    assert note_of(study, 0) == "new"


@pytest.mark.parametrize("when", ["add", "begin", "finish"])
def test_a_study_that_is_deleted_in_the_dashboard_does_not_end_the_run(url: str, when: str) -> None:
    stored = StoredStudy(url, layout())
    if when == "finish":
        stored.begin(shown(1, "running"))
    optuna.delete_study(study_name="run-1", storage=url)
    if when == "begin":
        stored.begin(shown(1, "running"))
    stored.finish(shown(1, "ok", 1.0))
    stored.describe("more", {"answer": "1"})
    stored.give_up("stopped")
    assert stored.lost


def test_the_runs_own_files_are_artifacts_and_nothing_else_is(url: str, tmp_path: Path) -> None:
    """A study from a stranger must not read the machine it is shown on, nor delete a run's log."""
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

    StoredStudy(url, layout()).add([shown(1, "ok", 1.0, files=("logs/0001.log",))])
    study, storage = read(url), open_storage(url)
    link_files(storage, study._study_id, ["report.html", "figures/speedup.png"])
    kinds = {
        artifact.filename: artifact.mimetype
        for each in (study, study.trials[0])
        for artifact in optuna.artifacts.get_all_artifact_meta(each, storage=storage)
    }
    assert kinds == {
        "logs/0001.log": "text/plain; charset=utf-8",
        "report.html": "application/octet-stream",  # its scripts, if any, must not run here
        "figures/speedup.png": "image/png",
    }
    assert artifact_id("logs/0001.log") in note_of(study, 0)


def test_a_study_of_somebody_elses_is_not_overwritten(tmp_path: Path):
    url = sqlite_url(tmp_path / "study.db")
    StoredStudy(url, layout())
    with pytest.raises(StorageUnusable, match="has another run's study run-1"):
        StoredStudy(url, layout("somebody else"))
    StoredStudy(url, layout())


@pytest.mark.parametrize(
    "url",
    ["", "nonsense", "sqlite:////no/such/folder/study.db", "foo://x/y", "redis://x", "sqlite:///."],
)
def test_a_storage_that_cannot_be_used_has_one_reason(url):
    with pytest.raises(StorageUnusable) as caught:
        StoredStudy(url, layout())
    assert len(str(caught.value).splitlines()) == 1


def test_a_broken_study_file_is_set_aside_and_written_anew(tmp_path: Path):
    """It is derived: a run must not depend on it."""
    file = tmp_path / "study.db"
    file.write_bytes(b"no database" * 100)
    stored, note = open_own_study(file, layout())
    assert stored is not None
    assert note is not None and "study.db.broken" in note and "search.storage" not in note
    assert (tmp_path / "study.db.broken").read_bytes().startswith(b"no database")
    assert open_own_study(file, layout())[1] is None


def test_a_study_file_that_cannot_be_replaced_is_done_without(tmp_path: Path):
    file = tmp_path / "study.db"
    file.mkdir()
    (tmp_path / "study.db.broken").mkdir()
    (tmp_path / "study.db.broken" / "full").touch()
    stored, note = open_own_study(file, layout())
    assert stored is None
    assert note is not None and "goes on without" in note
