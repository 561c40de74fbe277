"""One launch's processes: started together, watched, and all of them ended.

A launch is the child that we start, whatever it starts, and whatever those leave behind. They are
known by four signs, so that no single trick of a child hides it: the session that the child leads,
descent from it, the variable SPECBENCH_LAUNCH in their environment, and having been seen as a
descendant earlier. (SGLang's schedulers rename themselves, which overwrites the environment that
the kernel shows; a child with its own session whose parent died has lost the first two.)
"""

import atexit
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import psutil

from tuner.core.errors import UserError
from tuner.server.log_file import ServerLog
from tuner.server.pid_file import MARK, Footprint, is_alive, with_descendants

TERM_GRACE_S = 4.0
KILL_LIMIT_S = 4.0
REAP_LIMIT_S = 2.0
"""A process shows as a zombie when its main thread is gone; the others take a moment longer."""
OBSERVE_EVERY_S = 0.5

_log = logging.getLogger(__name__)
_running: set["ProcessTree"] = set()


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the block is through, where Python handles them.

    Neither a start nor a stop may be cut in half: the one would lose the child's id, the other
    would leave processes. Signals reach only the main thread, elsewhere there is nothing to do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        caught.append(number)

    handled = [s for s in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(s))]
    previous = {number: signal.signal(number, remember) for number in handled}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        if caught:
            signal.raise_signal(caught[0])


def child_environment(env: Mapping[str, str], unset: frozenset[str], mark: str) -> dict[str, str]:
    """This process's environment with `env` set, `unset` removed, and the launch's mark."""
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    return {**inherited, **env, MARK: mark}


class ProcessTree:
    """A child in its own session, with its output in a file, and everything it starts.

    With a prefix such as docker or ssh, only the processes on this machine and outside the
    container are seen and ended: SIGTERM reaches `docker run` and `ssh -t`, which pass it on, but
    a container that ignores it outlives its client. Variables reach local children only (numactl,
    taskset, srun); docker needs `-e NAME`, ssh needs SendEnv.
    """

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._argv = tuple(argv)
        self._environment = dict(environment)
        self._mark = self._environment[MARK]
        self._log_path = log
        self._footprint = Footprint(log, self._mark)
        self._popen: subprocess.Popen[bytes] | None = None
        self._seen: set[psutil.Process] = set()
        self._observed = 0.0
        self._ended = False

    def start(self) -> None:
        """Start the child.

        Raises OSError where its program cannot be run, UserError where its log cannot be written.
        """
        try:
            self._log_path.parent.mkdir(parents=True, exist_ok=True)
            self._log_path.write_bytes(b"")
            self._footprint.write()
        except OSError as error:
            message = f"this cannot be written: {error.strerror}, give a folder that can be"
            raise UserError(message, error.filename or self._log_path) from error
        try:
            with interrupts_deferred(), self._log_path.open("ab") as output:
                self._popen = subprocess.Popen(
                    self._argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    start_new_session=True,
                )
                _running.add(self)
                self._footprint.update([self._popen.pid])
        except OSError:
            self._footprint.remove()
            raise

    @property
    def pid(self) -> int:
        """The child's process id, which is also its group and session; only after `start`."""
        if self._popen is None:
            raise RuntimeError("the process was not started")
        return self._popen.pid

    def exit_status(self) -> int | None:
        """None while the child runs, its exit code, or minus the signal that ended it.

        The child stays a zombie until `stop`, so that its id cannot go to a stranger meanwhile.
        """
        if self._popen is None:
            return None
        if self._popen.returncode is not None:
            return self._popen.returncode
        ended = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def wait(self, limit_s: float) -> int | None:
        """The exit status, or None where the child still runs after `limit_s`."""
        deadline = time.monotonic() + limit_s
        while (status := self.exit_status()) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        return status

    def observe(self) -> None:
        """Remember the descendants of now, so that they are known when their parents are gone."""
        now = time.monotonic()
        if self._popen is None or now - self._observed < OBSERVE_EVERY_S:
            return
        self._observed = now
        with suppress(psutil.NoSuchProcess):
            self._seen.update(psutil.Process(self._popen.pid).children(recursive=True))
        ServerLog(self._log_path).cut()
        alive = [process.pid for process in self._seen if is_alive(process)]
        self._footprint.update([self._popen.pid, *alive])

    def stop(self) -> None:
        """End every process of the launch, within ten seconds; safe to repeat."""
        if self._popen is None or self._ended:
            return
        with interrupts_deferred():
            self._observed = 0.0
            self.observe()
            if self.exit_status() is None:
                self._ask()
            all_gone = self._kill()
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(timeout=REAP_LIMIT_S)
            ServerLog(self._log_path).seal()
            if all_gone:
                self._footprint.remove()
            self._ended = True
            _running.discard(self)

    def _ask(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGTERM)
        deadline = time.monotonic() + TERM_GRACE_S
        while time.monotonic() < deadline:
            if self.exit_status() is not None:
                return  # whatever it leaves behind is not going to end by itself
            time.sleep(0.05)

    def _kill(self) -> bool:
        """True when nothing is left."""
        deadline = time.monotonic() + KILL_LIMIT_S
        while members := self.members():
            if time.monotonic() > deadline:
                _log.warning("processes survive SIGKILL: %s", sorted(p.pid for p in members))
                return False
            for process in members:
                with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    process.kill()
            time.sleep(0.05)
        return True

    def members(self) -> set[psutil.Process]:
        """Every living process of this launch."""
        everyone = {process.pid: process for process in psutil.process_iter()}
        ours = [pid for pid, process in everyone.items() if self._is_ours(process)]
        ours += sorted(process.pid for process in self._seen if is_alive(process))
        return {each for each in with_descendants(ours, everyone) if is_alive(each)}

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            if os.getsid(process.pid) == self.pid:
                return True
            return process.environ().get(MARK) == self._mark
        except (psutil.Error, OSError):
            return False


@atexit.register
def _stop_all() -> None:
    """The net under everything else: no server outlives a specbench that ends on its own."""
    for tree in list(_running):
        tree.stop()
