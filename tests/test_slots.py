"""Several servers at a time: each with its own GPUs and ports, what decides measured alone, and
nothing lost, left or measured twice whatever ends it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

import psutil
import pytest

from tests import seals
from tests.engine.launching import processes_with
from tests.seals import SEAL
from tests.slots_played import SleepingEngine, known_bare, known_measure
from tests.sweeps import Listener
from tuner.campaign.campaign import begin_run, reopen_run, run_sweep
from tuner.campaign.studied import study_of
from tuner.cli.runs import status_of
from tuner.engine.footprint import footprints
from tuner.engine.make import make_engine
from tuner.ledger.run import Run
from tuner.ledger.settled import settle
from tuner.report.run_report import write_report
from tuner.result import Result
from tuner.sweep.door import LoadedSweep, load_sweep, with_slots
from tuner.trial.attempt import Rig
from tuner.trial.phase import Phase

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


def go(loaded: LoadedSweep, run: Run, listener: Listener | None = None) -> Result:
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


def left_behind(seal: str) -> list[list[str]]:
    """Without multiprocessing's own helper, which lives as long as the process that started it."""
    return [each for each in seals.left_behind(seal) if "resource_tracker" not in str(each)]


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
    loaded = a_sweep(tmp_path, "trials: 4, stages: [anchors, model, confirm]")
    run, listener = begin_run(tmp_path / "runs", loaded, None), Looking(seal)
    states: list[dict] = []
    listener.step = lambda message: None  # type: ignore[method-assign]
    look = listener.phase

    def looking(phase: Phase) -> None:
        look(phase)
        states.append(status_of(run))

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
    assert [each.trial for each in records] == list(range(len(records)))
    assert sorted(each.launch_id for each in records) == list(range(len(records)))
    assert left_behind(seal) == [] and footprints(run.logs) == []
    assert result.exit_code == 0 and result.trials == 4
    assert any(len(each["now"]["places"] or {}) == 2 for each in states if each["now"])
    report = write_report(run).read_text()
    assert "slot 1, others beside it: without speculation" in report
    check_replay(loaded, run)


def check_replay(loaded: LoadedSweep, run: Run) -> None:
    notes: list[str] = []
    study_of(loaded, run, notes.append)
    assert notes == []


def test_two_slots_take_half_the_time_and_find_the_same(tmp_path: Path) -> None:
    """Launches that sleep: what slots can give, whatever else this machine does."""
    took, found = [], []
    for slots in (1, 2):
        folder = tmp_path / str(slots)
        folder.mkdir()
        text = a_sweep(folder, "sampler: grid").text.replace("{launches: 1}", "{launches: 2}")
        (folder / "beside.yaml").write_text(text)
        loaded = with_slots(load_sweep(folder / "beside.yaml"), slots)
        run, listener = begin_run(folder / "runs", loaded, None), Timing()
        engine = SleepingEngine(loaded.sweep.engine, loaded.sweep.timeouts, loaded.sweep.model)
        with (
            patch("tuner.campaign.campaign.bare", known_bare),
            patch.object(Rig, "_warm_up", lambda *_: None),
            patch.object(Rig, "_measure", known_measure),
        ):
            run_sweep(loaded, run, engine, listener)
        took.append(listener.last - listener.first)
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
    assert took[0] / took[1] >= 1.8, took


def result_of(run: Run) -> dict[str, float]:
    """As it is read in the end, over all launches of the baseline."""
    return {each.label: each.metrics["1"]["speedup"] for each in settle(run).ledger.candidates}


class Timing(Listener):
    """From the first candidate's launch to the last one's line."""

    first = last = 0.0

    def phase(self, phase: Phase) -> None:
        super().phase(phase)
        if phase.role == "candidate" and not self.first:
            self.first = time.monotonic()

    def recorded(self, record, standing) -> None:
        super().recorded(record, standing)
        if record.role == "candidate":
            self.last = time.monotonic()


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
    loaded = a_sweep(tmp_path, "trials: 3, stages: []")
    run, listener = begin_run(tmp_path / "runs", loaded, None), Killing(seal)
    go(loaded, run, listener)
    assert listener.killed
    assert [each.outcome for each in run.ledger().candidates] == ["ok"] * 3
    said = [c["message"] for each in run.records() for c in each.checks if c["check"] == "retried"]
    assert said == [
        "a launch failed before: LOST: the process that launched and measured on slot 1 was ended "
        "by signal 9"
    ]
    assert left_behind(seal) == [] and footprints(run.logs) == []


ENDS = """
import os, signal, sys
from pathlib import Path
from tests.sweeps import Listener
from tuner.campaign.campaign import reopen_run, run_sweep
from tuner.cli.signals import end_on_signals
from tuner.engine.make import make_engine
from tuner.sweep.door import load_sweep

number, moment = int(sys.argv[3]), sys.argv[4]

class Ending(Listener):
    ended = False
    def strike(self):
        if not self.ended:
            self.ended = True
            os.kill(os.getpid(), number)
    def phase(self, phase):
        super().phase(phase)
        places = {each.place for each in self.phases if each.role == "candidate"}
        if phase.role == "candidate" and phase.doing == moment and len(places) == 2:
            self.strike()
    def recorded(self, record, standing):
        if record.role == moment:
            self.strike()

loaded = load_sweep(Path(sys.argv[1]))
run = reopen_run(Path(sys.argv[2]), loaded, None)
end_on_signals()
try:
    run_sweep(loaded, run, make_engine(loaded.sweep), Ending())
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.timeout(300)
def test_a_run_of_slots_survives_every_signal(tmp_path: Path, seal: str) -> None:
    """What has ended is kept, no server stays, and no point is measured twice."""
    loaded = a_sweep(tmp_path, "trials: 8, stages: []")
    run = begin_run(tmp_path / "runs", loaded, None)
    before = run.records()
    ends = [(signal.SIGINT, "launching"), (signal.SIGTERM, "measuring"),
            (signal.SIGKILL, "measuring"), (signal.SIGKILL, "candidate"),
            (signal.SIGINT, "candidate")]  # fmt: skip
    for number, moment in ends:
        words = [str(loaded.path), str(run.path), str(int(number)), moment]
        code = subprocess.run(
            [sys.executable, "-c", ENDS, *words],
            cwd=Path(__file__).parent.parent, check=False,
        ).returncode  # fmt: skip
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
    go(loaded, reopen_run(run.path, loaded, None))
    points = [json.dumps(each.point) for each in run.ledger().candidates]
    assert len(points) == len(set(points)) == 8
    check_replay(loaded, run)
    assert left_behind(seal) == [] and footprints(run.logs) == []


def test_neither_failures_nor_a_stop_are_exceeded_by_what_is_in_flight(tmp_path: Path) -> None:
    """After a first failure only as many run as may still fail."""
    faults = "faults: [{kind: oom-load, launches: [99]}, {kind: hang-after, value: 0, LAUNCHES}]"
    faults = faults.replace("LAUNCHES", "launches: [3, 4, 5, 6, 7, 8, 9, 10]")
    loaded = a_sweep(tmp_path, "trials: 8, stages: [], max_failures: 3", engine=faults)
    loaded.path.write_text(loaded.text.replace("request: 20s", "request: 2s"))
    loaded = load_sweep(loaded.path)
    run, listener = begin_run(tmp_path / "runs", loaded, None), Listener()
    go(loaded, run, listener)
    assert [each.outcome for each in run.ledger().candidates] == ["failed"] * 3
    assert any("3 trials in a row failed" in note for note in listener.notes)

    (tmp_path / "stopped").mkdir()
    loaded = a_sweep(tmp_path / "stopped", "trials: 8, stages: []")
    run = begin_run(tmp_path / "stopped" / "runs", loaded, None)

    class Stopping(Listener):
        def phase(self, phase: Phase) -> None:
            super().phase(phase)
            if phase.role == "candidate" and len({p.place for p in self.phases
                                                  if p.role == "candidate"}) == 2:  # fmt: skip
                run.stop_file.touch()

    go(loaded, run, Stopping())
    assert len(run.ledger().candidates) == 2
    assert "plain" not in [each.role for each in run.records()]
