"""Once a log says what is taken before the weights, a launch that leaves no room is not spent."""

from pathlib import Path

import pytest

from tests.sglang.memory.configs import load_memory_sweep
from tests.sweeps import tiny_runner
from tuner.core.errors import EngineFailure, Failure
from tuner.engines import make_engine
from tuner.execution.launch import LaunchJob
from tuner.execution.progress import Phase
from tuner.execution.recording import TrialRequest
from tuner.server.base import ServerConfig, server_config
from tuner.server.memory import MemoryGuard

LOG = """\
[2026-11-29 20:00:00 TP0] Load weight begin. avail mem=BEFORE GB
[2026-11-29 20:00:00 TP0] Load weight end. elapsed=1 s, type=A, avail mem=4.5 GB, mem usage=7.48 GB.
"""


def logged(folder: Path, before: float) -> Path:
    """The log of a launch, with the free memory before the weights."""
    log = folder / "0.log"
    log.write_text(LOG.replace("BEFORE", str(before)))
    return log


def test_guard_learns_from_the_first_log(tmp_path: Path) -> None:
    """12 GiB hold 9.6 of weights; with 3 taken before, they do not."""
    sweep = load_memory_sweep(tmp_path)
    machine = make_engine(sweep.sweep).estimate_memory(sweep.sweep, 12.0)
    assert machine is not None
    whole = next(each for each in sweep.space.points if each.draft_tp == 1)
    baseline, alone = (server_config(sweep.sweep, point) for point in (None, whole))
    guard = MemoryGuard(machine)
    guard.check(alone)
    guard.learn(alone, tmp_path / "missing.log")
    guard.check(alone)
    guard.learn(baseline, logged(tmp_path, before=9.0))
    with pytest.raises(EngineFailure, match=r"not launched: .* 3\.0 of it taken before") as caught:
        guard.check(alone)
    assert caught.value.label == Failure.OOM


def test_guard_launches_everything_on_a_roomy_machine(tmp_path: Path) -> None:
    sweep = load_memory_sweep(tmp_path, "mem-fraction-static: 0.6")
    machine = make_engine(sweep.sweep).estimate_memory(sweep.sweep, 140.4)
    assert machine is not None
    guard = MemoryGuard(machine)
    for point in (None, *sweep.space.points):
        guard.check(server_config(sweep.sweep, point))
        guard.learn(server_config(sweep.sweep, point), logged(tmp_path, before=138.21))


def test_guard_ignores_memory_of_another_process(tmp_path: Path) -> None:
    """It may be gone by the next launch."""
    sweep = load_memory_sweep(tmp_path)
    machine = make_engine(sweep.sweep).estimate_memory(sweep.sweep, 16.0)
    assert machine is not None
    guard = MemoryGuard(machine)
    for point in sweep.space.points:
        guard.check(server_config(sweep.sweep, point))
        guard.learn(server_config(sweep.sweep, point), logged(tmp_path, before=9.0))


class Refusing(MemoryGuard):
    """A guard that refuses every launch, and remembers what it was given."""

    def __init__(self) -> None:
        self.learned: list[tuple[ServerConfig, Path]] = []

    def check(self, config: ServerConfig) -> None:
        raise EngineFailure(Failure.OOM, "not launched: too large")

    def learn(self, config: ServerConfig, log: Path) -> None:
        self.learned.append((config, log))


def test_refused_launch_is_recorded_without_a_server(tmp_path: Path) -> None:
    """A launch that cannot succeed costs minutes, and its record says why it was not made."""
    guard = Refusing()
    runner = tiny_runner(tmp_path, guard=guard)
    with runner.run.locked():
        record = runner.measure(TrialRequest("baseline", None), None).record
    assert (record.outcome, record.failure) == ("infeasible", "OOM")
    assert record.message == "not launched: too large"
    job = LaunchJob(Phase(0, "baseline", None, "launching"), 0)
    assert guard.learned == [(job.config(runner.sweep), runner.run.log_file(0))]
    assert not runner.run.log_file(0).exists()
