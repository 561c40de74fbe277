"""The Ray actor of one launch, or of one rank of it. Only this module and its users import ray."""

import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import ray

from tuner.core.errors import UserError
from tuner.execution.launch_process import LaunchEnd, LaunchOrder
from tuner.execution.progress import Phase
from tuner.execution.ray.node_launch import (
    VISIBLE,
    Begun,
    LogPart,
    NodeLaunch,
    environment_of_parent,
    own_environment,
)
from tuner.server.ports import free_port


class NodeActor:
    """One launch, or one rank of it. `perform` runs in one of the actor's threads, the calls of
    `abort` and `end` in another."""

    def __init__(self) -> None:
        self._launch: NodeLaunch | None = None
        self._lock = threading.Lock()
        self._is_ended = self._is_aborted = False

    def address(self) -> str:
        """Return `HOST:PORT` of this node, free now, for the ranks of a server to meet at."""
        return f"{ray.util.get_node_ip_address()}:{free_port()}"

    def perform(
        self, order: LaunchOrder, gpus: int, address: str | None = None
    ) -> Iterator[Begun | Phase | LogPart | LaunchEnd]:
        """Launch, measure and stop, on the first so many of the GPUs that Ray gave.

        `address` is where the ranks of one server meet.
        """
        rank = order.context.rank
        if rank is not None and address is not None:
            context = replace(order.context, rank=replace(rank, address=address))
            order = replace(order, context=context)
        environment = own_environment(os.environ, environment_of_parent())
        given = tuple(name for name in os.environ.get(VISIBLE, "").split(",") if name)
        used = given[:gpus]  # a launch alone is given more
        environment[VISIBLE] = ",".join(used)
        yield Begun(socket.gethostname(), ray.get_runtime_context().get_node_id(), used)
        with self._lock:
            if self._is_ended:
                yield LaunchEnd()
                return
            try:
                self._launch = NodeLaunch(order, environment)
            except UserError as error:
                yield LaunchEnd(error=error)
                return
            if self._is_aborted:
                self._launch.abort()
        yield from self._launch.messages()

    def abort(self) -> None:
        """End the server: another rank of it is gone."""
        with self._lock:
            self._is_aborted = True
            if self._launch is not None:
                self._launch.abort()

    def end(self) -> None:
        """End the launch, its server first. `perform` then yields its last message."""
        with self._lock:
            self._is_ended = True
            if self._launch is not None:
                self._launch.end()
