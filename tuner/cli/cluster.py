"""`--ray`: the cluster that launches are performed on."""

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tuner.config.loader import LoadedSweep
from tuner.config.reserved_flags import NNODES, node_count
from tuner.core.errors import UserError
from tuner.execution.executor import ExecutorFactory
from tuner.execution.request_plan import writes_answers
from tuner.execution.slots import lay_out_slots


@dataclass(frozen=True)
class Elsewhere:
    """Where launches are performed; with nothing in it: on this machine."""

    executor: ExecutorFactory | None = None
    machine: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()

    @property
    def gpu_gib(self) -> float | None:
        """Memory of the smallest GPU there, where it is known."""
        gpus = [] if self.machine is None else self.machine["gpus"]
        return min((float(gpu["memory_gib"]) for gpu in gpus), default=None)


def refuse_unplaced(loaded: LoadedSweep, address: str | None, resource: str | None) -> None:
    """Raises UserError where launches of the sweep have no place, with or without `--ray`."""
    document = loaded.document
    if address is None:
        if resource is not None:
            raise UserError("--ray-resource chooses nodes of a cluster, give --ray ADDRESS too")
        if (nodes := node_count(loaded.sweep)) > 1:
            raise document.error(
                ("server", "flags", NNODES),
                f"a server on {nodes} nodes is launched by a cluster's Ray: give --ray ADDRESS, or "
                "remove nnodes",
            )
        lay_out_slots(loaded, os.environ)
    elif not loaded.sweep.engine.launches_servers:
        raise document.error(
            ("engine", "kind"), "an endpoint is launched by nobody, leave --ray out"
        )
    elif loaded.sweep.slots != 1:
        raise document.error(
            ("slots",), "slots are of one machine, and Ray places launches itself: remove slots"
        )
    elif writes_answers(loaded):
        raise document.error(
            ("workload", "turns"),
            "the answers before later turns would be written by a server here and not on the "
            "cluster: write turns: first, give prompts that have them, or a run's as answers",
        )
    elif importlib.util.find_spec("ray") is None:
        raise UserError(
            "--ray needs Ray, in the cluster's version: pip install 'sglang-specbench[ray]'"
        )


@contextmanager
def joined(loaded: LoadedSweep, address: str | None, resource: str | None) -> Iterator[Elsewhere]:
    """The cluster at `address` until the block is through; this machine for None.

    Raises UserError where it cannot be reached or has no place for the sweep's servers.
    """
    if address is None:
        yield Elsewhere()
        return
    from tuner.execution.ray.executor import RayExecutor
    from tuner.execution.ray.nodes import join, leave, looked_at

    join(address)
    try:
        cluster = looked_at(loaded.sweep, resource)
        yield Elsewhere(
            partial(RayExecutor, cluster=cluster),
            cluster.machine,
            (cluster.words(), *cluster.notes),
        )
    finally:
        leave()
