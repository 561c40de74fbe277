"""A Ray cluster of three nodes on this machine, with GPUs that are only counted, on 127.0.0.1."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.seals import SEAL, left_behind

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # off: every address is 127.0.0.1
    "RAY_DISABLE_IMPORT_WARNING": "1",
}
os.environ.update(SETTINGS)  # ray reads them when it is imported
GPUS = 4
MEMORY = 80 * 2**20


class LocalCluster:
    """`address` is what `--ray` takes."""

    def __init__(self) -> None:
        self._seal = uuid.uuid4().hex
        os.environ[SEAL] = self._seal
        from ray.cluster_utils import Cluster

        self._cluster = Cluster()
        self._head = self._cluster.add_node(**_node(0), include_dashboard=False)
        self._nodes = [self._cluster.add_node(**_node(GPUS)) for _ in range(2)]
        self.address = str(self._cluster.address)

    @property
    def ids(self) -> list[str]:
        """Ray's ids of the nodes with GPUs."""
        return [str(each.node_id) for each in self._nodes]

    def left(self) -> list[list[str]]:
        """The command lines of launches' processes on any node."""
        words = ("tuner.simulator", "tuner.execution.launch_process")
        return [line for line in left_behind(self._seal) if any(each in line for each in words)]

    def kill(self, node_id: str) -> None:
        """As a machine that loses power."""
        lost = next(each for each in self._nodes if each.node_id == node_id)
        self._cluster.remove_node(lost, allow_graceful=False)
        self._nodes.remove(lost)

    def complete(self) -> None:
        """Another node in the place of each that was killed."""
        while len(self._nodes) < 2:
            self._nodes.append(self._cluster.add_node(**_node(GPUS)))

    def end(self) -> None:
        self._cluster.shutdown()
        os.environ.pop(SEAL, None)


def _node(gpus: int) -> dict[str, Any]:
    return {
        "num_cpus": 4,
        "num_gpus": gpus,
        "object_store_memory": MEMORY,
        "node_ip_address": "127.0.0.1",
    }


@contextmanager
def joined(cluster: LocalCluster) -> Iterator[None]:
    """This process as a driver."""
    from tuner.execution.ray import nodes

    nodes.join(cluster.address)
    try:
        yield
    finally:
        nodes.leave()
