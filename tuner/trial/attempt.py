"""One launch: start a server, warm it up, measure its points, stop it.

A launch for one point measures its windows in a row. A shared one measures window 1 of every chain
length, then window 2 of every one in another order, so that what drifts meanwhile meets them alike.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tuner.engine.base import Engine, Server, server_config
from tuner.errors import EngineFailure
from tuner.ledger.record import Role
from tuner.ledger.run import Run
from tuner.measure.client import Load, run_window
from tuner.measure.failures import judge
from tuner.measure.samples import Request, Window
from tuner.sweep.model import Sweep
from tuner.sweep.point import Point
from tuner.trial.block import block_of, steps_of

ATTEMPTS = 2
"""Launches of a trial whose failure is worth a retry."""

DEATH_WAIT_S = 2.0

Windows = Mapping[int, Sequence[Window]]
"""Measured windows by concurrency."""


@dataclass(frozen=True)
class Phase:
    """What a trial is doing, for the progress line."""

    trial: int
    role: Role
    point: Point | None
    doing: Literal["launching", "warming", "measuring", "stopping"]
    concurrency: int | None = None
    window: int | None = None
    """The window that runs, from 1."""
    windows: int | None = None
    again: EngineFailure | None = None
    """Why the launch before failed, where this is the second one."""
    sharing: int = 1
    """Points that the launch measures."""


@dataclass
class Taken:
    """What one launch has brought of one point so far."""

    windows: dict[int, list[Window]] = field(default_factory=dict)
    seconds: float | None = None
    """Of load, warm-up included, to the end of the last window; None before the first."""
    warming_s: float = 0.0
    """Of warm-up that no window has followed yet."""

    def add(self, level: int, window: Window, seconds: float) -> None:
        """A window that was measured, and how long it took with what goes around it."""
        self.windows.setdefault(level, []).append(window)
        self.seconds = (self.seconds or 0.0) + self.warming_s + seconds
        self.warming_s = 0.0


@dataclass
class Attempt:
    """What one launch has brought so far; it stays when the launch fails."""

    launch_id: int
    warm_steps: tuple[int, ...] = ()
    """Chain lengths that the server was switched between; (): a launch for one point."""
    info: Mapping[str, Any] | None = None
    """What the server says of itself, once it has started."""
    engine_version: str | None = None
    launch_s: float | None = None
    taken: dict[Point | None, Taken] = field(default_factory=dict)
    failure: EngineFailure | None = None
    stop_failure: EngineFailure | None = None


@dataclass(frozen=True)
class Rig:
    """Everything that is the same for each launch of a run."""

    engine: Engine
    sweep: Sweep
    run: Run
    requests: Mapping[int, tuple[Request, ...]]
    """The requests of one window, by concurrency; the same for every window and point."""
    tokenise_doubt: str | None
    report: Callable[[Phase], None]

    def attempt(self, phase: Phase, launch_id: int, along: tuple[Point, ...] = ()) -> Attempt:
        """Launch once for the phase's point, and measure those `along` in turns with it.

        They and the point are of one block; the trials are numbered from the phase's on. What
        went wrong is in the attempt, not raised.
        """
        attempt, config = Attempt(launch_id), server_config(self.sweep, phase.point)
        if along:
            assert phase.point is not None
            block = block_of((phase.point, *along))
            attempt.warm_steps, config = block.steps, block.config(self.sweep)
        self.report(phase)
        try:
            server = self.engine.launch(config, self.run.log_file(launch_id), launch_id)
        except EngineFailure as failure:
            attempt.failure = failure
            return attempt
        attempt.info = server.info
        attempt.engine_version, attempt.launch_s = server.engine_version, server.launch_s
        phases = [phase]
        phases += [replace(phase, trial=phase.trial + n, point=p) for n, p in enumerate(along, 1)]
        try:
            self._load(server, phases, attempt)
        except EngineFailure as failure:
            attempt.failure = failure
        finally:
            self.report(replace(phase, doing="stopping"))
            try:
                server.stop()
            except EngineFailure as failure:
                attempt.stop_failure = failure
        return attempt

    def is_complete(self, taken: Taken | None) -> bool:
        """Every window of every level is there."""
        repeats = self.sweep.measure.repeats
        return taken is not None and all(
            len(taken.windows.get(level, ())) == repeats for level in self.requests
        )

    def _load(self, server: Server, phases: Sequence[Phase], attempt: Attempt) -> None:
        """Every level's warm-ups and windows. Raises EngineFailure."""
        repeats, taken, rounds = self.sweep.measure.repeats, attempt.taken, 0
        for level, requests in self.requests.items():
            phases = [replace(p, concurrency=level, window=None, windows=None) for p in phases]
            warm_up = _first(requests, self.sweep.measure.warmup_requests)
            for phase in phases if warm_up else ():
                began = time.monotonic()
                self.report(replace(phase, doing="warming"))
                self._turn_to(server, phase, attempt)
                self._window(server, warm_up, level)
                taken.setdefault(phase.point, Taken()).warming_s += time.monotonic() - began
            for number in range(1, repeats + 1):
                turn = rounds % len(phases)
                for phase in (*phases[turn:], *phases[:turn]):
                    began = time.monotonic()
                    self.report(replace(phase, doing="measuring", window=number, windows=repeats))
                    self._turn_to(server, phase, attempt)
                    server.flush_cache()
                    window = self._window(server, requests, level)
                    seconds = time.monotonic() - began
                    taken.setdefault(phase.point, Taken()).add(level, window, seconds)
                rounds += 1

    @staticmethod
    def _turn_to(server: Server, phase: Phase, attempt: Attempt) -> None:
        """Give a shared server the phase's chain length. Raises EngineFailure."""
        if not attempt.warm_steps:
            return
        assert phase.point is not None
        server.flush_cache()  # answers when the last window's requests have left the server
        server.set_steps(steps_of(phase.point))

    def _window(self, server: Server, requests: Sequence[Request], level: int) -> Window:
        workload = self.sweep.workload
        load = Load(
            concurrency=level,
            output_tokens=workload.output_tokens,
            temperature=workload.temperature,
            ignore_eos=workload.ignore_eos,
            request_timeout_s=self.sweep.timeouts.request,
        )
        window = run_window(server.url, requests, load)
        server.check_alive()
        if any(each.error is not None and not each.timed_out for each in window.samples):
            _tell_death(server)
        judge(window, len(requests))
        return window


def _tell_death(server: Server) -> None:
    """Raises the cause of death of a server that is about to be seen dead.

    Its sockets break a moment before its exit status can be read; what the clients saw of that is
    not the cause.
    """
    deadline = time.monotonic() + DEATH_WAIT_S
    while time.monotonic() < deadline:
        server.check_alive()
        time.sleep(0.05)


def _first(requests: Sequence[Request], count: int) -> tuple[Request, ...]:
    """`count` requests, round and round where there are fewer."""
    return tuple(requests[index % len(requests)] for index in range(count))
