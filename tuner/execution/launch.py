"""One launch: start a server, warm it up, measure its points, stop it.

A launch for one point measures its windows in a row. A shared one measures window 1 of every chain
length, then window 2 of every one in another order, so that what drifts meanwhile meets them alike.
Where a race is on, points that need no further window of a level are left out of its later rounds.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from tuner.config.load_level import Level
from tuner.config.point import Point
from tuner.config.schema import Sweep
from tuner.core.errors import EngineFailure, Failure
from tuner.execution.early_stopping import Race, is_precise_enough
from tuner.execution.measurement import PointMeasurement, Stop
from tuner.execution.progress import Phase
from tuner.execution.step_blocks import chain_length, partial_block
from tuner.loadgen.client import Kept, Load, judge, run_window
from tuner.metrics.samples import Request, Window
from tuner.runs.records import PlaceLine
from tuner.runs.run_folder import RunFolder
from tuner.server import gpu
from tuner.server.base import Engine, Rank, Server, ServerConfig, plain_config, server_config
from tuner.server.gpu_sampler import watched
from tuner.server.memory import MemoryGuard
from tuner.server.process import child_environment

ATTEMPTS = 2
"""Launches of a trial whose failure is worth a retry."""

DEATH_WAIT_S = 2.0
RANK_CHECK_S = 0.2
"""Between two looks at a rank that answers nobody."""

STOOD_S = 2.0
"""A client that stood still for so long (Ctrl-Z, a paused container) has measured itself."""
TRIES = 3
"""Of a window in which it did; on a machine that is so busy that it always does, the last counts.
"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LaunchJob:
    """One server start and the points that it serves. It can be pickled."""

    phase: Phase
    """`launching`, of the first point. It has the trial's number if nothing else is measured, and
    the failure of the launch before if this is the second one."""
    launch_id: int
    """Unique in the run: it names the log."""
    along: tuple[Point, ...] = ()
    """Further points of the same block, measured in turns on the same server."""
    race: Race | None = None
    """None: every window is measured."""
    held_out: bool = False
    """Measure the first point also on prompts that no candidate is chosen on."""

    @property
    def points(self) -> tuple[Point | None, ...]:
        """The first point, then those along with it."""
        return (self.phase.point, *self.along)

    def config(self, sweep: Sweep) -> ServerConfig:
        """Return the server to start."""
        if not self.along:
            return phase_config(sweep, self.phase)
        return partial_block(point for point in self.points if point is not None).config(sweep)


@dataclass
class LaunchResult:
    """What one launch has brought so far. It stays when the launch fails, and can be pickled."""

    launch_id: int
    warm_steps: tuple[int, ...] = ()
    """Chain lengths that the server was switched between; (): a launch for one point."""
    info: Mapping[str, Any] | None = None
    """The server's own description, once it has started."""
    engine_version: str | None = None
    launch_s: float | None = None
    taken: dict[Point | None, PointMeasurement] = field(default_factory=dict)
    failure: EngineFailure | None = None
    stop_failure: EngineFailure | None = None
    gpus_in_use: tuple[str, ...] = ()
    """What other processes held of the GPUs just before."""
    place: PlaceLine | None = None
    """Where it was launched; None if there is one place only."""


def lost(job: LaunchJob, why: str) -> LaunchResult:
    """Return the result of a launch whose process or machine is gone."""
    return LaunchResult(job.launch_id, failure=EngineFailure(Failure.LOST, why))


@dataclass(frozen=True)
class LaunchContext:
    """Everything that is the same for each launch of a run. See `portable`."""

    engine: Engine
    sweep: Sweep
    run: RunFolder
    """Where servers' logs go."""
    requests: Mapping[Level, tuple[Request, ...]]
    """The requests of one window, by concurrency; the same for every window and point."""
    tokenise_doubt: str | None
    report: Callable[[Phase], None]
    held_out: Mapping[Level, tuple[Request, ...]] = field(default_factory=dict, kw_only=True)
    """As `requests`, of prompts that no candidate is chosen on; {} if there are too few."""
    task: tuple[Request, ...] = field(default=(), kw_only=True)
    """The questions of `workload.task`, for the baseline and for confirmations."""
    guard: MemoryGuard | None = field(default=None, kw_only=True)
    """Called before each launch."""
    rank: Rank | None = field(default=None, kw_only=True)
    """The part to launch of a server that spans nodes."""

    def perform(self, job: LaunchJob) -> LaunchResult:
        """Launch, measure and stop. A failure is in the result, not raised.

        The points are measured in turns, and their trials are numbered from the phase's on.
        Writes the server's log in the run folder and nothing else. Raises UserError if this
        machine is at fault (no program, a full disk). KeyboardInterrupt passes through, with no
        process left.
        """
        phase, config = job.phase, replace(job.config(self.sweep), rank=self.rank)
        result = LaunchResult(
            job.launch_id,
            warm_steps=config.warm_steps,
            gpus_in_use=gpus_in_use(self.sweep, config),
        )
        if config.answers:
            self.report(phase)
        try:
            if self.guard is not None:
                self.guard.check(config)
            server = self.engine.launch(config, self.run.log_file(job.launch_id), job.launch_id)
        except EngineFailure as failure:
            result.failure = failure
            return result
        if not config.answers:
            result.failure = _wait_for_end(server)
            return result
        result.info = server.info
        result.engine_version, result.launch_s = server.engine_version, server.launch_s
        phases = [replace(phase, trial=phase.trial + n, point=p) for n, p in enumerate(job.points)]
        try:
            self._load(server, phases, result, job.race)
            if job.held_out:
                self._load_held_out(server, phase, result)
        except EngineFailure as failure:
            result.failure = failure
            for taken in result.taken.values():  # nobody asked whether they are behind as a whole
                taken.go_on()
        finally:
            try:
                self.report(replace(phase, doing="stopping"))
            finally:  # a signal that comes just then is no reason to leave the server
                _stop(server, result)
        return result

    def is_complete(self, taken: PointMeasurement | None) -> bool:
        """Return True if every window of every level is there, or was left out in a race."""
        repeats = self.sweep.measure.windows
        return taken is not None and all(
            taken.count(level) == repeats or level in taken.stopped for level in self.requests
        )

    def _load(
        self, server: Server, phases: Sequence[Phase], attempt: LaunchResult, race: Race | None
    ) -> None:
        """Measure every level. Raises EngineFailure."""
        for phase in phases:
            attempt.taken[phase.point] = PointMeasurement()
        self._levels(server, phases, attempt, race)
        while race is not None and (close := race.unsettled(self.sweep, attempt.taken)):
            for point in close:
                attempt.taken[point].go_on()
            self._levels(server, [p for p in phases if p.point in close], attempt, None)
        if self.task and phases[0].role in ("baseline", "confirm"):
            self._ask(server, phases[0], attempt)

    def _load_held_out(self, server: Server, phase: Phase, attempt: LaunchResult) -> None:
        """Measure as many windows of the held-out prompts. Raises EngineFailure."""
        taken = attempt.taken[phase.point]
        for level, requests in self.held_out.items():
            windows = taken.count(level)
            for number in range(1, windows + 1):
                began = time.monotonic()
                at = replace(phase, concurrency=level, window=number, windows=windows)
                self.report(replace(at, doing="measuring"))
                server.flush_cache()
                taken.held_out.setdefault(level, []).append(self._window(server, requests, level))
                taken.seconds = (taken.seconds or 0.0) + time.monotonic() - began

    def _levels(
        self, server: Server, phases: Sequence[Phase], attempt: LaunchResult, race: Race | None
    ) -> None:
        """Measure the windows that are missing, level by level. Raises EngineFailure."""
        repeats, taken = self.sweep.measure.windows, attempt.taken
        for place, level in enumerate(self.requests):
            phases = [replace(p, concurrency=level, window=None, windows=None) for p in phases]
            for phase in phases:
                if not taken[phase.point].count(level):
                    self._warm_up(server, phase, attempt)
            for number in range(1, repeats + 1):
                due = [p for p in phases if taken[p.point].is_due(level, number)]
                turn = (place * repeats + number - 1) % max(1, len(due))
                for phase in (*due[turn:], *due[:turn]):
                    self._measure(server, replace(phase, window=number, windows=repeats), attempt)
                if number < repeats:
                    lanes = {phase.point: taken[phase.point] for phase in due}
                    for point, stop in self._stops(level, lanes, race).items():
                        taken[point].stopped[level] = stop

    def _stops(
        self, level: Level, lanes: Mapping[Point | None, PointMeasurement], race: Race | None
    ) -> dict[Point | None, Stop]:
        """Return the points that need no further window at the level, and why."""
        each = {
            point: is_precise_enough(self.sweep, level, taken) for point, taken in lanes.items()
        }
        stops = {point: stop for point, stop in each.items() if stop is not None}
        return stops if race is None else {**stops, **race.judge(self.sweep, level, lanes)}

    def _warm_up(self, server: Server, phase: Phase, attempt: LaunchResult) -> None:
        """Send requests at the phase's level that are not counted. Raises EngineFailure."""
        assert phase.concurrency is not None
        level = phase.concurrency
        requests = warm_up(self.sweep, level, self.requests[level])
        if not requests:
            return
        began = time.monotonic()
        self.report(replace(phase, doing="warming"))
        self._turn_to(server, phase, attempt)
        self._window(server, requests, level)
        attempt.taken[phase.point].warming_s += time.monotonic() - began

    def _measure(self, server: Server, phase: Phase, attempt: LaunchResult) -> None:
        """Measure a window at the phase's level. Raises EngineFailure."""
        level = phase.concurrency
        assert level is not None
        began = time.monotonic()
        self.report(replace(phase, doing="measuring"))
        self._turn_to(server, phase, attempt)
        server.flush_cache()
        with watched(server.gpus) as watch:
            window = self._window(server, self.requests[level], level, self._kept(phase))
        window = replace(window, gpus=watch.traces, engine=server.counters())
        attempt.taken[phase.point].add(level, window, time.monotonic() - began)

    def _ask(self, server: Server, phase: Phase, attempt: LaunchResult) -> None:
        """Send the task once, at the lowest concurrency. Raises EngineFailure."""
        level = min(self.requests)
        self.report(replace(phase, doing="measuring", concurrency=level))
        server.flush_cache()
        load = replace(
            load_at(self.sweep, level),
            output_tokens=self.sweep.workload.task_tokens,
            temperature=0.0,
            ignore_eos=False,
            keep="ids and text",
            request_rate=None,
        )
        attempt.taken[phase.point].task = self._send(server, self.task, load)

    @staticmethod
    def _turn_to(server: Server, phase: Phase, attempt: LaunchResult) -> None:
        """Give a shared server the phase's chain length. Raises EngineFailure."""
        if not attempt.warm_steps:
            return
        assert phase.point is not None
        server.flush_cache()  # answers when the last window's requests have left the server
        server.set_steps(chain_length(phase.point))

    def _kept(self, phase: Phase) -> Kept:
        """Return what is kept of a window's answers.

        The comparison of outputs needs the first window's, and the ids of the baseline's other
        windows, which show how far the baseline repeats itself.
        """
        if self.sweep.measure.outputs == "ignore":
            return "nothing"
        if phase.window == 1:
            return "ids and text"
        return "ids" if phase.role == "baseline" else "nothing"

    def _window(
        self, server: Server, requests: Sequence[Request], level: Level, keep: Kept = "nothing"
    ) -> Window:
        return self._send(server, requests, replace(load_at(self.sweep, level), keep=keep))

    @staticmethod
    def _send(server: Server, requests: Sequence[Request], load: Load) -> Window:
        load = replace(load, keys=server.keys, api=server.api)
        window = run_window(server.url, requests, load)
        for _ in range(TRIES - 1):
            if window.stood_s < STOOD_S:
                break
            _log.warning("specbench stood still for %.0f s: measuring that again", window.stood_s)
            server.check_alive()
            server.flush_cache()
            window = run_window(server.url, requests, load)
        server.check_alive()
        if any(each.error is not None and not each.timed_out for each in window.samples):
            _tell_death(server)
        judge(window, len(requests))
        return window


def portable(context: LaunchContext) -> LaunchContext:
    """Return a context that can be pickled for another process or another machine.

    It has neither the ledger nor a listener.
    """
    return LaunchContext(
        context.engine,
        context.sweep,
        RunFolder(context.run.path),
        context.requests,
        context.tokenise_doubt,
        _ignore,
        held_out=context.held_out,
        task=context.task,
        guard=context.guard,
    )


def _ignore(_phase: Phase) -> None:
    """Do nothing: nobody listens."""


def gpus_in_use(sweep: Sweep, config: ServerConfig) -> tuple[str, ...]:
    """Return what other processes hold of the GPUs that a server of `config` will see."""
    if not sweep.engine.uses_gpus:
        return ()
    return tuple(gpu.gpu_in_use(child_environment(config.env, config.unset, mark="")))


def phase_config(sweep: Sweep, phase: Phase) -> ServerConfig:
    """Return the server of a phase's point in a launch of its own."""
    if phase.role == "plain" and phase.point is not None:
        return plain_config(sweep, phase.point)
    return server_config(sweep, phase.point)


def _wait_for_end(server: Server) -> EngineFailure:
    """Wait until a rank that answers nobody has ended. Return the cause."""
    try:
        while True:
            server.check_alive()
            time.sleep(RANK_CHECK_S)
    except EngineFailure as failure:
        return failure
    finally:
        with suppress(EngineFailure):
            server.stop()


def _stop(server: Server, attempt: LaunchResult) -> None:
    try:
        server.stop()
    except EngineFailure as failure:
        attempt.stop_failure = failure


def _tell_death(server: Server) -> None:
    """Raise the cause of death of a server that is about to be seen dead.

    Its sockets break a moment before its exit status can be read; what the clients saw of that is
    not the cause.
    """
    deadline = time.monotonic() + DEATH_WAIT_S
    while time.monotonic() < deadline:
        server.check_alive()
        time.sleep(0.05)


class LaunchTurn(Protocol):
    """A prompt, or its request."""

    @property
    def follows(self) -> bool: ...


_Turn = TypeVar("_Turn", bound=LaunchTurn)


def load_at(sweep: Sweep, level: Level) -> Load:
    """Return how a window's requests are sent at one concurrency."""
    workload = sweep.workload
    return Load(
        concurrency=workload.streams(level),
        output_tokens=workload.output_tokens,
        temperature=workload.temperature,
        ignore_eos=workload.ignore_eos,
        request_timeout_s=sweep.timeouts.request,
        request_rate=workload.rate(level),
        seed=workload.seed,
    )


def warm_up(sweep: Sweep, level: Level, requests: Sequence[_Turn]) -> tuple[_Turn, ...]:
    """Return what is sent before the level's windows. `requests` are repeated if they are too few.

    Every stream gets one: kernels are compiled for the batch that they first see, and with fewer
    requests than streams that would be the first window's.
    """
    asked = sweep.measure.warmup_requests
    if asked and sweep.workload.rate(level) is None:
        asked = max(asked, _filling(requests, sweep.workload.streams(level)))
    return tuple(requests[index % len(requests)] for index in range(asked))


def _filling(requests: Sequence[LaunchTurn], streams: int) -> int:
    """Return how many requests fill every stream. Turns of a conversation share one stream."""
    begin = [at for at, request in enumerate(requests) if not request.follows]
    return begin[min(streams, len(begin)) - 1] + 1
