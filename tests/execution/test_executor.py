"""A launch as an order: what another process, or another machine, is given and sends back."""

import pickle
from pathlib import Path

import pytest

from tests.sweeps import tiny_sweep
from tuner.core.errors import EngineFailure, Failure, NotComparable, UserError
from tuner.engines import make_engine
from tuner.execution.executor import FinishedJob, InlineExecutor, LaunchJob, bare, lost, perform
from tuner.execution.progress import Phase
from tuner.execution.trial import TrialRequest, TrialRunner
from tuner.runner.sweep_run import begin_run
from tuner.runs.records import PlaceLine


def bench_of(folder: Path, faults: str = "") -> TrialRunner:
    loaded = tiny_sweep(folder, faults)
    run = begin_run(folder / "runs", loaded, None)
    return TrialRunner.prepare(make_engine(loaded.sweep), loaded, run, lambda phase: None)


def test_a_job_is_performed_from_what_was_pickled_and_its_outcome_travels_back(
    tmp_path: Path,
) -> None:
    """What cannot be pickled is found on the other machine only, after minutes of launching."""
    bench = bench_of(tmp_path)
    rig = pickle.loads(pickle.dumps(bare(bench)))
    phase = Phase(0, "baseline", None, "launching")
    heard: list[Phase] = []
    done = perform(rig, pickle.loads(pickle.dumps(LaunchJob(phase, 0))), heard.append)
    back = pickle.loads(pickle.dumps(done))
    assert back == done and back.attempt.failure is None
    assert back.attempt.taken[None].count(1) == 2
    assert [each.doing for each in heard] == [
        "launching", "warming", "measuring", "measuring", "stopping",
    ]  # fmt: skip
    assert bench.run.log_file(0).exists()
    assert bench.run.records() == ()


def test_a_failure_travels_whole() -> None:
    """Its label decides whether it is tried again, its log's end is what the report shows."""
    failure = EngineFailure(Failure.OOM, "no memory", "the last line")
    back = pickle.loads(pickle.dumps(failure))
    assert (back.label, back.message, back.log_tail) == (Failure.OOM, "no memory", "the last line")
    assert str(back) == str(failure)
    wrong = pickle.loads(pickle.dumps(UserError("a word is wrong", "file.yaml:3")))
    assert (wrong.message, wrong.where) == ("a word is wrong", "file.yaml:3")
    assert isinstance(pickle.loads(pickle.dumps(NotComparable("unlike"))), NotComparable)


class LosingFirst(InlineExecutor):
    """A place whose first job is lost with its process."""

    place = PlaceLine(name="slot 1", gpus=["3"])
    losses = 1

    def wait(self) -> FinishedJob:
        if self.losses:
            self.losses -= 1
            job, self._submitted = self._submitted, None
            assert job is not None
            return FinishedJob(job, lost(job, "the process of slot 1 was ended by signal 9"))
        return super().wait()


@pytest.mark.parametrize(("losses", "outcome", "launches"), [(1, "ok", 2), (2, "failed", 2)])
def test_a_job_that_is_lost_is_tried_once_more_and_says_why(
    tmp_path: Path, losses: int, outcome: str, launches: int
) -> None:
    """A node that goes is the world's fault, not the configuration's."""
    bench = bench_of(tmp_path)
    places = LosingFirst(bench, bench.report)
    places.losses = losses
    loaded = type(bench)(
        bench.engine, bench.sweep, bench.run, bench.requests, None, bench.report, places=places
    )
    with bench.run.locked():
        record = loaded.measure(TrialRequest("baseline", None), None).record
    assert (record.outcome, record.launch_id) == (outcome, launches - 1)
    said = [each["message"] for each in record.checks if each["check"] == "retried"]
    assert said == ["a launch failed before: LOST: the process of slot 1 was ended by signal 9"]
    assert record.failure == (None if outcome == "ok" else "LOST")


def test_no_two_launches_have_one_log(tmp_path: Path) -> None:
    """Launches that run at the same time have left nothing on disk by which they could be told."""
    bench = bench_of(tmp_path)
    assert [bench.next_launch() for _ in range(3)] == [0, 1, 2]
    bench.run.log_file(3).write_text("of a launch that a crash cut off")
    assert bench.next_launch() == 4
