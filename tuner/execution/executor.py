"""The executor interface: `submit(job)` returns a future of the launch's result.

Three executors implement it: `InlineExecutor` in this process, `SlotExecutor` in slots of this
machine, `RayExecutor` on the nodes of a cluster. None of them knows the ledger. The process that
holds the run submits jobs, waits and records, from one thread.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Protocol

from tuner.execution.launch import LaunchContext, LaunchJob, LaunchResult
from tuner.execution.progress import Phase

LaunchFuture = Future[LaunchResult]
"""A launch that was submitted. Cancelled: it was ended by `close`."""


class Executor(Protocol):
    """Performs launches, several at a time."""

    @property
    def count(self) -> int:
        """Number of launches that can run at the same time now, at least 1. It may change."""

    def submit(self, job: LaunchJob) -> LaunchFuture:
        """Begin a launch in the first free place. Only if fewer than `count` run.

        The caller submits a launch that must run alone when no other one runs. If the process or
        the machine of a launch is lost, its result has the failure LOST. The future raises
        UserError if the launch did.
        """

    def wait(self, futures: Sequence[LaunchFuture]) -> LaunchFuture:
        """Return one of the futures that is done. Report phases of running launches meanwhile."""

    def close(self) -> None:
        """End whatever runs, servers too, and cancel its futures. Returns when nothing is left.

        A launch that was complete before keeps its result. Safe to repeat.
        """


ExecutorFactory = Callable[[LaunchContext, Callable[[Phase], None]], Executor]
"""Makes the executor of a run, from what is the same for each launch and a listener to phases."""


class InlineExecutor:
    """Performs one launch after the other in this process, while it is submitted."""

    count = 1

    def __init__(self, context: LaunchContext, report: Callable[[Phase], None]) -> None:
        self._context = replace(context, report=report)

    def submit(self, job: LaunchJob) -> LaunchFuture:
        """Perform the launch. KeyboardInterrupt passes through, with no process left."""
        future = LaunchFuture()
        try:
            future.set_result(self._context.perform(job))
        except Exception as error:
            future.set_exception(error)
        return future

    def wait(self, futures: Sequence[LaunchFuture]) -> LaunchFuture:
        """Return the first one: all are done."""
        return futures[0]

    def close(self) -> None:
        """Do nothing: nothing runs between two calls."""
