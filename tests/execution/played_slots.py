"""Launches that take no time and windows that are known, for what must not depend on a busy
machine.

In a module of its own: processes of slots import it anew.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.factories import World, load_sweep_text
from tests.played import speed
from tuner.config.loader import LoadedSweep
from tuner.config.point import Point
from tuner.execution.executor import LaunchFuture
from tuner.execution.launch import LaunchContext, LaunchJob, LaunchResult, lost
from tuner.execution.progress import Phase
from tuner.execution.slots import Slot
from tuner.metrics.samples import Request, Window
from tuner.runner.budget import Clock
from tuner.runs.run_folder import RunFolder
from tuner.server.base import ServerConfig
from tuner.simulator.engine import SimulatedEngine

LAUNCH_S = 0.05
SLOWED = 0.9
"""Speed in a slot with servers beside it, over that of one alone."""


class PlayedServer:
    """Answers at once."""

    url, engine_version, launch_s, gpus = "", "0.5.17", LAUNCH_S, None
    info: dict[str, Any] = {"simulated": {}}  # noqa: RUF012

    def flush_cache(self) -> None: ...

    def counters(self) -> None: ...

    def set_steps(self, steps: int) -> None: ...

    def stop(self) -> None: ...


class SleepingEngine(SimulatedEngine):
    """A launch is a sleep, long enough for another one to begin meanwhile."""

    def launch(self, config: ServerConfig, log: Path, launch_id: int) -> Any:
        time.sleep(LAUNCH_S)
        return PlayedServer()


class PlayedEngine(SimulatedEngine):
    """A launch is nothing."""

    def launch(self, config: ServerConfig, log: Path, launch_id: int) -> Any:
        return PlayedServer()


@dataclass(frozen=True)
class KnownContext(LaunchContext):
    """Windows by the point alone: the same wherever it is measured, slower beside others."""

    slowed: bool | None = None
    """Whether others are beside it; None: by its role."""

    def _warm_up(self, server: Any, phase: Phase, attempt: LaunchResult) -> None: ...

    def _window(self, server: Any, requests: Any, level: int, keep: Any = "nothing") -> Window:
        raise AssertionError("nothing is sent")

    def _measure(self, server: Any, phase: Phase, attempt: LaunchResult) -> None:
        """Beside others everything is slower alike."""
        assert phase.concurrency is not None
        slowed = phase.role in ("abreast", "candidate") if self.slowed is None else self.slowed
        share = SLOWED if slowed else 1.0
        attempt.taken[phase.point].add(phase.concurrency, known_window(phase.point, share), 0.01)


def known_measure(
    _context: LaunchContext, _server: Any, phase: Phase, attempt: LaunchResult
) -> None:
    """In the place of `LaunchContext._measure`."""
    assert phase.concurrency is not None
    attempt.taken[phase.point].add(phase.concurrency, known_window(phase.point), 0.01)


def known_window(point: Point | None, share: float = 1.0) -> Window:
    """Its own noise for each point."""
    world = World(round(speed(point) * 1000), 8, 0.003, 0.003)
    return world.windows(1, share * speed(point) / 50)[0]


def known_context(context: LaunchContext) -> KnownContext:
    """In the place of `launch.portable`."""
    requests = {level: (Request("p", "chat", "hi"),) for level in context.requests}
    return KnownContext(
        context.engine, context.sweep, RunFolder(context.run.path), requests, None, print
    )


@dataclass
class PlayedTime:
    """The clock of a run whose launches take ten minutes each, also side by side."""

    minutes: float = 0.0

    @property
    def clock(self) -> Clock:
        return Clock(lambda: 60 * self.minutes, lambda: EVENING + timedelta(minutes=self.minutes))


EVENING = datetime.fromisoformat("2026-11-30T22:00:00+01:00")
LAUNCH_MIN = 10.0


@dataclass
class _Played:
    job: LaunchJob
    ends: float
    alone: bool
    future: LaunchFuture = field(default_factory=LaunchFuture)


@dataclass
class PlayedSlots:
    """Slots in this process: see `Executor`. Launches end in the order of their time, of equal
    ones the last slot's first."""

    context: LaunchContext
    report: Callable[[Phase], None]
    count: int
    time: PlayedTime
    lose: set[int] = field(default_factory=set)
    """Launches whose process dies."""
    busy: list[int] = field(default_factory=list)
    """How many ran, whenever one ended."""
    running: dict[int, _Played] = field(default_factory=dict)
    ran: list[tuple[str, float]] = field(default_factory=list)
    """Role and end of each launch."""

    def submit(self, job: LaunchJob) -> LaunchFuture:
        number = min(set(range(self.count)) - {*self.running})
        for each in self.running.values():
            each.alone = False
        ends = self.time.minutes + LAUNCH_MIN
        self.running[number] = _Played(job, ends, not self.running)
        return self.running[number].future

    def wait(self, futures: Sequence[LaunchFuture]) -> LaunchFuture:
        self.busy.append(len(self.running))
        number = min(self.running, key=lambda each: (self.running[each].ends, -each))
        played = self.running.pop(number)
        self.time.minutes = max(self.time.minutes, played.ends)
        self.ran.append((played.job.phase.role, self.time.minutes))
        slot = Slot(number, (str(number),))

        def report(phase: Phase) -> None:
            self.report(replace(phase, place=slot.name))

        context = replace(known_context(self.context), slowed=not played.alone, report=report)
        if played.job.launch_id in self.lose:
            result = lost(played.job, "it was played")
            report(played.job.phase)
        else:
            result = context.perform(played.job)
        result.place = slot.line(alone=played.alone, slots=self.count)
        played.future.set_result(result)
        assert played.future in futures
        return played.future

    def close(self) -> None:
        for played in self.running.values():
            played.future.cancel()
        self.running.clear()


SWEEP = """
name: played
engine: {kind: simulated, preset: quickstart, startup_scale: 0.0001}
model: {target: some/model, draft: some/draft, algorithm: EAGLE3}
server: {step_switch: SWITCH}
baseline: {launches: BASELINES}
space:
  num_steps: [1, 2, 3, 4]
  env: {NCCL_PROTO: [unset, LL, LL128, Simple]}
workload: {requests: 2, output_tokens: 24, concurrency: [1]}
measure: {warmup_requests: 0, repeats: REPEATS}
search: {SEARCH}
"""


def load_played_sweep(
    folder: Path, search: str, baselines: int = 1, switch: str = "false", repeats: int = 1
) -> LoadedSweep:
    """Load a sweep of sixteen points that takes no time to launch."""
    words = {"SEARCH": search, "BASELINES": baselines, "SWITCH": switch, "REPEATS": repeats}
    return load_sweep_text(folder, SWEEP, **words)
