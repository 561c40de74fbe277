"""Several servers of this machine at a time: a process for each slot, which launches and measures.

A process of its own has its own GPUs to see, its own CPUs, and a load client that waits for no
other one. It leads a session, so that Ctrl-C reaches specbench alone, which ends it by SIGTERM; and
it ends by itself, its server first, when specbench is gone.
"""

import os
import pickle
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from types import FrameType
from typing import Any

from tuner.core.errors import UserError
from tuner.execution.executor import FinishedJob, JobResult, LaunchJob, lost, perform, report_over
from tuner.execution.launch import LaunchContext
from tuner.execution.progress import Phase
from tuner.execution.slot_layout import VISIBLE, Slot
from tuner.server.pid_file import SUFFIX, end_left_behind

END_LIMIT_S = 30.0
"""For a slot's process to end its server; then both are killed."""


@dataclass
class _Worker:
    """A slot's process, and what it performs."""

    slot: Slot
    process: BaseProcess | None = None
    pipe: "Connection[Any, Any] | None" = None
    job: LaunchJob | None = None
    alone: bool = True


class Slots:
    """See `places.Places`. `report` hears phases with the slot's name in `place`."""

    def __init__(
        self, rig: LaunchContext, slots: tuple[Slot, ...], report: Callable[[Phase], None]
    ) -> None:
        """`rig` can be pickled (`job.bare`). Processes are started with the first job."""
        self._rig, self._report = rig, report
        self._workers = [_Worker(slot) for slot in slots]
        self._through: deque[FinishedJob] = deque()

    @property
    def count(self) -> int:
        """The slots."""
        return len(self._workers)

    def submit(self, job: LaunchJob) -> None:
        """Give a job to the first slot that is free."""
        worker = next(each for each in self._workers if each.job is None)
        busy = [each for each in self._workers if each.job is not None]
        worker.job, worker.alone = job, not busy
        for each in busy:
            each.alone = False
        if worker.process is None:
            self._start(worker)
        assert worker.pipe is not None
        with suppress(OSError):  # its process died meanwhile: `wait` sees that
            worker.pipe.send(job)

    def wait(self) -> FinishedJob:
        """The next job that is through, whichever slot has it."""
        while not self._through:
            busy = [each for each in self._workers if each.job is not None]
            ready = connection.wait([each.pipe for each in busy if each.pipe is not None])
            for each in busy:
                if each.pipe in ready:
                    self._hear(each)
        finished = self._through.popleft()
        report_over(finished, self._report)
        return finished

    def close(self) -> list[FinishedJob]:
        """End every process; each stops its server."""
        for worker in self._workers:
            if worker.process is not None and worker.process.is_alive():
                worker.process.terminate()
        deadline = time.monotonic() + END_LIMIT_S
        for worker in self._workers:
            if worker.process is not None:
                self._drain(worker, deadline)
                self._bury(worker)
                worker.job = None
        found = list(self._through)
        self._through.clear()
        return found

    def _start(self, worker: _Worker) -> None:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_serve, args=(theirs, worker.slot, self._rig), name=worker.slot.name, daemon=True
        )
        process.start()
        theirs.close()
        worker.process, worker.pipe = process, ours

    def _hear(self, worker: _Worker) -> None:
        """One message of a slot's process, or its end. Raises UserError where the job did."""
        assert worker.pipe is not None and worker.job is not None
        try:
            what, value = worker.pipe.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            self._lose(worker)
            return
        if what == "phase":
            self._report(replace(value, place=worker.slot.name))
            return
        job, worker.job = worker.job, None
        if what == "refused":
            raise value
        if what == "broke":
            raise RuntimeError(f"{worker.slot.name}: {value}")
        self._end(worker, job, value)

    def _end(self, worker: _Worker, job: LaunchJob, performed: JobResult) -> None:
        line = worker.slot.line(alone=worker.alone, slots=self.count)
        self._through.append(FinishedJob(job, replace(performed, place=line)))

    def _lose(self, worker: _Worker) -> None:
        """Its process is gone: so is its job, and its server must be."""
        job, worker.job = worker.job, None
        code = self._bury(worker)
        assert job is not None
        how = f"was ended by signal {-code}" if code is not None and code < 0 else (
            f"ended with exit code {code}")  # fmt: skip
        why = f"the process that launched and measured on {worker.slot.name} {how}"
        self._end(worker, job, lost(job, why))
        end_left_behind(self._rig.run.log_file(job.launch_id).with_suffix(SUFFIX))

    def _drain(self, worker: _Worker, deadline: float) -> None:
        """What a process that is ending still says: it may have been through."""
        assert worker.pipe is not None
        with suppress(EOFError, OSError, pickle.UnpicklingError):
            while worker.pipe.poll(max(0.0, deadline - time.monotonic())):
                what, value = worker.pipe.recv()
                if what == "done" and worker.job is not None:
                    job, worker.job = worker.job, None
                    self._end(worker, job, value)

    def _bury(self, worker: _Worker) -> int | None:
        """Wait for a process that ends, or kill it and its server. Its exit code."""
        process, worker.process = worker.process, None
        assert process is not None and worker.pipe is not None
        process.join(END_LIMIT_S if process.exitcode is None and worker.job is None else 2.0)
        if process.exitcode is None:
            process.kill()
            process.join()
        if worker.job is not None:
            end_left_behind(self._rig.run.log_file(worker.job.launch_id).with_suffix(SUFFIX))
        worker.pipe.close()
        worker.pipe = None
        code: int | None = process.exitcode
        process.close()
        return code


def _serve(pipe: "Connection[Any, Any]", slot: Slot, rig: LaunchContext) -> None:
    """A slot's process: jobs from the pipe, phases and outcomes into it, until it is closed."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _Once())
    with suppress(KeyboardInterrupt):
        if slot.gpus is not None:
            os.environ[VISIBLE] = ",".join(slot.gpus)
        if slot.cpus is not None:
            with suppress(OSError):  # a container that may not: the server runs all the same
                os.sched_setaffinity(0, slot.cpus)
        jobs: SimpleQueue[LaunchJob] = SimpleQueue()
        threading.Thread(target=_listen, args=(pipe, jobs), daemon=True).start()
        while True:
            _perform(pipe, rig, jobs.get())
    sys.exit(0)


class _Once:
    """The first SIGTERM ends the process as Ctrl-C would; further ones do not disturb that."""

    def __init__(self) -> None:
        self._heard = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        if not self._heard:
            self._heard = True
            raise KeyboardInterrupt


def _listen(pipe: "Connection[Any, Any]", jobs: "SimpleQueue[LaunchJob]") -> None:
    """Read jobs; where specbench is gone, end this process, its server first."""
    with suppress(EOFError, OSError):
        while True:
            jobs.put(pipe.recv())
    os.kill(os.getpid(), signal.SIGTERM)


def _perform(pipe: "Connection[Any, Any]", rig: LaunchContext, job: LaunchJob) -> None:
    def report(phase: Phase) -> None:
        try:
            pipe.send(("phase", phase))
        except OSError as error:  # specbench is gone
            raise KeyboardInterrupt from error

    message: tuple[str, Any]
    try:
        message = "done", perform(rig, job, report)
    except UserError as error:
        message = "refused", error
    except Exception as error:  # a fault of specbench's own, told where it is looked for
        message = "broke", f"{type(error).__name__}: {error}"
        sys.excepthook(*sys.exc_info())
    with suppress(OSError):
        pipe.send(message)
