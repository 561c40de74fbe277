"""Launching a server as a child process, up to its first token, and ending it again.

Shared by the real and the simulated engine, which differ in the program that they start.
"""

import errno
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tuner.config.schema import TimeoutSpec
from tuner.config.yaml_document import Document
from tuner.core.errors import EngineFailure, Failure, UserError
from tuner.core.secrets import hidden
from tuner.loadgen.auth import Keys
from tuner.metrics.samples import EngineCounters
from tuner.server import gpu, ports
from tuner.server.base import HOST, Dialect, Server, ServerConfig
from tuner.server.gpu_sampler import ServerGpus, find_server_gpus
from tuner.server.http_api import HEALTH_LIMIT_S, ServerApi
from tuner.server.log_file import ServerLog, log_tail
from tuner.server.process import ProcessTree, child_environment

PORT_WAIT_S = 5.0
GPU_WAIT_S = 20.0
DEATH_WAIT_S = 2.0
"""How long a server whose connection broke is given to end, so that its death is told instead."""
LOG_READ_BYTES = 2 * 2**20
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5


@dataclass(frozen=True)
class Launch:
    """One launch's particulars."""

    program: tuple[str, ...]
    """Prefix, interpreter and module: the words before the server's flags."""
    dialect: Dialect
    config: ServerConfig
    log: Path
    timeouts: TimeoutSpec


class LaunchedServer(Server):
    """A server that runs as our child. `start` makes one; see `server.base.Server`."""

    def __init__(self, launch: Launch) -> None:
        nonce = f"specbench-{uuid.uuid4().hex[:16]}"
        config, dialect = launch.config, launch.dialect
        self._claims = ports.PortClaims()
        # Given to one rank too: SGLang's own draw could meet that of a server beside it.
        port, nccl_port = self._claims.claim(), self._claims.claim()
        self._launch, self._dialect = launch, dialect
        self._identity = dialect.identity(config, nonce, port)
        env = dialect.environment(config)
        # Left in the caller's shell, they would change servers of points that leave them alone.
        unset = config.unset | dialect.own_variables
        self._environment = child_environment(env, unset, nonce)
        words = [*dialect.server_words(config, port, nccl_port), *self._identity.words]
        self._argv = (*launch.program, *words)
        self._tree = ProcessTree(self._argv, self._environment, launch.log)
        self._memory_before = gpu.used_memory(self._environment)
        self._stopped = False
        self.keys = Keys.of_flags(config.flags)
        self.api = dialect.api
        self._api = ServerApi(f"http://{HOST}:{port}", launch.timeouts.request, self.keys)
        self.url = self._api.url
        self.info: Mapping[str, Any] = {}
        self.gpus: ServerGpus | None = None
        self.engine_version = "unknown"
        self.launch_s = 0.0

    @classmethod
    def start(cls, launch: Launch) -> Self:
        """Start a server and return when it has generated a token, or at once where it is a rank
        that answers nobody.

        Raises EngineFailure, or UserError where the program cannot be run; whatever is raised,
        also KeyboardInterrupt, no process is left.
        """
        server = cls(launch)
        try:
            server._start()
        except BaseException:
            server.stop()
            raise
        return server

    def _start(self) -> None:
        began = time.monotonic()
        try:
            self._tree.start()
        except OSError as error:
            raise UserError(
                f"cannot run {self._argv[0]}: {error.strerror}; check engine.command and "
                "engine.python"
            ) from error
        if not self._launch.config.answers:
            return
        self._wait_until_healthy(began + self._launch.timeouts.launch)
        try:
            self.info = self._api.server_info()
            if difference := self._identity.mismatch(self.info):
                raise EngineFailure(
                    Failure.WRONG_SERVER,
                    f"another server answers at {self.url}: its {difference}",
                )
            self._api.generate_one_token(self.info)
        except EngineFailure as failure:
            raise self._explained(failure) from failure
        self.launch_s = time.monotonic() - began
        self.engine_version = str(self.info.get("version", "unknown"))
        self._tree.observe()
        if "simulated" not in self.info:
            self.gpus = find_server_gpus(self.info, self._memory_before, self._environment)

    def _wait_until_healthy(self, deadline: float) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            self.check_alive()
            if self._dialect.has_port_conflict(self._log_text()):
                raise self._failure(*self._dialect.diagnose(None, self._shown_log()))
            left = deadline - time.monotonic()
            if self._api.is_healthy(min(HEALTH_LIMIT_S, left)):
                return
            if time.monotonic() > deadline:
                raise self._failure(
                    Failure.LAUNCH_TIMEOUT,
                    f"not ready after {self._launch.timeouts.launch:g} s (timeouts.launch), "
                    f"last line: {_last_line(self._shown_log())}",
                )
            self._tree.observe()
            time.sleep(pause)
            pause = min(pause * 1.3, _LONGEST_PAUSE_S)

    def flush_cache(self) -> None:
        """Empty the prefix cache. Raises EngineFailure."""
        try:
            self._api.flush_cache()
        except EngineFailure as failure:
            raise self._explained(failure) from failure

    def set_steps(self, steps: int) -> None:
        """Pin the chain length of the idle server. Raises EngineFailure."""
        try:
            self._api.set_steps(steps)
        except EngineFailure as failure:
            raise self._explained(failure) from failure

    def counters(self) -> EngineCounters | None:
        """What the server itself has counted since the cache was emptied."""
        return self._api.counters(self._dialect.counters)

    def check_alive(self) -> None:
        """Raises EngineFailure with the cause of death if the server has ended or is about to."""
        status = self._tree.exit_status()
        if status is None and self._dialect.is_dying(self._log_text()):
            status = self._tree.wait(DEATH_WAIT_S)
        elif status is None:
            self._tree.observe()
            return
        raise self._failure(*self._dialect.diagnose(status, self._shown_log()))

    def _explained(self, failure: EngineFailure) -> EngineFailure:
        """The cause of death where the server died of what the client saw, else `failure`."""
        broke = failure.label is Failure.CLIENT
        status = self._tree.wait(DEATH_WAIT_S if broke else 0.0)
        if status is not None and failure.label is not Failure.WRONG_SERVER:
            return self._failure(*self._dialect.diagnose(status, self._shown_log()))
        return self._failure(failure.label, failure.message)

    def _failure(self, label: Failure, message: str) -> EngineFailure:
        """Raises UserError instead where the disk is full: that is nobody's failure but its."""
        refuse_full_disk(self._launch.log)
        return EngineFailure(label, message, log_tail(self._shown_log()))

    def _log_text(self) -> str:
        return ServerLog(self._launch.log).end(LOG_READ_BYTES)

    def _shown_log(self) -> str:
        """Without secrets: before lines are cut, since no half of one would be known."""
        return hidden(self._log_text())

    def stop(self) -> None:
        """End every process, then wait until ports and GPU memory are back; safe to repeat.

        The waiting is bounded, and left out where Ctrl-C is on its way out: nothing follows that
        could want the memory.
        """
        if self._stopped:
            return
        self._tree.stop()
        self._stopped = True
        if isinstance(sys.exception(), KeyboardInterrupt):
            self._claims.release()
            return
        ports.wait_until_free(self._claims.ports, PORT_WAIT_S)
        self._claims.release()
        gpu.wait_until_back(self._memory_before, self._environment, GPU_WAIT_S)


def _last_line(log_text: str) -> str:
    """The last that the server did; that it was asked whether it is up is nothing it did."""
    lines = [line for line in log_text.splitlines() if line.strip() and "GET /health" not in line]
    return log_tail(lines[-1], 1)[:200] if lines else "an empty log"


_FULL = (errno.ENOSPC, errno.EDQUOT)
_PROBE = b"\0" * 65536


def refuse_full_disk(log: Path) -> None:
    """Raises UserError where there is no space left beside a server's log."""
    try:
        with tempfile.TemporaryFile(dir=log.parent) as file:
            file.write(_PROBE)
            file.flush()
    except OSError as error:
        if error.errno not in _FULL:
            return
        message = f"{error.strerror}, which ended a server; free some space and resume the run"
        raise UserError(message, log) from error


LOCAL = ("chrt", "env", "ionice", "nice", "numactl", "prlimit", "setarch", "stdbuf", "taskset")
"""Words in front of a launch that leave it on this machine, with its files and GPUs."""


def refuse_missing_program(command: Sequence[str], document: Document) -> None:
    """Raises UserError where the first word is no program of this machine.

    Launches only: a plan may be made on a machine without the program.
    """
    if not command or shutil.which(command[0]) is not None:
        return
    message = f"there is no program '{command[0]}' on this machine, install it or write its path"
    raise document.error(("engine", "command", 0), message)
