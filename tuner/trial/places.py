"""Where jobs are performed: here, one after the other; in slots of this machine; on other nodes.

Whoever holds the run proposes, submits, waits and books; places launch and measure. They know no
ledger, and nobody but the one who holds the run calls them, from one thread.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from tuner.trial.attempt import Rig
from tuner.trial.job import Job, Performed, perform
from tuner.trial.phase import Phase

Outcome = TypeVar("Outcome")

Launches = Generator[Job, Performed, Outcome]
"""A trial, or several that share launches, as it goes on: yields each launch that it needs, is sent
what came of it, and returns what is recorded."""


@dataclass(frozen=True)
class Finished:
    """A job that is through."""

    job: Job
    """The very one that was submitted."""
    performed: Performed
    """Of one that was lost with its process or machine: `job.lost`, a failure worth a retry."""


class Places(Protocol):
    """Performs jobs, several at a time."""

    @property
    def count(self) -> int:
        """How many jobs can run at the same time now, at least 1; may change (a node that left)."""

    def submit(self, job: Job) -> None:
        """Begin a job in a free place, the first one in their order. Only while fewer than `count`
        run; does not wait for it. A job alone may be begun only when `wait` has brought everything
        that was submitted before: places do not look after that."""

    def wait(self) -> Finished:
        """The next job that is through. Only while one runs. While it waits, what running jobs say
        of themselves is passed on to the listener that the places were made with, and in the end
        that its place is free (`report_over`).

        A place that is lost while it performs is no error: its job is through, with the failure
        LOST. Raises UserError where a job raised it, KeyboardInterrupt where it comes.
        """

    def close(self) -> list[Finished]:
        """End whatever runs, its servers too, and return when nothing is left; safe to repeat.

        What was through before and not fetched by `wait` is returned, in its order.
        """


PlacesMaker = Callable[[Rig, Callable[[Phase], None]], Places]
"""Makes places for a run's launches, with who listens to their phases."""


def report_over(finished: Finished, report: Callable[[Phase], None]) -> None:
    """Tell that a place is free: a second try may be made in another one."""
    where = finished.performed.place
    if where is not None:
        report(replace(finished.job.phase, doing="over", place=where.name, again=None))


class Here:
    """The one place that is this process: a job is performed while it is waited for."""

    count = 1

    def __init__(self, rig: Rig, report: Callable[[Phase], None]) -> None:
        self._rig, self._report = rig, report
        self._submitted: Job | None = None

    def submit(self, job: Job) -> None:
        """Remember it."""
        assert self._submitted is None, "one job at a time"
        self._submitted = job

    def wait(self) -> Finished:
        """Perform it."""
        job, self._submitted = self._submitted, None
        assert job is not None, "nothing was submitted"
        return Finished(job, perform(self._rig, job, self._report))

    def close(self) -> list[Finished]:
        """Nothing runs between the calls."""
        self._submitted = None
        return []


def go_through(launches: Launches[Outcome], places: Places) -> Outcome:
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
