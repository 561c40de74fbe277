"""Which processes a launch has, on disk beside its log while they run.

SIGKILL, the OOM killer or a lost node leave specbench no time to stop its server, which then holds
the GPUs' memory. A later specbench reads the footprint and ends what is left of the launch: only
processes that carry its mark in their environment, or whose id and start time are the recorded
ones, and their descendants.
"""

import json
import logging
import os
import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tuner.core.files import read_json, write_text
from tuner.server.log_file import ServerLog

MARK = "SPECBENCH_LAUNCH"
"""The variable that every process of a launch inherits; its value is unique to the launch."""
SUFFIX = ".running.json"
"""Of the file that is beside a launch's log from just before its start until its end."""
TERM_GRACE_S = 4.0
KILL_LIMIT_S = 6.0

_log = logging.getLogger(__name__)


class Footprint:
    """The file of one launch."""

    def __init__(self, log: Path, mark: str) -> None:
        self._path = log.with_suffix(SUFFIX)
        self._mark = mark
        self._written: frozenset[int] | None = None

    def write(self, pids: Iterable[int] = ()) -> None:
        """Record these processes, without those that are gone. Raises OSError."""
        wanted = frozenset(pids)
        if wanted == self._written:
            return
        ticks = {pid: _start_ticks(pid) for pid in sorted(wanted)}
        data = {
            "mark": self._mark,
            "host": socket.gethostname(),
            "where": _where(),
            "folder": [str(self._path.parent.resolve()), *_identity(self._path.parent)],
            "processes": [[pid, when] for pid, when in ticks.items() if when is not None],
        }
        write_text(self._path, json.dumps(data) + "\n")
        self._written = wanted

    def update(self, pids: Iterable[int]) -> None:
        """`write` while a server runs, which a full disk must not end."""
        try:
            self.write(pids)
        except OSError as error:
            _log.warning("%s: %s", self._path, error.strerror)

    def remove(self) -> None:
        """Every process has ended."""
        with suppress(OSError):  # a folder that became read-only: nothing in the file lives
            self._path.unlink(missing_ok=True)


def footprints(logs: Path) -> list[Path]:
    """The footprints of launches that were never stopped; [] where there is no such folder."""
    return sorted(file for file in logs.glob(f"*{SUFFIX}") if file.is_file())


def end_left_behind(footprint: Path) -> tuple[int, list[int]]:
    """End what is left of a launch whose specbench is gone, and remove the footprint.

    Returns how many processes were ended and the ids of those that survive SIGKILL, for which the
    footprint stays. A file that is no footprint names no process. Another host's stays as it is:
    on a folder that hosts share it is the only record of a server over there.
    """
    if is_another_hosts(footprint):
        return 0, []
    mark, identities = _read(footprint)
    owner = _owner(footprint)
    ended: set[psutil.Process] = set()
    began = time.monotonic()
    while members := _left(mark, identities, owner):
        waited = time.monotonic() - began
        if waited > TERM_GRACE_S + KILL_LIMIT_S:
            return len(ended - members), sorted(process.pid for process in members)
        for process in members:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if waited > TERM_GRACE_S:
                    process.kill()
                elif process not in ended:
                    process.terminate()
        ended |= members
        time.sleep(0.05)
    ServerLog(footprint.with_name(footprint.name.removesuffix(SUFFIX) + ".log")).seal()
    with suppress(OSError):
        footprint.unlink(missing_ok=True)
    return len(ended), []


def processes_left(footprint: Path) -> list[int]:
    """The ids of what `end_left_behind` would end; ends nothing."""
    return sorted(process.pid for process in _left(*_read(footprint), _owner(footprint)))


def _owner(footprint: Path) -> int | None:
    """Whose footprint it is; None: it is gone."""
    try:
        return footprint.lstat().st_uid
    except OSError:
        return None


def is_another_hosts(footprint: Path) -> bool:
    """The launch was on another host, which alone knows what is left of it."""
    try:
        host = read_json(footprint)["host"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return False
    return bool(host != socket.gethostname())


def _read(footprint: Path) -> tuple[str | None, list[tuple[int, int]]]:
    """The launch's mark, and its processes where they could still be on this machine."""
    try:
        data: Any = read_json(footprint)
        mark, where = str(data["mark"]), data["where"]
        identities = [(int(pid), int(ticks)) for pid, ticks in data["processes"]]
        if _is_copied(footprint, data.get("folder")):
            return None, []
    except (OSError, ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None, []
    return mark, identities if where is not None and where == _where() else []


def _is_copied(footprint: Path, folder: Any) -> bool:
    """It lies in a copy of a run folder that is where it was: the launch is that one's, which may
    be at work. One that was moved takes its launches along."""
    if not isinstance(folder, list) or not folder:  # an older specbench's
        return False
    try:
        original, own = _identity(Path(str(folder[0]))), _identity(footprint.parent)
    except (OSError, ValueError):
        return False
    return original == folder[1:] != own


def _identity(folder: Path) -> list[int]:
    """What a folder keeps when it is moved, and no copy of it has. Raises OSError."""
    found = folder.stat()
    return [found.st_dev, found.st_ino]


def _left(
    mark: str | None, identities: Iterable[tuple[int, int]], owner: int | None
) -> set[psutil.Process]:
    """Living processes of the launch. Only of whoever wrote the footprint: in a folder that users
    share, one could else have another's processes ended."""
    roots = {pid for pid, ticks in identities if _start_ticks(pid) == ticks}
    everyone = {process.pid: process for process in psutil.process_iter()}
    for pid, process in everyone.items():
        with suppress(psutil.Error, OSError):
            if mark is not None and process.environ().get(MARK) == mark:
                roots.add(pid)
    found = with_descendants(roots, everyone)
    return {each for each in found if is_alive(each) and _is_of(each, owner)}


def _is_of(process: psutil.Process, user: int | None) -> bool:
    try:
        return process.uids().real == user
    except psutil.Error:
        return False


def _start_ticks(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process; with its id, a name used once per boot."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


def _where() -> str | None:
    """This boot of this machine and this container's table of processes; None: not known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115
    except OSError:
        return None


def is_alive(process: psutil.Process) -> bool:
    """It runs, and under this id it is still the same process."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def with_descendants(
    roots: Iterable[int], everyone: Mapping[int, psutil.Process]
) -> set[psutil.Process]:
    """These processes and all that descend from them, without the process that asks."""
    children: dict[int, list[int]] = {}
    for pid, process in everyone.items():
        with suppress(psutil.Error):
            children.setdefault(process.ppid(), []).append(pid)
    waiting = list(roots)
    found: set[int] = set()
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children.get(pid, [])
    found.discard(os.getpid())
    return {everyone[pid] for pid in found if pid in everyone}
