"""A launch on a node: its folder there, the process that performs it, and its log.

Ray ends its workers by SIGKILL when the driver or the node's raylet goes, and their children with
them, which would leave a server that holds the GPUs. So the launch process is no child of Ray's.
This module needs no Ray.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.core.errors import UserError
from tuner.execution.launch_process import LaunchEnd, LaunchOrder, LaunchProcess
from tuner.execution.progress import Phase
from tuner.runs.crash_recovery import try_lock
from tuner.runs.run_folder import RunFolder
from tuner.server.pid_file import end_left_behind

POLL_S = 0.25
PART_BYTES = 4 * 2**20
"""Of a log at a time."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
_LOCK = "held"
_OUTPUT = "words"
"""File with what the launch process itself prints."""
_THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True)
class Begun:
    """Where a launch is."""

    host: str
    node: str
    """Ray's id of the node."""
    gpus: tuple[str, ...]
    """The GPUs that are used, as CUDA_VISIBLE_DEVICES has them."""


@dataclass(frozen=True)
class LogPart:
    """A piece of the server's log. The log ends with it for now."""

    start: int
    """Bytes before it."""
    data: bytes


class NodeLaunch:
    """One launch on this node.

    `messages` is read once. `end` and `abort` may be called from another thread meanwhile.
    """

    def __init__(self, order: LaunchOrder, environment: Mapping[str, str]) -> None:
        """Start the process. Raises UserError if there is no folder for it to work in."""
        clear_left_behind()
        self._folder = Path(tempfile.mkdtemp(prefix="launch-", dir=_parent()))
        run = RunFolder(self._folder)
        run.logs.mkdir()
        self._log = run.log_file(order.job.launch_id)
        self._sent = 0
        unlocked = self._folder / f"{_LOCK}.new"
        self._lock = unlocked.open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # the process has it too: free when both are gone
        unlocked.rename(self._folder / _LOCK)
        order = replace(order, context=replace(order.context, run=run), scratch=self._folder)
        with (self._folder / _OUTPUT).open("wb") as output:
            self._process = LaunchProcess(
                order, environment, detached=True, output=output, pass_fds=(self._lock.fileno(),)
            )

    def messages(self) -> Iterator[Phase | LogPart | LaunchEnd]:
        """Yield what the launch reports, and its log as it grows. A LaunchEnd is the last."""
        end: LaunchEnd | None = None
        while end is None:
            if self._process.pipe.poll(POLL_S):
                message = self._process.receive()
                if isinstance(message, LaunchEnd):
                    end = message
                else:
                    yield message
                    continue
            yield from self._grown()
        self._process.bury()
        self._sent = 0
        yield from self._grown()  # once more: secrets are hidden in it when the server has ended
        if end.why is not None or end.is_bug:
            end = LaunchEnd(why=self._why())
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.close()
        yield end

    def abort(self) -> None:
        """End its server. The launch then fails, and its result comes."""
        self._process.abort()

    def end(self) -> None:
        """End the launch, its server first."""
        self._process.end()

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

    def _why(self) -> str:
        """Return what is known of a process that is gone."""
        lines: list[str] = []
        with suppress(OSError):
            text = (self._folder / _OUTPUT).read_text(errors="replace")
            lines = text.strip().splitlines()
        last = f": {lines[-1]}" if lines else ", without a word"
        return f"the process that launched and measured is gone{last}"


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
