"""One launch as an order and as what came of it: both can be pickled, neither knows a ledger.

A job is exactly one launch. Whether its failure is worth another one, and what is recorded of it,
is decided where the ledger is (bench.py, shared.py): so a second try may be made elsewhere.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from tuner.config.point import Point
from tuner.core.errors import EngineFailure, Failure
from tuner.execution.early_stopping import Race
from tuner.execution.launch import LaunchContext, LaunchResult
from tuner.execution.progress import Phase
from tuner.runs.records import PlaceLine
from tuner.runs.run_folder import RunFolder
from tuner.server import gpu
from tuner.server.base import server_config
from tuner.server.process import child_environment


@dataclass(frozen=True)
class LaunchJob:
    """What to launch and to measure."""

    phase: Phase
    """`launching`, of the launch's first point: with its trial's number while nothing else is
    measured, and with the failure before, where this is a second try."""
    launch_id: int
    """Nobody else's: it names the log."""
    along: tuple[Point, ...] = ()
    """Further points of its block, measured in turns on the same server."""
    race: Race | None = None
    held_out: bool = False
    """Whether it is also measured on prompts that no candidate is chosen on."""


@dataclass(frozen=True)
class JobResult:
    """What one launch has brought; a failure is in the attempt."""

    attempt: LaunchResult
    crowded: tuple[str, ...] = ()
    """What others held of the GPUs just before."""
    place: PlaceLine | None = None
    """Where; None where there is one place only."""


def perform(rig: LaunchContext, job: LaunchJob, report: Callable[[Phase], None]) -> JobResult:
    """Launch, measure and stop, here and now; `report` hears what goes on.

    Writes the server's log in the rig's run folder and nothing else. Raises UserError where the
    world is wrong (no program, a full disk); KeyboardInterrupt passes through, with no process
    left.
    """
    crowded = _crowded(rig, job.phase.point)
    attempt = replace(rig, report=report).attempt(
        job.phase, job.launch_id, job.along, job.race, held_out=job.held_out
    )
    return JobResult(attempt, crowded)


def lost(job: LaunchJob, why: str) -> JobResult:
    """A launch whose process or machine is gone, with a sentence of what is known."""
    return JobResult(LaunchResult(job.launch_id, failure=EngineFailure(Failure.LOST, why)))


def bare(rig: LaunchContext) -> LaunchContext:
    """A rig without the ledger's side of it and with nobody to report to, for another process or
    another machine to measure with. It can be pickled."""
    return LaunchContext(
        rig.engine,
        rig.sweep,
        RunFolder(rig.run.path),
        rig.requests,
        rig.tokenise_doubt,
        _unheard,
        held_out=rig.held_out,
        task=rig.task,
    )


def _unheard(_phase: Phase) -> None:
    """Nobody listens."""


def _crowded(rig: LaunchContext, point: Point | None) -> tuple[str, ...]:
    """What others hold of the GPUs that a launch of the point will see."""
    if not rig.sweep.engine.uses_gpus:
        return ()
    config = server_config(rig.sweep, point)
    return tuple(gpu.gpu_in_use(child_environment(config.env, config.unset, mark="")))


# Where jobs are performed: here, one after the other; in slots of this machine; on other nodes.
#
# Whoever holds the run proposes, submits, waits and books; places launch and measure. They know no
# ledger, and nobody but the one who holds the run calls them, from one thread.


Outcome = TypeVar("Outcome")

Launches = Generator[LaunchJob, JobResult, Outcome]
"""A trial, or several that share launches, as it goes on: yields each launch that it needs, is sent
what came of it, and returns what is recorded."""


@dataclass(frozen=True)
class FinishedJob:
    """A job that is through."""

    job: LaunchJob
    """The very one that was submitted."""
    performed: JobResult
    """Of one that was lost with its process or machine: `job.lost`, a failure worth a retry."""


class Executor(Protocol):
    """Performs jobs, several at a time."""

    @property
    def count(self) -> int:
        """How many jobs can run at the same time now, at least 1; may change (a node that left)."""

    def submit(self, job: LaunchJob) -> None:
        """Begin a job in a free place, the first one in their order. Only while fewer than `count`
        run; does not wait for it. A job alone may be begun only when `wait` has brought everything
        that was submitted before: places do not look after that."""

    def wait(self) -> FinishedJob:
        """The next job that is through. Only while one runs. While it waits, what running jobs say
        of themselves is passed on to the listener that the places were made with, and in the end
        that its place is free (`report_over`).

        A place that is lost while it performs is no error: its job is through, with the failure
        LOST. Raises UserError where a job raised it, KeyboardInterrupt where it comes.
        """

    def close(self) -> list[FinishedJob]:
        """End whatever runs, its servers too, and return when nothing is left; safe to repeat.

        What was through before and not fetched by `wait` is returned, in its order.
        """


PlacesMaker = Callable[[LaunchContext, Callable[[Phase], None]], Executor]
"""Makes places for a run's launches, with who listens to their phases."""


def report_over(finished: FinishedJob, report: Callable[[Phase], None]) -> None:
    """Tell that a place is free: a second try may be made in another one."""
    where = finished.performed.place
    if where is not None:
        report(replace(finished.job.phase, doing="over", place=where.name, again=None))


class InlineExecutor:
    """The one place that is this process: a job is performed while it is waited for."""

    count = 1

    def __init__(self, rig: LaunchContext, report: Callable[[Phase], None]) -> None:
        self._rig, self._report = rig, report
        self._submitted: LaunchJob | None = None

    def submit(self, job: LaunchJob) -> None:
        """Remember it."""
        assert self._submitted is None, "one job at a time"
        self._submitted = job

    def wait(self) -> FinishedJob:
        """Perform it."""
        job, self._submitted = self._submitted, None
        assert job is not None, "nothing was submitted"
        return FinishedJob(job, perform(self._rig, job, self._report))

    def close(self) -> list[FinishedJob]:
        """Nothing runs between the calls."""
        self._submitted = None
        return []


def go_through(launches: Launches[Outcome], places: Executor) -> Outcome:
    """Perform the launches one after the other, alone: nothing else may run.

    What is raised meanwhile is raised in `launches` too, which so can record what it has.
    """
    try:
        job = next(launches)
        while True:
            places.submit(job)
            try:
                performed = places.wait().performed
            except BaseException as error:
                launches.throw(error)
                raise
            job = launches.send(performed)
    except StopIteration as ended:
        found: Outcome = ended.value
        return found
