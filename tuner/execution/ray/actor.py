"""The Ray actor of one launch, or of one rank of it. Only this module and its users import ray."""

import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import ray

from tuner.core.errors import UserError
from tuner.execution.progress import Phase
from tuner.execution.ray.messages import Begun, LaunchOrder, LogPart, Over
from tuner.execution.ray.node_agent import (
    VISIBLE,
    NodeLaunch,
    environment_of_parent,
    own_environment,
)
from tuner.server.ports import free_port


class OnNode:
    """One launch, or one rank of it. `perform` runs in one of the actor's threads, the others'
    calls in another."""

    def __init__(self) -> None:
        self._held: NodeLaunch | None = None
        self._lock = threading.Lock()
        self._is_ended = self._is_aborted = False

    def address(self) -> str:
        """`HOST:PORT` of this node, free now, for the ranks of a server to meet at."""
        return f"{ray.util.get_node_ip_address()}:{free_port()}"

    def perform(
        self, order: LaunchOrder, address: str | None = None
    ) -> Iterator[Begun | Phase | LogPart | Over]:
        """Launch, measure and stop; `address` is where the ranks of one server meet."""
        if order.rank is not None and address is not None:
            order = replace(order, rank=replace(order.rank, address=address))
        environment = own_environment(os.environ, environment_of_parent())
        gpus = tuple(each for each in os.environ.get(VISIBLE, "").split(",") if each)
        gpus = gpus[: order.gpus]
        environment[VISIBLE] = ",".join(gpus)
        yield Begun(socket.gethostname(), ray.get_runtime_context().get_node_id(), gpus)
        with self._lock:
            if self._is_ended:
                yield Over()
                return
            try:
                self._held = NodeLaunch(order, environment)
            except UserError as error:
                yield Over(refused=error)
                return
            if self._is_aborted:
                self._held.abort()
        yield from self._held.messages()

    def abort(self) -> None:
        """End the server: another rank of it is gone."""
        with self._lock:
            self._is_aborted = True
            if self._held is not None:
                self._held.abort()

    def end(self) -> None:
        """End it, its server first; `perform` then says its last."""
        with self._lock:
            self._is_ended = True
            if self._held is not None:
                self._held.end()
