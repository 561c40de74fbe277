"""One trial on real processes: what it records, and that nothing is left of it."""

import json
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.server.fake_nvml import GIB, FakeNvml
from tests.sweeps import tiny_sweep
from tuner.config.loader import load_sweep
from tuner.config.point import Point
from tuner.core.errors import Failure
from tuner.engines import make_engine
from tuner.execution.recording import TrialRequest
from tuner.execution.trial import TrialRunner
from tuner.metrics.catalogue import summarise
from tuner.metrics.level_metrics import gpu_figures
from tuner.metrics.samples_file import read_samples
from tuner.preflight.plan import make_plan
from tuner.runner.sweep_run import begin_run
from tuner.server.gpu_sampler import ServerGpus
from tuner.server.lifecycle import LaunchedServer

POINT = Point(num_steps=2, eagle_topk=1, num_draft_tokens=3, draft_tp="target")


@contextmanager
def a_bench(folder: Path, faults: str = "") -> Iterator[tuple[TrialRunner, list]]:
    there = set(psutil.Process().children(recursive=True))  # other tests' fork server
    loaded = tiny_sweep(folder, faults)
    run = begin_run(folder / "runs", loaded, None)
    phases: list = []
    with run.locked():
        yield TrialRunner.prepare(make_engine(loaded.sweep), loaded, run, phases.append), phases
    assert set(psutil.Process().children(recursive=True)) <= there


def test_a_trial_is_recorded_with_numbers_that_its_samples_give_again(tmp_path: Path):
    with a_bench(tmp_path) as (bench, phases):
        baseline = bench.measure(TrialRequest("baseline", None), None)
        measured = bench.measure(TrialRequest("candidate", POINT), baseline.windows)
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


class Growing(FakeNvml):
    """Memory that somebody else takes while the server starts: it is there at the second look."""

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        self.used[handle] += 1
        return SimpleNamespace(used=(self.used[handle] == GIB + 2) * 100 * GIB, total=140 * GIB)


def test_a_simulated_server_has_no_energy_whatever_the_machine_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its GPUs are not these: their clock and energy are somebody else's."""
    monkeypatch.setitem(sys.modules, "pynvml", Growing(4))
    with a_bench(tmp_path) as (bench, _):
        record = bench.measure(TrialRequest("candidate", POINT), None).record
    figures = record.metrics["1"]
    assert {name: figures[name] for name in gpu_figures([])} == dict.fromkeys(gpu_figures([]))
    windows = read_samples(bench.run.path / (record.samples or ""))[1]
    assert [window.gpus for window in windows] == [None, None]
    counters = windows[0].engine
    assert counters is not None
    assert counters.ranks == 1


def test_a_servers_gpus_are_read_in_each_window_and_only_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Energy of warm-up and launch is no token's, and a window without it has no figure."""
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(4))
    monkeypatch.setattr(LaunchedServer, "gpus", ServerGpus({}, ("1", "2")), raising=False)
    with a_bench(tmp_path) as (bench, _), monkeypatch.context() as patched:
        patched.setattr(LaunchedServer, "__setattr__", _without_gpus)
        record = bench.measure(TrialRequest("candidate", POINT), None).record
    windows = read_samples(bench.run.path / (record.samples or ""))[1]
    assert [[t.gpu for t in window.gpus or ()] for window in windows] == [["1", "2"]] * 2
    figures = record.metrics["1"]
    seconds = sum(trace.at[-1] - trace.at[0] for window in windows for trace in window.gpus or ())
    assert figures["gpu_energy_j"] == pytest.approx(500 * seconds, rel=0.2)
    assert figures["energy_j_per_token"] == figures["gpu_energy_j"] / figures["completion_tokens"]
    assert "power cap" in [each["check"] for each in record.checks]
    assert all(each.get("remedy") for each in record.checks)


def _without_gpus(server: LaunchedServer, name: str, value: object) -> None:
    """A launch sets no GPUs, so that those of the class stay."""
    if name != "gpus":
        object.__setattr__(server, name, value)


def test_random_prompts_are_told_before_and_after(tmp_path: Path):
    """Days of GPU time go into acceptance on noise."""
    draw = random.Random(0)
    lines = [
        json.dumps({"prompt": " ".join(f"w{draw.randrange(500)}" for _ in range(50))})
        for _ in range(16)
    ]
    loaded = tiny_sweep(tmp_path)
    (tmp_path / "noise.jsonl").write_text("\n".join(lines))
    text = loaded.text.replace("workload: {", "workload: {prompts: noise.jsonl, ")
    loaded.path.write_text(text)
    loaded = load_sweep(loaded.path)
    assert any("stand in no order" in note for note in make_plan(loaded).notes)
    run = begin_run(tmp_path / "runs", loaded, None)
    with run.locked():
        bench = TrialRunner.prepare(make_engine(loaded.sweep), loaded, run, lambda phase: None)
        record = bench.measure(TrialRequest("candidate", POINT), None).record
    assert "random prompts" in [each["check"] for each in record.checks]


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
        measured = bench.measure(TrialRequest("candidate", POINT), None)
    record = measured.record
    assert (record.failure, record.outcome) == (label.value, outcome)
    assert record.launch_id == launches - 1
    assert record.message
    assert record.metrics == {}
    assert measured.failure is not None


def test_a_retry_that_succeeds_is_told_beside_the_numbers(tmp_path: Path):
    with a_bench(tmp_path, "{kind: port-taken, launches: [0]}") as (bench, phases):
        record = bench.measure(TrialRequest("candidate", POINT), None).record
        launches = [each.again for each in phases if each.doing == "launching"]
    assert (record.outcome, record.launch_id) == ("ok", 1)
    assert [again and again.label for again in launches] == [None, Failure.PORT_IN_USE]
    assert [each["check"] for each in record.checks].count("retried") == 1
    assert bench.run.log_file(0).exists()
    assert bench.run.log_file(1).exists()


def test_single_failed_requests_are_counted_and_do_not_fail_the_trial(tmp_path: Path):
    with a_bench(tmp_path, "{kind: short-stream, value: 6}") as (bench, _):
        record = bench.measure(TrialRequest("candidate", POINT), None).record
    assert record.outcome == "ok"
    assert 0 < record.metrics["1"]["failed_requests"] < 3
    assert any("requests failed" in each["message"] for each in record.checks)


def test_an_interrupted_trial_leaves_no_process_and_no_line(tmp_path: Path):
    with a_bench(tmp_path) as (bench, phases):

        def interrupt(phase) -> None:
            phases.append(phase)
            if phase.doing == "measuring":
                raise KeyboardInterrupt

        interrupted = TrialRunner(
            bench.engine, bench.sweep, bench.run, bench.requests, bench.tokenise_doubt, interrupt
        )
        with pytest.raises(KeyboardInterrupt):
            interrupted.measure(TrialRequest("candidate", POINT), None)
        assert phases[-1].doing == "stopping"
        assert bench.run.records() == ()


def test_a_level_sends_at_least_one_request_per_stream(tmp_path: Path):
    loaded = tiny_sweep(tmp_path)
    workload = loaded.sweep.workload.model_copy(update={"concurrency": [1, 8]})
    sweep = loaded.sweep.model_copy(update={"workload": workload})
    wide = replace(loaded, sweep=sweep)
    run = begin_run(tmp_path / "runs", wide, None)
    bench = TrialRunner.prepare(make_engine(sweep), wide, run, lambda phase: None)
    assert {level: len(each) for level, each in bench.requests.items()} == {1: 3, 8: 8}
    assert bench.requests[8][:3] == bench.requests[1]
