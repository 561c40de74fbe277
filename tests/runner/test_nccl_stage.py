"""A run with the stage comm: timed once, told why, followed after a resume, in nobody's way."""

import json
from pathlib import Path

import pytest

from tests.sweeps import Listener, tiny_sweep
from tuner.analysis.summary import RunSummary, summarise_run
from tuner.config.loader import LoadedSweep, load_sweep
from tuner.core.errors import UserError
from tuner.engines import make_engine
from tuner.execution.executor import InlineExecutor
from tuner.preflight.plan import make_plan
from tuner.report.report import write_report
from tuner.runner.sweep_run import begin_run, measure_all, reopen_run, run_sweep
from tuner.runs.run import Run
from tuner.sglang.nccl.selection import OFF_PATH, SLOWER

STAGED = "stages: [comm, anchors, model, confirm], trials: 2"


def go(loaded: LoadedSweep, run: Run, listener: Listener | None = None) -> RunSummary:
    return run_sweep(loaded, run, make_engine(loaded.sweep), listener or Listener())


def changed(loaded: LoadedSweep, old: str, new: str) -> LoadedSweep:
    assert old in loaded.text
    loaded.path.write_text(loaded.text.replace(old, new))
    return load_sweep(loaded.path)


def test_a_setting_that_loses_is_not_launched_and_the_reader_is_told(tmp_path: Path) -> None:
    loaded = tiny_sweep(tmp_path, search=STAGED)
    run, listener = begin_run(tmp_path / "runs", loaded, None), Listener()
    go(loaded, run, listener)
    records = run.records()
    assert records[0].role == "baseline"
    assert {record.at.env for record in records[1:] if record.at} == {(("NCCL_PROTO", "LL"),)}
    for record in run.ledger().candidates:
        assert record.decision is not None and record.decision.excluded[SLOWER] == 3
    assert listener.steps[0].startswith("communication: timing all-reduces under 2 settings")
    assert listener.standings[1].wanted == 2
    told = next(note for note in listener.notes if "worth a server" in note)
    assert told == (
        "communication settings worth a server: NCCL_PROTO=LL; 3 of 6 points are not launched"
    )
    kept = json.loads(run.comm_file.read_text())
    assert kept["screened"]["drop"][0]["env"] == {}
    report = write_report(summarise_run(run)).read_text()
    assert "all-reduces were timed under 2 settings over 4 ranks (preset quickstart" in report
    assert "| `unset` |" in report
    assert f"3: {SLOWER}" in report.replace("\\", "")


def test_a_resumed_run_does_not_time_again_and_decides_the_same(tmp_path: Path) -> None:
    loaded = tiny_sweep(tmp_path, search=STAGED)
    run = begin_run(tmp_path / "runs", loaded, None)
    go(loaded, run)
    lines = run.trials_file.read_bytes().splitlines(keepends=True)
    before, timed = run.records(), run.comm_file.read_bytes()
    run.trials_file.write_bytes(b"".join(lines[:2]))
    again = Listener()
    go(loaded, reopen_run(run.path, loaded, None), again)
    assert again.steps == []
    assert run.comm_file.read_bytes() == timed
    assert run.records()[1].at == before[1].at
    assert not any("earlier points are not what" in note for note in again.notes)
    assert {record.at.env for record in run.records()[1:] if record.at} == {(("NCCL_PROTO", "LL"),)}


def test_ctrl_c_while_it_is_timed_loses_nothing(tmp_path: Path) -> None:
    loaded = tiny_sweep(tmp_path, search=STAGED)
    run = begin_run(tmp_path / "runs", loaded, None)

    class Interrupting(Listener):
        def step(self, message: str) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(loaded, run, Interrupting())
    assert [each.role for each in run.records()] == ["baseline"]
    assert not run.comm_file.exists()
    again = Listener()
    assert go(loaded, reopen_run(run.path, loaded, None), again).trials == 2
    assert again.steps
    assert run.comm_file.exists()


def test_a_benchmark_that_cannot_be_made_stops_nothing(tmp_path: Path) -> None:
    loaded = changed(tiny_sweep(tmp_path, search=STAGED), "NCCL_PROTO: [unset, LL]",
                     "NCCL_BUFFSIZE: [unset, 4096]")  # fmt: skip
    run, listener = begin_run(tmp_path / "runs", loaded, None), Listener()
    assert go(loaded, run, listener).trials == 2
    told = next(note for note in listener.notes if "was not timed" in note)
    assert "has no numbers for NCCL_BUFFSIZE" in told
    assert told.endswith("all points stay")
    report = write_report(summarise_run(run)).read_text()
    assert "were not timed" in report
    assert "not said by its log" not in report


def test_on_a_cluster_it_is_said_that_nothing_was_timed(tmp_path: Path) -> None:
    """The report was silent: six launches where the reader expects the settings sorted out."""
    loaded = tiny_sweep(tmp_path, search=STAGED)
    run, listener = begin_run(tmp_path / "runs", loaded, None), Listener()
    with run.locked():
        measure_all(loaded, run, make_engine(loaded.sweep), listener, elsewhere=InlineExecutor)
    why = "the servers are on a cluster's nodes, and only GPUs here can be timed"
    assert f"communication was not timed ({why}); all points stay" in listener.notes
    assert not any("timing" in step for step in listener.steps)
    report = write_report(summarise_run(run)).read_text().replace("\\", "")
    assert f"Communication settings were not timed: {why}." in report


def test_where_sglangs_own_kernels_reduce_one_setting_is_enough(tmp_path: Path) -> None:
    loaded = changed(tiny_sweep(tmp_path, search=STAGED), "preset: quickstart",
                     "preset: h200x2-llama8b")  # fmt: skip
    loaded = changed(loaded, "tp: 4", "tp: 2")
    run, listener = begin_run(tmp_path / "runs", loaded, None), Listener()
    go(loaded, run, listener)
    assert {record.at.env for record in run.records()[1:] if record.at} == {()}
    first = run.records()[1].decision
    assert first is not None
    assert first.excluded[OFF_PATH] == 3
    assert any("custom all-reduce carried the baseline's" in note for note in listener.notes)
    report = write_report(summarise_run(run)).read_text()
    assert "The baseline's all-reduces were carried by custom all-reduce." in report


def test_a_run_that_began_without_it_goes_on_without_it(tmp_path: Path) -> None:
    loaded = tiny_sweep(tmp_path, search=STAGED)
    run = begin_run(tmp_path / "runs", loaded, None)
    go(loaded, run)
    run.comm_file.unlink()
    again = Listener()
    go(loaded, reopen_run(run.path, loaded, None), again)
    assert not run.comm_file.exists()
    assert any("began to launch without that" in note for note in again.notes)


def test_the_random_sampler_can_have_it_alone_and_the_plan_says_so(tmp_path: Path) -> None:
    loaded = tiny_sweep(tmp_path, search="sampler: random, stages: [comm], trials: 40")
    plan = make_plan(loaded)
    assert any("timed under 2 communication settings" in note for note in plan.notes)
    assert not any("communication" in note for note in make_plan(tiny_sweep(tmp_path)).notes)
    loaded = tiny_sweep(tmp_path, search="sampler: random, stages: [comm], trials: 40")
    run = begin_run(tmp_path / "runs", loaded, None)
    assert go(loaded, run).trials == 3
    assert "## How it was searched" in write_report(summarise_run(run)).read_text()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tp", 8),
        ("simulated", False),
        ("settings", [{"env": {"NCCL_ALGO": "Ring"}, "failure": "HANG", "message": "-",
                       "no_graphs": None, "latencies": []}]),
        ("messages", [{"parts": ["verify"], "tokens": 4711, "elements": 4711, "bytes": 0}]),
    ],
)  # fmt: skip
def test_what_was_timed_for_another_sweep_is_not_followed(
    tmp_path: Path, key: str, value: object
) -> None:
    """A comm.json copied from another run would leave out what nobody has timed here."""
    loaded = tiny_sweep(tmp_path, search=STAGED)
    run = begin_run(tmp_path / "runs", loaded, None)
    go(loaded, run)
    data = json.loads(run.comm_file.read_text())
    if key == "messages":
        for setting in data["settings"]:
            setting["latencies"] = setting["latencies"][:1]
    run.comm_file.write_text(json.dumps({**data, key: value}))
    with pytest.raises(UserError, match="timed for another sweep"):
        go(loaded, reopen_run(run.path, loaded, None))


def test_a_broken_file_takes_no_figure_from_the_report(tmp_path: Path) -> None:
    """Speeds rest on the ledger; hours of them must not be lost with a table."""
    loaded = tiny_sweep(tmp_path, search=STAGED)
    run = begin_run(tmp_path / "runs", loaded, None)
    go(loaded, run)
    run.comm_file.write_text("{")
    report = write_report(summarise_run(run)).read_text()
    assert "cannot be shown" in report
    assert "this is not JSON" in report
    assert "| trial |" in report
