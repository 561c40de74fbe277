"""One trial on real processes: what it records, and that nothing is left of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.sweeps import tiny_sweep
from tuner.campaign.campaign import begin_run
from tuner.engine.make import make_engine
from tuner.errors import Failure
from tuner.measure.metrics import summarise
from tuner.measure.samples_file import read_samples
from tuner.sweep.point import Point
from tuner.trial.bench import Asked, Bench

POINT = Point(num_steps=2, eagle_topk=1, num_draft_tokens=3, draft_tp="target")


@contextmanager
def a_bench(folder: Path, faults: str = "") -> Iterator[tuple[Bench, list]]:
    loaded = tiny_sweep(folder, faults)
    run = begin_run(folder / "runs", loaded, None)
    phases: list = []
    with run.locked():
        yield Bench.prepare(make_engine(loaded.sweep), loaded, run, phases.append), phases
    assert psutil.Process().children(recursive=True) == []


def test_a_trial_is_recorded_with_numbers_that_its_samples_give_again(tmp_path: Path):
    with a_bench(tmp_path) as (bench, phases):
        baseline = bench.measure(Asked("baseline", None), None)
        measured = bench.measure(Asked("candidate", POINT), baseline.windows)
        assert bench.run.records() == (baseline.record, measured.record)
    record = measured.record
    assert (record.trial, record.launch_id, record.outcome, record.at) == (1, 1, "ok", POINT)
    assert record.engine == "simulated"
    assert record.engine_version
    assert record.launch_s
    assert record.measured_s
    figures = record.metrics["1"]
    assert figures["requests"] == 2 * 3
    assert figures["failed_requests"] == 0
    assert figures["completion_tokens"] == 2 * 3 * 24
    ratio = figures["output_tok_s"] / baseline.record.metrics["1"]["output_tok_s"]
    assert figures["speedup"] == pytest.approx(ratio)
    assert figures["speedup_low"] <= figures["speedup"] <= figures["speedup_high"]
    assert record.samples is not None
    again = summarise(read_samples(bench.run.path / record.samples)[1], 2, 1)
    assert again.items() <= figures.items()
    seen = [(each.doing, each.window) for each in phases if each.trial == 1]
    assert seen == [
        ("launching", None),
        ("warming", None),
        ("measuring", 1),
        ("measuring", 2),
        ("stopping", None),
    ]


@pytest.mark.parametrize(
    ("fault", "label", "outcome", "launches"),
    [
        ("{kind: oom-capture}", Failure.OOM, "infeasible", 1),
        ("{kind: hang-after, value: 40}", Failure.HANG, "failed", 1),
        ("{kind: die-after, value: 40}", Failure.CRASH, "failed", 2),
        ("{kind: garbage-json, value: 4}", Failure.CLIENT, "failed", 2),
    ],
)
def test_a_failure_has_its_label_and_the_worlds_fault_a_second_try(
    tmp_path: Path, fault: str, label: Failure, outcome: str, launches: int
):
    with a_bench(tmp_path, fault) as (bench, _):
        measured = bench.measure(Asked("candidate", POINT), None)
    record = measured.record
    assert (record.failure, record.outcome) == (label.value, outcome)
    assert record.launch_id == launches - 1
    assert record.message
    assert record.metrics == {}
    assert measured.failure is not None


def test_a_retry_that_succeeds_is_told_beside_the_numbers(tmp_path: Path):
    with a_bench(tmp_path, "{kind: port-taken, launches: [0]}") as (bench, phases):
        record = bench.measure(Asked("candidate", POINT), None).record
        launches = [each.again for each in phases if each.doing == "launching"]
    assert (record.outcome, record.launch_id) == ("ok", 1)
    assert [again and again.label for again in launches] == [None, Failure.PORT_IN_USE]
    assert [each["check"] for each in record.checks].count("retried") == 1
    assert bench.run.log_file(0).exists()
    assert bench.run.log_file(1).exists()


def test_single_failed_requests_are_counted_and_do_not_fail_the_trial(tmp_path: Path):
    with a_bench(tmp_path, "{kind: short-stream, value: 6}") as (bench, _):
        record = bench.measure(Asked("candidate", POINT), None).record
    assert record.outcome == "ok"
    assert 0 < record.metrics["1"]["failed_requests"] < 3
    assert any("requests failed" in each["message"] for each in record.checks)


def test_an_interrupted_trial_leaves_no_process_and_no_line(tmp_path: Path):
    with a_bench(tmp_path) as (bench, phases):

        def interrupt(phase) -> None:
            phases.append(phase)
            if phase.doing == "measuring":
                raise KeyboardInterrupt

        interrupted = Bench(
            bench.engine, bench.sweep, bench.run, bench.requests, bench.tokenise_doubt, interrupt
        )
        with pytest.raises(KeyboardInterrupt):
            interrupted.measure(Asked("candidate", POINT), None)
        assert phases[-1].doing == "stopping"
        assert bench.run.records() == ()


def test_a_level_sends_at_least_one_request_per_stream(tmp_path: Path):
    loaded = tiny_sweep(tmp_path)
    workload = loaded.sweep.workload.model_copy(update={"concurrency": [1, 8]})
    sweep = loaded.sweep.model_copy(update={"workload": workload})
    wide = type(loaded)(sweep, loaded.space, loaded.prompts, loaded.path, loaded.text)
    run = begin_run(tmp_path / "runs", wide, None)
    bench = Bench.prepare(make_engine(sweep), wide, run, lambda phase: None)
    assert {level: len(each) for level, each in bench.requests.items()} == {1: 3, 8: 8}
    assert bench.requests[8][:3] == bench.requests[1]
