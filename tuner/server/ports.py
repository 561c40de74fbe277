"""TCP ports for servers on this machine."""

import errno
import random
import socket
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from tuner.core.errors import EngineFailure, Failure

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


class PortClaims:
    """Ports that a launch has for itself, from before its server binds them until it has ended.

    A name that only one process of the network namespace can have stands for each (an abstract
    socket, which the kernel drops with its process), so no two launches of any specbench here are
    ever given the same port.
    """

    def __init__(self) -> None:
        self._held: dict[int, socket.socket] = {}

    @property
    def ports(self) -> tuple[int, ...]:
        """In the order in which they were claimed."""
        return tuple(self._held)

    def claim(self) -> int:
        """A free port that is nobody else's. Raises EngineFailure(PORT_IN_USE)."""
        for _ in range(_TRIES):
            port = free_port(but_not=self.ports)
            if self._take(port):
                return port
        raise EngineFailure(Failure.PORT_IN_USE, "every port that was tried is another launch's")

    def _take(self, port: int) -> bool:
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            name.bind(f"\0specbench-port-{port}")
        except OSError as error:
            name.close()
            if error.errno == errno.EADDRINUSE:
                return False
            name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)  # no such names here
        self._held[port] = name
        return True

    def release(self) -> None:
        """Others may have them; safe to repeat."""
        for name in self._held.values():
            with suppress(OSError):
                name.close()


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
