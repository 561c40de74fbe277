"""Several servers at a time: each with its own GPUs and ports, what decides measured alone, and
nothing lost, left or measured twice whatever ends it."""

import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import psutil
import pytest

import tuner
from tests.execution.played_slots import SleepingEngine, known_context, known_measure
from tests.execution.slots_session import session
from tests.seals import SEAL, left_behind
from tests.server.launching import processes_with
from tests.sweeps import Listener
from tuner.analysis.baselines import settle
from tuner.analysis.summary import RunSummary, summarise_run
from tuner.cli.runs import read_status
from tuner.config.loader import LoadedSweep, load_sweep, with_slots
from tuner.engines import make_engine
from tuner.execution.executor import LaunchFuture
from tuner.execution.launch import LaunchContext
from tuner.execution.progress import Phase
from tuner.execution.slots import SlotExecutor
from tuner.report.report import write_report
from tuner.runner.sweep_run import begin_run, run_sweep
from tuner.runs.run import Run
from tuner.server.pid_file import footprints

SWEEP = """
name: beside
engine: {kind: simulated, preset: quickstart}
model: {target: some/model, draft: some/draft, algorithm: EAGLE3, tp: 2}
slots: 2
baseline: {launches: 1}
space:
  num_steps: {low: 1, high: HIGH}
  env: {NCCL_PROTO: [unset, LL]}
workload: {requests: 2, output_tokens: 24, concurrency: [1]}
measure: {warmup_requests: 1, repeats: 1, racing: false}
search: {SEARCH}
timeouts: {launch: 60s, request: 20s}
"""


def a_sweep(folder: Path, search: str, high: int = 4, **more: str) -> LoadedSweep:
    text = SWEEP.replace("SEARCH", search).replace("HIGH", str(high))
    for before, after in more.items():
        text = text.replace(f"{before}: {{", f"{before}: {{{after}, ", 1)
    path = folder / "beside.yaml"
    path.write_text(text)
    return load_sweep(path)


def go(loaded: LoadedSweep, run: Run, listener: Listener | None = None) -> RunSummary:
    return run_sweep(loaded, run, make_engine(loaded.sweep), listener or Listener())


class Looking(Listener):
    """Looks at every server that lives whenever one is measured."""

    def __init__(self, seal: str) -> None:
        super().__init__()
        self.seal = seal
        self.seen: list[tuple[Phase, list[tuple[int, str, tuple[str, ...]]]]] = []

    def phase(self, phase: Phase) -> None:
        super().phase(phase)
        if phase.doing in ("warming", "measuring"):
            self.seen.append((phase, servers(self.seal)))


def servers(seal: str) -> list[tuple[int, str, tuple[str, ...]]]:
    """Process, GPUs and ports of each."""
    found = []
    for process in processes_with(SEAL, seal):
        try:
            words, environ = process.cmdline(), process.environ()
        except psutil.Error:
            continue
        if "--port" in words:
            ports = tuple(words[words.index(name) + 1] for name in ("--port", "--nccl-port"))
            found.append((process.pid, environ["CUDA_VISIBLE_DEVICES"], ports))
    return found


def test_servers_side_by_side_share_nothing_and_what_decides_runs_alone(
    tmp_path: Path, seal: str
) -> None:
    loaded = a_sweep(tmp_path, "trials: 3, stages: [anchors, model, confirm]", high=2)
    run, listener = begin_run(tmp_path / "runs", loaded, None), Looking(seal)
    states: list[dict] = []
    look = listener.phase

    def looking(phase: Phase) -> None:
        look(phase)
        states.append(read_status(run))

    listener.phase = looking  # type: ignore[method-assign]
    result = go(loaded, run, listener)
    together = 0
    for phase, there in listener.seen:
        together += len(there) > 1
        for which in (1, 2):
            assert len({each[which] for each in there}) == len(there)
        assert len({port for each in there for port in each[2]}) == 2 * len(there)
        if phase.role in ("baseline", "confirm", "plain"):
            assert len(there) <= 1, phase
    assert together
    records = run.records()
    assert [each.role for each in records[:3]] == ["baseline", "abreast", "abreast"]
    for each in records:
        assert each.outcome == "ok" and each.place is not None
        if each.role in ("baseline", "confirm", "plain"):
            assert each.place.alone and each.place.gpus == ["0", "1"]
    assert {each.place and each.place.name for each in records} == {"slot 0", "slot 1"}
    assert any(not each.place.alone for each in run.ledger().candidates if each.place)
    assert "confirm" in [each.role for each in records]
    frame = tuner.load_run(run.path).trials
    assert list(frame["place"]) == [each.place and each.place.name for each in records]
    assert set(frame.query("role == 'baseline'")["alone"]) == {True}
    assert set(frame.query("role == 'abreast'")["alone"]) == {False}
    assert [each.trial for each in records] == list(range(len(records)))
    assert sorted(each.launch_id for each in records) == list(range(len(records)))
    assert left_behind(seal) == [] and footprints(run.logs) == []
    assert result.exit_code == 0 and result.trials == 3
    assert any(len(each["now"]["places"] or {}) == 2 for each in states if each["now"])
    report = write_report(summarise_run(run)).read_text()
    assert "Candidates were measured in 2 places at the same time" in report


def test_two_slots_are_always_at_work_and_find_the_same(tmp_path: Path) -> None:
    """Launches that sleep: half the time is what two slots give that never wait for each other,
    whatever else this machine does."""
    busy: list[int] = []
    found = []
    wait = SlotExecutor.wait

    def waiting(executor: SlotExecutor, futures: Sequence[LaunchFuture]) -> LaunchFuture:
        busy.append(len(futures))
        return wait(executor, futures)

    for slots in (1, 2):
        folder = tmp_path / str(slots)
        folder.mkdir()
        text = a_sweep(folder, "sampler: grid").text.replace("{launches: 1}", "{launches: 2}")
        (folder / "beside.yaml").write_text(text)
        loaded = with_slots(load_sweep(folder / "beside.yaml"), slots)
        run = begin_run(folder / "runs", loaded, None)
        engine = SleepingEngine(loaded.sweep.engine, loaded.sweep.timeouts)
        with (
            patch("tuner.runner.sweep_run.portable", known_context),
            patch.object(LaunchContext, "_warm_up", lambda *_: None),
            patch.object(LaunchContext, "_measure", known_measure),
            patch.object(SlotExecutor, "wait", waiting),
        ):
            run_sweep(loaded, run, engine, Listener())
        found.append({
            each.label: each.metrics["1"]["speedup"] for each in run.ledger().candidates
        })  # fmt: skip
    # Slower beside others, and yet as much faster than no speculation.
    assert len(found[0]) == 8 and found[0] == pytest.approx(found[1], rel=0.005)
    for each in run.ledger().candidates:
        assert each.metrics["1"]["interference"] == pytest.approx(0.9, rel=0.005)
        assert ("side by side", "doubt") in {(c["check"], c["level"]) for c in each.checks}
    assert len(run.ledger().baselines) == 2
    assert result_of(run) == pytest.approx(found[1], rel=0.005)
    roles = [each.role for each in run.records()]
    assert roles == ["baseline", *["abreast"] * 2, *["candidate"] * 8, "baseline", "plain"]
    assert busy == [1, 2, 1, *[2] * 7, 1, 1, 1]


def result_of(run: Run) -> dict[str, float]:
    """As it is read in the end, over all launches of the baseline."""
    return {each.label: each.metrics["1"]["speedup"] for each in settle(run).ledger.candidates}


class Killing(Listener):
    """Ends the process of slot 1 while its first candidate is measured."""

    def __init__(self, seal: str) -> None:
        super().__init__()
        self.seal, self.killed = seal, 0

    def phase(self, phase: Phase) -> None:
        super().phase(phase)
        is_due = (phase.role, phase.place, phase.doing) == ("candidate", "slot 1", "measuring")
        if is_due and not self.killed:
            (server,) = [pid for pid, gpus, _ in servers(self.seal) if gpus == "2,3"]
            self.killed = psutil.Process(server).ppid()
            os.kill(self.killed, signal.SIGKILL)


def test_a_slots_process_that_dies_costs_one_launch(tmp_path: Path, seal: str) -> None:
    """The server that it left holds GPUs; the trial is made again and says why."""
    loaded = a_sweep(tmp_path, "trials: 2, stages: []")
    run, listener = begin_run(tmp_path / "runs", loaded, None), Killing(seal)
    go(loaded, run, listener)
    assert listener.killed
    assert [each.outcome for each in run.ledger().candidates] == ["ok"] * 2
    said = [c["message"] for each in run.records() for c in each.checks if c["check"] == "retried"]
    assert said == [
        "a launch failed before: LOST: the process that launched and measured on slot 1 was ended "
        "by signal 9"
    ]
    assert left_behind(seal) == [] and footprints(run.logs) == []


@pytest.mark.timeout(300)
def test_a_run_of_slots_survives_every_signal(tmp_path: Path, seal: str) -> None:
    """What has ended is kept, no server stays, and no point is measured twice."""
    loaded = a_sweep(tmp_path, "trials: 4, stages: []")
    run = begin_run(tmp_path / "runs", loaded, None)
    before = run.records()
    ends = [(signal.SIGINT, "launching"), (signal.SIGKILL, "measuring"),
            (signal.SIGTERM, "candidate")]  # fmt: skip
    for number, moment in ends:
        code = session(loaded.path, run.path, seal, number, moment)
        assert code == (-9 if number == signal.SIGKILL else 130), (number, moment)
        deadline = time.monotonic() + 20
        while number == signal.SIGKILL and left_behind(seal) and time.monotonic() < deadline:
            time.sleep(0.1)  # slots end themselves when specbench is gone
        assert left_behind(seal) == [], (number, moment)
        records = run.records()
        assert records[: len(before)] == before
        kept = [each for each in records[len(before) :] if each.role == "candidate"]
        assert bool(kept) >= (moment == "candidate"), (number, moment)
        before = records
    assert session(loaded.path, run.path, seal, 0, "never") == 0
    points = [json.dumps(each.point) for each in run.ledger().candidates]
    assert len(points) == len(set(points)) == 4
    assert left_behind(seal) == [] and footprints(run.logs) == []
