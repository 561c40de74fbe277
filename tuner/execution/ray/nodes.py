"""The nodes of a Ray cluster that a sweep's servers fit on, and clusters that are refused."""

import logging
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tuner import __version__
from tuner.config.reserved_flags import node_count
from tuner.config.schema import Sweep
from tuner.core.errors import UserError
from tuner.execution.ray.node_launch import Begun
from tuner.runs.gpu_lock import gpu_count
from tuner.runs.machine import machine_facts

REACH_LIMIT_S = 5.0
FACTS_LIMIT_S = 120.0
"""For a node to start a Python worker and report its facts."""
A_LITTLE = 0.0001
"""Amount of a resource that only decides where something may run."""
_COMPARED = ("driver", "cpu", "cores", "env")


@dataclass(frozen=True)
class Need:
    """What one launch takes."""

    gpus: int
    """On each of its nodes."""
    nodes: int = 1
    resource: str | None = None
    """A Ray resource that its nodes must have."""

    @classmethod
    def of(cls, sweep: Sweep, resource: str | None = None) -> "Need":
        """Return the need of the sweep's servers. Raises UserError if they need no GPUs."""
        nodes, gpus = node_count(sweep), gpu_count(sweep)
        if gpus < 1:
            raise UserError("--ray places servers by the GPUs that they need, and these need none")
        return cls(gpus // nodes, nodes, resource)

    def slots(self, node: Mapping[str, Any]) -> int:
        """Return the number of launches that fit on a node at the same time."""
        resources = node["Resources"]
        if not node["Alive"] or (self.resource is not None and self.resource not in resources):
            return 0
        return int(resources.get("GPU", 0)) // self.gpus

    def at_a_time(self, nodes: list[dict[str, Any]]) -> int:
        """Return the number of launches that fit on these nodes, each on `nodes` different ones."""
        slots = [self.slots(node) for node in nodes]
        fitting = 0
        while sum(min(each, fitting + 1) for each in slots) >= (fitting + 1) * self.nodes:
            fitting += 1
        return fitting

    def words(self) -> str:
        """Return `2 nodes with 8 GPUs each`."""
        gpus = f"{self.gpus} GPU{'s' if self.gpus > 1 else ''}"
        gpus += f" and the resource {self.resource}" if self.resource is not None else ""
        return f"a node with {gpus}" if self.nodes == 1 else f"{self.nodes} nodes with {gpus} each"


@dataclass(frozen=True)
class Cluster:
    """The part of a cluster that a sweep uses."""

    need: Need
    home: str
    """Ray's id of the node that baselines and confirmations run on."""
    machine: dict[str, Any]
    """Facts of that node, and in `nodes` those of all nodes: machine.json."""
    hosts: Mapping[str, str]
    """Host names by Ray's id of the node."""
    side_by_side: int
    """Number of launches on the node that holds the most."""
    notes: tuple[str, ...] = ()

    def words(self) -> str:
        """Return a sentence about the nodes."""
        gpus = sorted({gpu["name"] for gpu in self.machine["gpus"]}) or [
            "GPUs that NVML does not see"
        ]
        return (
            f"{len(self.hosts)} nodes of a Ray cluster with {', '.join(gpus)}: baselines and "
            f"confirmations run on {self.name_of_node(self.home)}, alone there"
        )

    def name_of_node(self, node: str) -> str:
        """Return the host's name, with the beginning of Ray's id if nodes share the host."""
        host = self.hosts.get(node, node)
        shared = sum(each == host for each in self.hosts.values()) > 1
        return f"{host}/{node[:6]}" if shared else host

    def name_of(self, begun: Begun) -> str:
        """Return the name of the node, with GPUs if several launches fit on a node."""
        name = self.name_of_node(begun.node) if begun.node in self.hosts else begun.host
        return f"{name}:{','.join(begun.gpus)}" if self.side_by_side > 1 else name


def join(address: str) -> None:
    """Connect to a cluster as its driver. Raises UserError if that fails."""
    wanted = "give HOST:PORT of `ray start --head`, or auto, and run specbench on one of its nodes"
    if "://" in address or address == "local":
        raise UserError(f"--ray {address} is no address of a cluster's head, {wanted}")
    if address != "auto":
        _reach(address, wanted)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, AssertionError, RayError, OSError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"--ray {address}: this cluster cannot be joined ({first}), {wanted}"
        ) from (error)


def leave() -> None:
    """Disconnect. What was started there ends."""
    with suppress(RayError):
        ray.shutdown()


def _reach(address: str, wanted: str) -> None:
    """Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise UserError(f"--ray {address} is no HOST:PORT, {wanted}")
    try:
        socket.create_connection((host, int(port)), REACH_LIMIT_S).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"--ray {address}: nothing answers there ({reason}), {wanted}") from error


def looked_at(sweep: Sweep, resource: str | None = None) -> Cluster:
    """Return the nodes that the sweep's servers fit on. Only while joined.

    Raises UserError if the nodes are too few, or if they differ in their GPUs or in specbench.
    """
    need = Need.of(sweep, resource)
    nodes = [node for node in ray.nodes() if need.slots(node)]
    if need.at_a_time(nodes) < 1:
        most = max(
            (int(n["Resources"].get("GPU", 0)) for n in ray.nodes() if n["Alive"]), default=0
        )
        raise UserError(
            f"a server needs {need.words()}, which this cluster does not have (the most that a "
            f"node has is {most}): change model.tp, or add nodes"
        )
    facts = _facts(nodes)
    for node, told in facts.items():
        if told["specbench"] != __version__:
            raise UserError(
                f"{told['hostname']} ({node[:8]}) has specbench {told['specbench']} and this is "
                f"{__version__}, install the same on every node"
            )
    _refuse_unlike(facts)
    home = min(facts, key=lambda node: (facts[node]["hostname"], node))
    machine = {**facts[home], "nodes": list(facts.values())}
    hosts = {node: str(told["hostname"]) for node, told in facts.items()}
    most = max(need.slots(node) for node in nodes)
    return Cluster(need, home, machine, hosts, most, tuple(_differences(facts)))


def _refuse_unlike(facts: Mapping[str, Mapping[str, Any]]) -> None:
    by_gpu: dict[str, list[str]] = {}
    for told in facts.values():
        names = sorted({gpu["name"] for gpu in told["gpus"]}) or ["none that NVML sees"]
        by_gpu.setdefault(", ".join(names), []).append(told["hostname"])
    if len(by_gpu) > 1:
        kinds = "; ".join(f"{gpu}: {', '.join(hosts)}" for gpu, hosts in sorted(by_gpu.items()))
        raise UserError(
            f"the cluster's nodes have different GPUs, whose speeds cannot be compared ({kinds}): "
            "choose one kind with --ray-resource NAME, such as accelerator_type:H200"
        )


def _differences(facts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the differences that may make one node faster than another one."""
    found = []
    for name in _COMPARED:
        values: dict[str, list[str]] = {}
        for told in facts.values():
            values.setdefault(str(told.get(name)), []).append(told["hostname"])
        if len(values) > 1:
            each = "; ".join(f"{value}: {', '.join(hosts)}" for value, hosts in values.items())
            found.append(f"the nodes differ in {name} ({each}): so may their speeds")
    return found


def _facts(nodes: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the facts of each node, by a task for each that Ray itself retries."""
    asked = {}
    for node in nodes:
        at = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        task = ray.remote(machine_facts).options(num_cpus=0, scheduling_strategy=at)
        asked[node["NodeID"]] = task.remote()
    facts = {}
    for node in nodes:
        host = node["NodeManagerHostname"]
        try:
            facts[node["NodeID"]] = ray.get(asked[node["NodeID"]], timeout=FACTS_LIMIT_S)
        except RayError as error:
            last = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            raise UserError(
                f"{host} cannot run specbench ({last}): install specbench {__version__} for the "
                "Python of its `ray start`"
            ) from error
    return facts
