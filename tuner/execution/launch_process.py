"""One launch in a process of its own, for a slot of this machine and for a node of a cluster.

The process has its own GPUs to see, its own CPUs, and a load client that waits for no other one. It
leads a session, so that Ctrl-C reaches specbench alone. It reads from a socket whose other end its
starter has. When that end closes, whatever the reason, the process stops its server as Ctrl-C would
and ends. A process that dies fails only its own launch.
"""

import atexit
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import IO, Any

from tuner.core.errors import UserError
from tuner.execution.launch import LaunchContext, LaunchJob, LaunchResult
from tuner.execution.progress import Phase
from tuner.server.pid_file import SUFFIX, end_left_behind, processes_left

END_LIMIT_S = 30.0
"""For a process to end its server; then both are killed."""
KILL_EVERY_S = 0.2
_ABORT = "abort"
"""Message to the process: another rank is gone, end the server."""
_PROGRAM = """\
import os, sys
from multiprocessing.connection import Connection
if sys.argv[2] == "detached" and os.fork():
    os._exit(0)
starter = Connection(int(sys.argv[1]))
sys.path[:] = starter.recv()
from tuner.execution.launch_process import main
main(starter)
"""


@dataclass(frozen=True)
class LaunchOrder:
    """What a launch process gets."""

    context: LaunchContext
    """See `launch.portable`."""
    job: LaunchJob
    cpus: frozenset[int] | None = None
    """CPUs of the process and of its server; None: any."""
    scratch: Path | None = None
    """Folder to remove if nobody is left to fetch the log."""

    @property
    def footprint(self) -> Path:
        """The file that names the processes of the server while they run."""
        return self.context.run.log_file(self.job.launch_id).with_suffix(SUFFIX)


@dataclass(frozen=True)
class LaunchEnd:
    """The last message of a launch process: nothing of the launch runs any more."""

    result: LaunchResult | None = None
    """None if the launch was ended or its process is gone."""
    error: Exception | None = None
    """UserError if the machine is at fault, else a bug."""
    aborted: bool = False
    """The server was ended because another rank was gone."""
    why: str | None = None
    """How the process went, if it is gone."""

    @property
    def is_bug(self) -> bool:
        """True if specbench itself is at fault."""
        return self.error is not None and not isinstance(self.error, UserError)


class LaunchProcess:
    """A launch process, as its starter sees it."""

    def __init__(
        self,
        order: LaunchOrder,
        environment: Mapping[str, str],
        *,
        detached: bool = False,
        output: IO[bytes] | None = None,
        pass_fds: tuple[int, ...] = (),
    ) -> None:
        """Start it. A `detached` one is no child of this process."""
        self._order, self._is_detached, self._is_ending = order, detached, False
        ours, theirs = socket.socketpair()
        with theirs:
            words = (str(theirs.fileno()), "detached" if detached else "child")
            self._process = subprocess.Popen(
                (sys.executable, "-P", "-c", _PROGRAM, *words),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                env=dict(environment),
                pass_fds=(theirs.fileno(), *pass_fds),
                start_new_session=True,
            )
        self.pipe: Connection[Any, Any] = Connection(ours.detach())
        if detached:
            self._process.wait()
        with suppress(OSError):  # it is gone already: `receive` finds that
            self.pipe.send(sys.path)
            self.pipe.send(order)

    def receive(self) -> Phase | LaunchEnd:
        """Return the next message. After a LaunchEnd call `bury`."""
        try:
            message: Phase | LaunchEnd = self.pipe.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            return LaunchEnd(why=None if self._is_ending else self._how_it_went())
        return message

    def abort(self) -> None:
        """End the server. The launch fails, and the process sends its result."""
        with suppress(OSError):
            self.pipe.send(_ABORT)

    def end(self) -> None:
        """End the launch, its server first. The process still sends its last message."""
        self._is_ending = True
        with suppress(OSError), socket.socket(fileno=os.dup(self.pipe.fileno())) as same:
            same.shutdown(socket.SHUT_WR)

    def last(self, deadline: float) -> LaunchEnd:
        """Return the last message of a process that ends, until `deadline` (monotonic)."""
        with suppress(OSError):
            while self.pipe.poll(max(0.0, deadline - time.monotonic())):
                message = self.receive()
                if isinstance(message, LaunchEnd):
                    return message
        return LaunchEnd()

    def bury(self) -> None:
        """Wait until the process is gone, or kill it. End what is left of its server."""
        deadline = time.monotonic() + END_LIMIT_S
        with suppress(EOFError, OSError, pickle.UnpicklingError):
            while self.pipe.poll(max(0.0, deadline - time.monotonic())):
                self.pipe.recv()
        self.pipe.close()
        try:
            self._process.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._order.footprint.exists():
            end_left_behind(self._order.footprint)

    def _how_it_went(self) -> str:
        if self._is_detached:
            return "is gone"
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(END_LIMIT_S)
            return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return "closed its connection"


class _Once:
    """Handler of SIGTERM. The first one ends the process as Ctrl-C would, later ones do nothing."""

    def __init__(self) -> None:
        self._heard = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        if not self._heard:
            self._heard = True
            raise KeyboardInterrupt


def main(starter: "Connection[Any, Any]") -> None:
    """Perform the order that comes from the starter, in the launch process."""
    if os.getsid(0) != os.getpid():
        os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _Once())
    with suppress(EOFError, OSError, KeyboardInterrupt):
        order: LaunchOrder = starter.recv()
        if order.cpus is not None:
            with suppress(OSError):  # a container that may not: the server runs all the same
                os.sched_setaffinity(0, order.cpus)
        end = _perform(starter, order)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the last message is sent whole
        try:
            starter.send(end)
        except OSError:
            if order.scratch is not None:
                shutil.rmtree(order.scratch, ignore_errors=True)
    atexit._run_exitfuncs()
    os._exit(0)  # the connection closes with the process, not some time before


def _perform(starter: "Connection[Any, Any]", order: LaunchOrder) -> LaunchEnd:
    """Perform the launch and return what to send last."""
    aborting = threading.Event()
    threading.Thread(target=_listen, args=(starter, order, aborting), daemon=True).start()
    try:
        result = replace(order.context, report=starter.send).perform(order.job)
        return LaunchEnd(result, aborted=aborting.is_set())
    except KeyboardInterrupt:
        return LaunchEnd()
    except UserError as error:
        return LaunchEnd(error=error)
    except Exception as error:
        sys.excepthook(*sys.exc_info())
        return LaunchEnd(error=RuntimeError(f"{type(error).__name__}: {error}"))


def _listen(starter: "Connection[Any, Any]", order: LaunchOrder, aborting: threading.Event) -> None:
    """Read until the starter's end is closed. Then end this process, its server first."""
    with suppress(EOFError, OSError):
        while True:
            if starter.recv() == _ABORT and not aborting.is_set():
                aborting.set()
                threading.Thread(target=_abort, args=(order.footprint,), daemon=True).start()
    os.kill(os.getpid(), signal.SIGTERM)


def _abort(footprint: Path) -> None:
    """Kill the server, as soon as there is one: the launch then fails by itself."""
    while True:
        for pid in processes_left(footprint):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(KILL_EVERY_S)
