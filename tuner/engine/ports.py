"""TCP ports for servers on this machine."""

import random
import socket
import time
from collections.abc import Collection
from pathlib import Path

from tuner.errors import EngineFailure, Failure

_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 12000
_TRIES = 200


def free_port(but_not: Collection[int] = ()) -> int:
    """A port that nothing listens on, below the range that outgoing connections draw from.

    A server binds its port only when the model is loaded; a port of the kernel's own range could
    go to somebody's outgoing connection in those minutes. Raises EngineFailure(PORT_IN_USE).
    """
    draw = random.SystemRandom()
    top = max(_first_ephemeral(), _LOWEST + 1000)
    for _ in range(_TRIES):
        port = draw.randrange(_LOWEST, top)
        if port not in but_not and is_free(port):
            return port
    raise EngineFailure(Failure.PORT_IN_USE, f"no free port between {_LOWEST} and {top}")


def is_free(port: int) -> bool:
    """True where a server could bind the port on every address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections of an ended one that linger in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def wait_until_free(ports: Collection[int], limit_s: float) -> bool:
    """True as soon as all ports are free, False where they are not after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while not all(map(is_free, ports)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _first_ephemeral() -> int:
    try:
        return int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32768
