"""`python -m tuner.execution.ray.launch_process FD`: one launch on a node, in a process of its own.

Ray ends its workers by SIGKILL when the driver or the node's raylet goes, and their children with
them, which would leave a server that holds the GPUs. So the launch is performed by a process that
is no child of Ray's: it leads a session, reads from a socket whose other end the Ray worker has,
and when that closes, whatever the reason, stops its server as Ctrl-C would and ends.
"""

import atexit
import os
import shutil
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

from tuner.core.errors import EngineFailure, UserError
from tuner.execution.executor import LaunchJob, perform
from tuner.execution.launch import LaunchContext, phase_config
from tuner.execution.ray.messages import LaunchOrder, Over
from tuner.execution.step_blocks import partial_block
from tuner.server.base import Engine, ForwardingEngine, Rank, Server, ServerConfig
from tuner.server.pid_file import SUFFIX, processes_left

ABORT = "abort"
"""Said by the other end: another rank is gone, end the server."""
CHECK_S = 0.2


class LaunchProcess:
    """Performs one order; `home` is the connection."""

    def __init__(self, home: "Connection[Any, Any]", order: LaunchOrder) -> None:
        self._home, self._order = home, order
        self._aborting = threading.Event()

    def run(self) -> None:
        """Perform it and say what came of it. KeyboardInterrupt passes through."""
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            over = self._performed()
        except UserError as error:
            over = Over(refused=error)
        self._home.send(replace(over, aborted=self._aborting.is_set()))

    def _performed(self) -> Over:
        order, rig = self._order, self._order.rig
        if order.rank is not None:
            rig = replace(rig, engine=_Ranked(rig.engine, order.rank))
            if order.rank.number:
                return Over(failure=_work(rig, order.job))
        return Over(perform(rig, order.job, self._home.send))

    def _listen(self) -> None:
        """Until the other end is gone: then this process is to end, its server first."""
        with suppress(EOFError, OSError):
            while self._home.recv() != ABORT:
                pass
            self._aborting.set()
            threading.Thread(target=self._abort, daemon=True).start()
            while True:
                self._home.recv()
        os.kill(os.getpid(), signal.SIGTERM)

    def _abort(self) -> None:
        """End the server, as soon as there is one: the launch then fails by itself."""
        footprint = self._order.rig.run.log_file(self._order.job.launch_id).with_suffix(SUFFIX)
        while True:
            for pid in processes_left(footprint):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(CHECK_S)


class _Ranked(ForwardingEngine):
    """Launches one rank of a server that spans nodes."""

    def __init__(self, engine: Engine, rank: Rank) -> None:
        super().__init__(engine)
        self._rank = rank

    def launch(self, config: ServerConfig, log: Path, launch_id: int) -> Server:
        return super().launch(replace(config, rank=self._rank), log, launch_id)


def _work(rig: LaunchContext, job: LaunchJob) -> EngineFailure:
    """Run a rank that answers nobody until it ends; why it did."""
    config = phase_config(rig.sweep, job.phase)
    if job.along:
        assert job.phase.point is not None
        config = partial_block((job.phase.point, *job.along)).config(rig.sweep)
    try:
        server = rig.engine.launch(config, rig.run.log_file(job.launch_id), job.launch_id)
    except EngineFailure as failure:
        return failure
    try:
        while True:
            server.check_alive()
            time.sleep(CHECK_S)
    except EngineFailure as failure:
        return failure
    finally:
        with suppress(EngineFailure):
            server.stop()


class _Once:
    """The first SIGTERM ends the process as Ctrl-C would; further ones do not disturb that."""

    def __init__(self) -> None:
        self._heard = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        if not self._heard:
            self._heard = True
            raise KeyboardInterrupt


def main(fd: int) -> None:
    """The program."""
    if os.fork():
        os._exit(0)  # so that Ray finds no child of its worker to kill
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _Once())
    home: Connection[Any, Any] = Connection(fd)
    with suppress(EOFError, OSError):
        order = home.recv()
        try:
            LaunchProcess(home, order).run()
        except KeyboardInterrupt:
            try:
                home.send(Over())
            except OSError:  # nobody is there to fetch the log
                shutil.rmtree(order.rig.run.path, ignore_errors=True)
    atexit._run_exitfuncs()
    os._exit(0)  # the other end closes with the process, not some time before


if __name__ == "__main__":
    main(int(sys.argv[1]))
