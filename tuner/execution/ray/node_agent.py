"""The Ray worker's side of a launch: the folder on the node, the process that performs, its log."""

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tuner.core.errors import UserError
from tuner.execution.progress import Phase
from tuner.execution.ray.launch_process import ABORT
from tuner.execution.ray.messages import LaunchOrder, LogPart, Over
from tuner.runs.crash_recovery import try_lock
from tuner.runs.run_folder import RunFolder
from tuner.server.pid_file import end_left_behind

POLL_S = 0.25
PART_BYTES = 4 * 2**20
"""Of a log at a time."""
END_LIMIT_S = 30.0
VISIBLE = "CUDA_VISIBLE_DEVICES"
_LOCK = "held"
_THREADS = "OMP_NUM_THREADS"


class NodeLaunch:
    """One launch on this node. `messages` is to be gone through once; `end` and `abort` may be
    called from another thread meanwhile."""

    def __init__(self, order: LaunchOrder, environment: Mapping[str, str]) -> None:
        """Starts the process. Raises UserError where there is no folder for it to work in."""
        clear_left_behind()
        self._folder = Path(tempfile.mkdtemp(prefix="launch-", dir=_parent()))
        self._run = RunFolder(self._folder)
        self._run.logs.mkdir()
        self._log = self._run.log_file(order.job.launch_id)
        self._sent = 0
        self._is_ending = False
        unlocked = self._folder / f"{_LOCK}.new"
        lock = unlocked.open("wb")
        fcntl.flock(lock, fcntl.LOCK_EX)  # the process has it too: free when both are gone
        unlocked.rename(self._folder / _LOCK)
        self._lock = lock
        ours, theirs = socket.socketpair()
        with theirs, (self._folder / "words").open("wb") as words:
            subprocess.Popen(
                (sys.executable, "-m", "tuner.execution.ray.launch_process", str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                pass_fds=(theirs.fileno(), lock.fileno()),
            ).wait()
        self._pipe: Connection[Any, Any] = Connection(ours.detach())
        with suppress(OSError):  # it is gone already: `messages` finds that
            self._pipe.send(replace(order, rig=replace(order.rig, run=self._run)))

    def messages(self) -> Iterator[Phase | LogPart | Over]:
        """What it says, and its log as it grows; an Over is the last. Nothing runs after that."""
        over: Over | None = None
        while over is None:
            try:
                if self._pipe.poll(POLL_S):
                    said = self._pipe.recv()
                    if not isinstance(said, Over):
                        yield said
                        continue
                    over = said
            except (EOFError, OSError):
                over = Over(why=None if self._is_ending else self._last_lines())
            yield from self._grown()
        self._bury()
        yield from self._whole()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.close()
        yield over

    def abort(self) -> None:
        """End its server; what is performed fails then, and is told."""
        with suppress(OSError):
            self._pipe.send(ABORT)

    def end(self) -> None:
        """End it, its server first."""
        self._is_ending = True
        with suppress(OSError), socket.socket(fileno=os.dup(self._pipe.fileno())) as same:
            same.shutdown(socket.SHUT_WR)  # it reads the end, and can still say its last

    def _grown(self) -> Iterator[LogPart]:
        with suppress(OSError):
            size = self._log.stat().st_size
            if size < self._sent:  # it was cut
                self._sent = 0
            while self._sent < size:
                with self._log.open("rb") as file:
                    file.seek(self._sent)
                    data = file.read(PART_BYTES)
                if not data:
                    return
                yield LogPart(self._sent, data)
                self._sent += len(data)

    def _whole(self) -> Iterator[LogPart]:
        """Once more from its beginning: secrets are hidden in it when the server has ended."""
        self._sent = 0
        yield from self._grown()

    def _bury(self) -> None:
        """Wait until the process is gone, and end what it may have left."""
        deadline = time.monotonic() + END_LIMIT_S
        with suppress(EOFError, OSError):
            while self._pipe.poll(max(0.0, deadline - time.monotonic())):
                self._pipe.recv()
        self._pipe.close()
        for footprint in self._run.running:
            end_left_behind(footprint)

    def _last_lines(self) -> str:
        with suppress(OSError):
            said = (self._folder / "words").read_text(errors="replace").strip()
            if said:
                return f"the process that launched and measured is gone: {said.splitlines()[-1]}"
        return "the process that launched and measured is gone, without a word"


def clear_left_behind() -> None:
    """End what launches of this user left on this node whose processes are all gone."""
    for folder in _parent().glob("launch-*"):
        if (folder / _LOCK).exists() and _is_free(folder):
            for footprint in RunFolder(folder).running:
                end_left_behind(footprint)
            shutil.rmtree(folder, ignore_errors=True)


def own_environment(environ: Mapping[str, str], node: Mapping[str, str]) -> dict[str, str]:
    """The environment of servers: a Ray worker's `environ` without what Ray put there.

    `node`: of the raylet, the worker's parent. Ray sets OMP_NUM_THREADS to a worker's CPUs, which
    would slow a server down.
    """
    kept = {k: v for k, v in environ.items() if not k.startswith("RAY_") and k != _THREADS}
    return kept | ({_THREADS: node[_THREADS]} if _THREADS in node else {})


def environment_of_parent() -> dict[str, str]:
    """The environment that this process's parent was started with; {} where it is hidden."""
    with suppress(OSError):
        text = Path(f"/proc/{os.getppid()}/environ").read_bytes().decode(errors="surrogateescape")
        return dict(each.partition("=")[::2] for each in text.split("\0") if "=" in each)
    return {}


def _is_free(folder: Path) -> bool:
    """Nobody holds the folder's lock."""
    try:
        with (folder / _LOCK).open("rb+", buffering=0) as file:
            return try_lock(file)
    except OSError:
        return True


def _parent() -> Path:
    """This user's folder for launches, and nobody else's. Raises UserError."""
    path = Path(tempfile.gettempdir()) / f"specbench-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        owner = path.lstat().st_uid
    except OSError as error:
        message = f"{error.strerror}, set TMPDIR to a folder that can be written to"
        raise UserError(message, path) from error
    if owner != os.getuid() or path.is_symlink():
        raise UserError("this is another user's, remove it or set TMPDIR", path)
    return path
