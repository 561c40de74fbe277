"""What executors share: jobs and results that travel, launches that are lost."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sweeps import tiny_runner
from tuner.core.errors import EngineFailure, Failure, NotComparable, UserError
from tuner.execution.executor import InlineExecutor, LaunchFuture
from tuner.execution.launch import LaunchJob, lost, portable
from tuner.execution.progress import Phase
from tuner.execution.recording import TrialRequest
from tuner.runs.records import PlaceLine


def test_launch_job_and_result_can_be_pickled(tmp_path: Path) -> None:
    """What cannot be pickled is found on the other machine only, after minutes of launching."""
    runner = tiny_runner(tmp_path)
    context = pickle.loads(pickle.dumps(portable(runner)))
    phase = Phase(0, "baseline", None, "launching")
    heard: list[Phase] = []
    job = pickle.loads(pickle.dumps(LaunchJob(phase, 0)))
    result = replace(context, report=heard.append).perform(job)
    back = pickle.loads(pickle.dumps(result))
    assert back == result and back.failure is None
    assert back.taken[None].count(1) == 2
    assert [each.doing for each in heard] == [
        "launching", "warming", "measuring", "measuring", "stopping",
    ]  # fmt: skip
    assert runner.run.log_file(0).exists()
    assert runner.run.records() == ()


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
    """An executor whose first launches are lost with their process."""

    losses = 1

    def submit(self, job: LaunchJob) -> LaunchFuture:
        if not self.losses:
            return super().submit(job)
        self.losses -= 1
        future, result = LaunchFuture(), lost(job, "the process of slot 1 was ended by signal 9")
        result.place = PlaceLine(name="slot 1", gpus=["3"])
        future.set_result(result)
        return future


@pytest.mark.parametrize(("losses", "outcome", "launches"), [(1, "ok", 2), (2, "failed", 2)])
def test_a_job_that_is_lost_is_tried_once_more_and_says_why(
    tmp_path: Path, losses: int, outcome: str, launches: int
) -> None:
    """A node that goes is the world's fault, not the configuration's."""
    runner = tiny_runner(tmp_path)
    executor = LosingFirst(runner, runner.report)
    executor.losses = losses
    with runner.run.locked():
        losing = replace(runner, concurrent=executor)
        record = losing.measure(TrialRequest("baseline", None), None).record
    assert (record.outcome, record.launch_id) == (outcome, launches - 1)
    said = [each["message"] for each in record.checks if each["check"] == "retried"]
    assert said == ["a launch failed before: LOST: the process of slot 1 was ended by signal 9"]
    assert record.failure == (None if outcome == "ok" else "LOST")


def test_no_two_launches_have_one_log(tmp_path: Path) -> None:
    """Launches that run at the same time have left nothing on disk by which they could be told."""
    runner = tiny_runner(tmp_path)
    assert [runner.next_launch() for _ in range(3)] == [0, 1, 2]
    runner.run.log_file(3).write_text("of a launch that a crash cut off")
    assert runner.next_launch() == 4
