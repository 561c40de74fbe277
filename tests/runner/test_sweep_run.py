"""A whole run: in order, to its end, and on again after whatever ended it."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sweeps import Listener, tiny_sweep
from tuner.analysis.summary import RunSummary, summarise_run
from tuner.config.loader import LoadedSweep, load_sweep
from tuner.config.point import Point
from tuner.core.errors import EngineFailure, Failure, UserError
from tuner.engines import make_engine
from tuner.runner.sweep_run import begin_run, reopen_run, run_sweep
from tuner.runs.run import Run
from tuner.server.base import server_config

DIES_AFTER_TWO = """
import os, signal, sys
from pathlib import Path
from tests.sweeps import Listener
from tuner.runner.sweep_run import reopen_run, run_sweep
from tuner.engines import make_engine
from tuner.config.loader import LoadedSweep, load_sweep

class Dying(Listener):
    def recorded(self, record, standing):
        if record.trial == 2:
            os.kill(os.getpid(), signal.SIGKILL)

loaded = load_sweep(Path(sys.argv[1]))
run = reopen_run(Path(sys.argv[2]), loaded, None)
run_sweep(loaded, run, make_engine(loaded.sweep), Dying())
"""


def go(loaded: LoadedSweep, run: Run, listener: Listener | None = None) -> RunSummary:
    return run_sweep(loaded, run, make_engine(loaded.sweep), listener or Listener())


def test_grid_measures_the_baseline_and_then_every_point_once(tmp_path: Path):
    loaded = tiny_sweep(tmp_path, search="sampler: grid, trials: 1", steps="2, 3")
    run, listener = begin_run(tmp_path / "runs", loaded, None), Listener()
    result = go(loaded, run, listener)
    records = run.records()
    assert [each.role for each in records] == ["baseline"] + ["candidate"] * 4 + ["plain"]
    assert tuple(each.at for each in records[1:-1]) == loaded.space.points
    assert [each.launch_id for each in records] == list(range(6))
    assert list(records) == listener.records
    assert (result.trials, result.launches, result.exit_code) == (4, 6, 0)
    assert listener.standings[-1].done == listener.standings[-1].wanted == 4
    assert result == summarise_run(Run.open(run.path))

    shown = json.loads(json.dumps(result.to_json()))
    assert shown["run"] == str(run.path)
    assert shown["baseline"]["1"]["output_tok_s"] > 0
    assert shown["best"]["env"] == {"NCCL_PROTO": "LL"}
    assert shown["speedup"]["1"]["low"] <= shown["speedup"]["1"]["value"]
    assert shown["speedup"]["1"]["value"] > 1


def test_a_killed_run_goes_on_as_if_nothing_had_been(tmp_path: Path):
    loaded = tiny_sweep(tmp_path, search="trials: 4, seed: 5")
    run = begin_run(tmp_path / "runs", loaded, None)
    words = [sys.executable, "-c", DIES_AFTER_TWO, str(loaded.path), str(run.path)]
    killed = subprocess.run(words, cwd=Path(__file__).parents[2], check=False)
    assert killed.returncode == -9
    before = run.records()
    assert len(before) == 3
    with run.trials_file.open("ab") as file:
        file.write(b'{"format": 1, "tri')

    listener = Listener()
    result = go(loaded, reopen_run(run.path, loaded, None), listener)
    assert any("not complete" in note for note in listener.notes)
    assert "2 of 4 candidates are measured, going on with number 3" in listener.notes
    records = [each for each in run.records() if each.role != "plain"]
    assert tuple(records[:3]) == before
    assert [each.trial for each in records] == [0, 1, 2, 3, 4]
    assert len({json.dumps(each.point) for each in records}) == 5
    assert (result.trials, result.launches) == (4, len(run.records()))

    again = Listener()
    assert go(loaded, reopen_run(run.path, loaded, None), again) == result
    assert again.records == []
    assert "4 of 4 candidates are measured, --trials +20 asks for more" in again.notes

    run.extend_to(26)
    assert go(loaded, reopen_run(run.path, loaded, None)).trials == 6
    nothing = Listener()
    assert go(loaded, reopen_run(run.path, loaded, None), nothing).trials == 6
    assert "all 6 points are measured: there is no candidate to add" in nothing.notes
    assert nothing.records == []


def test_a_failed_baseline_stops_the_run_and_is_tried_again_on_resume(tmp_path: Path):
    loaded = tiny_sweep(tmp_path, faults="{kind: oom-load, launches: [0]}", search="trials: 1")
    run, listener = begin_run(tmp_path / "runs", loaded, None), Listener()
    with pytest.raises(EngineFailure) as caught:
        go(loaded, run, listener)
    assert caught.value.label == Failure.OOM
    assert [each.failure for each in run.records()] == ["OOM"]
    stopped = summarise_run(run)
    assert (stopped.exit_code, stopped.baseline, stopped.best) == (1, None, None)
    assert stopped.to_json()["baseline"] is None

    result = go(loaded, reopen_run(run.path, loaded, None))
    assert [each.role for each in run.records()] == ["baseline", "baseline", "candidate"]
    assert result.exit_code == 0


def test_failures_in_a_row_stop_the_run(tmp_path: Path):
    launches = list(range(1, 40))
    loaded = tiny_sweep(
        tmp_path,
        faults=f"{{kind: die-loading, launches: {launches}}}",
        search="trials: 6, max_failures: 2",
    )
    run, listener = begin_run(tmp_path / "runs", loaded, None), Listener()
    result = go(loaded, run, listener)
    assert [each.outcome for each in run.records()] == ["ok", "failed", "failed"]
    assert result.exit_code == 1
    assert "2 trials in a row failed" in result.verdict
    assert any("in a row failed" in note for note in listener.notes)


def test_infeasible_points_do_not_stop_the_run(tmp_path: Path):
    loaded = tiny_sweep(
        tmp_path,
        faults="{kind: oom-capture, launches: [1, 2]}",
        search="trials: 3, max_failures: 1",
    )
    run = begin_run(tmp_path / "runs", loaded, None)
    result = go(loaded, run)
    outcomes = [each.outcome for each in run.records() if each.role != "plain"]
    assert outcomes == ["ok", "infeasible", "infeasible", "ok"]
    assert result.exit_code == 0


def test_no_candidate_is_begun_after_the_time_budget(tmp_path: Path):
    loaded = tiny_sweep(tmp_path, search="trials: 6, time_budget: 1ms")
    run, listener = begin_run(tmp_path / "runs", loaded, None), Listener()
    result = go(loaded, run, listener)
    assert [each.role for each in run.records()] == ["baseline"]
    assert any("time budget" in note for note in listener.notes)
    assert (result.exit_code, result.trials, result.best) == (1, 0, None)
    assert result.speedup == {}
    assert "no answer: no candidate was measured, the time budget of 0.001 s" in result.verdict


def test_a_study_file_never_stops_a_run_or_a_resume(tmp_path: Path):
    """It is derived from the ledger; a night was lost over it."""
    loaded = tiny_sweep(tmp_path, search="trials: 1")
    run, listener = begin_run(tmp_path / "runs", loaded, None), Listener()
    run.study_file.mkdir()
    (run.path / "study.db.broken").write_text("from before")
    assert go(loaded, run, listener).trials == 1
    assert any("goes on without" in note for note in listener.notes)

    run.study_file.rmdir()
    run.study_file.write_bytes(b"no database" * 100)
    run.extend_to(2)
    again = Listener()
    assert go(loaded, reopen_run(run.path, loaded, None), again).trials == 2
    (note,) = [note for note in again.notes if "study.db" in note]
    assert "written anew" in note and "search.storage" not in note
    assert run.study_file.read_bytes().startswith(b"SQLite")


def test_a_broken_storage_is_refused_before_anything_is_made(tmp_path: Path):
    text = "trials: 1, storage: 'sqlite:////no/such/folder/study.db'"
    loaded = tiny_sweep(tmp_path, search=text)
    with pytest.raises(UserError, match=r"tiny\.yaml:10: search\.storage: sqlite:////no/such"):
        begin_run(tmp_path / "runs", loaded, None)
    assert not (tmp_path / "runs").exists()


def test_a_storage_that_broke_later_does_not_stop_a_resume(tmp_path: Path):
    """The sweep file of a run cannot be changed any more."""
    folder = tmp_path / "storage"
    folder.mkdir()
    loaded = tiny_sweep(tmp_path, search=f"trials: 1, storage: 'sqlite:///{folder}/study.db'")
    run = begin_run(tmp_path / "runs", loaded, None)
    shutil.rmtree(folder)
    with pytest.raises(UserError, match=r"tiny\.yaml:10: search\.storage"):
        go(loaded, run)
    assert run.records() == ()
    folder.mkdir()
    go(loaded, run)
    shutil.rmtree(folder)
    run.extend_to(2)
    listener = Listener()
    assert go(loaded, reopen_run(run.path, loaded, None), listener).trials == 2
    assert any("search.storage" in note for note in listener.notes)


def test_a_prompts_folder_that_run_json_cannot_name_is_refused_without_a_run(tmp_path: Path):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    (folder / "mine.jsonl").write_text('{"prompt": "hello"}\n')
    text = tiny_sweep(tmp_path).text.replace("requests: 3", "prompts: mine.jsonl, requests: 3")
    (folder / "tiny.yaml").write_text(text)
    with pytest.raises(UserError, match="no UTF-8 text here"):
        begin_run(tmp_path / "runs", load_sweep(folder / "tiny.yaml"), None)
    assert not (tmp_path / "runs").exists()


def test_ctrl_c_leaves_a_run_that_can_be_resumed(tmp_path: Path):
    loaded = tiny_sweep(tmp_path, search="trials: 2")
    run = begin_run(tmp_path / "runs", loaded, None)

    class Interrupting(Listener):
        def phase(self, phase) -> None:
            if phase.trial == 1 and phase.doing == "measuring":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(loaded, run, Interrupting())
    assert [each.role for each in run.records()] == ["baseline"]
    assert go(loaded, reopen_run(run.path, loaded, None)).trials == 2


def test_a_run_that_is_another_question_now_is_not_resumed(tmp_path: Path):
    loaded = tiny_sweep(tmp_path)
    run = begin_run(tmp_path / "runs", loaded, None)
    assert reopen_run(run.path, loaded, None).path == run.path
    with pytest.raises(UserError, match="begun with no --engine"):
        reopen_run(run.path, loaded, "simulated")
    with pytest.raises(UserError, match="sweep file has changed"):
        reopen_run(run.path, tiny_sweep(tmp_path, search="trials: 4"), None)
    other = replace(loaded, prompts=loaded.prompts[1:])
    with pytest.raises(UserError, match="prompts have changed"):
        reopen_run(run.path, other, None)


def test_a_run_in_use_is_not_written_by_another(tmp_path: Path):
    loaded = tiny_sweep(tmp_path)
    run = begin_run(tmp_path / "runs", loaded, None)
    with run.locked(), pytest.raises(UserError, match="another specbench"):
        go(loaded, reopen_run(run.path, loaded, None))


def test_a_running_server_is_measured_as_it_is(tmp_path: Path):
    """An endpoint's own speculation is recorded, and the server goes on running."""
    (tmp_path / "played").mkdir()
    played = tiny_sweep(tmp_path / "played")
    point = Point(num_steps=2, eagle_topk=1, num_draft_tokens=3, draft_tp="target")
    config = server_config(played.sweep, point)
    server = make_engine(played.sweep).launch(config, tmp_path / "server.log", 0)
    try:
        path = tmp_path / "endpoint.yaml"
        text = played.text.replace("kind: simulated", f"kind: endpoint, url: '{server.url}'")
        path.write_text(text)
        loaded = load_sweep(path)
        run = begin_run(tmp_path / "runs", loaded, None)
        result = go(loaded, run)
        server.check_alive()
    finally:
        server.stop()
    (record,) = run.records()
    assert record.role == "candidate"
    # What answers there says that it is simulated: its figures are not those of hardware.
    assert record.engine == "simulated"
    assert record.at is not None
    assert (record.at.num_steps, record.at.eagle_topk, record.at.num_draft_tokens) == (2, 1, 3)
    assert record.metrics["1"]["accept_length"] > 1
    assert (result.exit_code, result.launches, result.speedup) == (0, 0, {})


def test_an_endpoint_that_dies_is_told_by_its_first_failure(tmp_path: Path):
    """The second try finds nobody; that is not why it failed."""
    (tmp_path / "played").mkdir()
    played = tiny_sweep(tmp_path / "played", faults="{kind: die-after, value: 40}")
    config = server_config(played.sweep, None)
    server = make_engine(played.sweep).launch(config, tmp_path / "server.log", 0)
    try:
        text = played.text.replace("kind: simulated", f"kind: endpoint, url: '{server.url}'")
        (tmp_path / "endpoint.yaml").write_text(text)
        loaded = load_sweep(tmp_path / "endpoint.yaml")
        with pytest.raises(EngineFailure) as caught:
            go(loaded, begin_run(tmp_path / "runs", loaded, None))
    finally:
        server.stop()
    first, _, last = caught.value.message.partition("; tried again: ")
    assert "no healthy server" in last
    assert "no healthy server" not in first
