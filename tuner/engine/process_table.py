"""Questions to the table of processes."""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress

import psutil


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
