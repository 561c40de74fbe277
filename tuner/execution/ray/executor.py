"""A Ray cluster as places: an actor for each launch, which asks Ray for the GPUs that it takes.

Ray decides where a launch runs and tells when a node is gone; it tries nothing again by itself,
since a second launch is another job with a log of its own (trial/bench.py).
"""

import re
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from tuner.core.errors import UserError
from tuner.execution.executor import FinishedJob, LaunchJob, bare, report_over
from tuner.execution.launch import LaunchContext
from tuner.execution.progress import Phase
from tuner.execution.ray.actor import OnNode
from tuner.execution.ray.launch import NodePart, RunningLaunch
from tuner.execution.ray.messages import Begun, LaunchOrder, LogPart, Over
from tuner.execution.ray.nodes import A_LITTLE, Cluster
from tuner.server.base import Rank

ALONE = ("baseline", "confirm", "plain")
"""Roles whose launches have their nodes to themselves."""
WAIT_S = 1.0
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
END_LIMIT_S = 45.0
"""For nodes to end their servers and send the rest of their logs."""


class RayPlaces:
    """See `trial.places.Places`. `report` hears phases, with the host in front where it is known.

    Only while joined (`nodes.join`)."""

    def __init__(
        self, rig: LaunchContext, report: Callable[[Phase], None], cluster: Cluster
    ) -> None:
        self._rig, self._cluster, self._report = rig, cluster, report
        self._bare = bare(rig)
        self._running: list[RunningLaunch] = []
        self._through: deque[FinishedJob] = deque()
        self._lost_on: set[str] = set()

    @property
    def count(self) -> int:
        """Launches that the cluster's nodes hold now."""
        return max(1, self._cluster.need.at_a_time(self._nodes()))

    def submit(self, job: LaunchJob) -> None:
        """Have Ray place an actor for each node of the launch."""
        need = self._cluster.need
        alone = job.phase.role in ALONE
        running = RunningLaunch(job, self._rig.run)
        actors = self._actors(running, alone, again=job.phase.again is not None)
        address = actors[0].address.remote() if need.nodes > 1 else None
        for number, actor in enumerate(actors):
            rank = Rank(number, "") if need.nodes > 1 else None
            order = LaunchOrder(self._bare, job, need.gpus, rank)
            said = actor.perform.options(num_returns="streaming").remote(order, address)
            running.parts.append(NodePart(number, actor, said))
        self._running.append(running)

    def wait(self) -> FinishedJob:
        """The next job that is through, wherever it ran."""
        while not self._through:
            self._hear(WAIT_S)
            self._lose_what_fits_nowhere()
        finished = self._through.popleft()
        report_over(finished, self._report)
        return finished

    def close(self) -> list[FinishedJob]:
        """End every launch, its servers first, and fetch the rest of the logs."""
        for running in self._running:
            running.is_ending = True
            for part in running.parts:
                with suppress(RayError):
                    part.actor.end.remote()
        deadline = time.monotonic() + END_LIMIT_S
        ended = list(self._running)
        while self._running and time.monotonic() < deadline:
            with suppress(UserError):
                self._hear(WAIT_S)
        for running in self._running:
            running.bury()
        self._running.clear()
        through = [each for each in self._through if not _was_cut_off(each, ended)]
        self._through.clear()
        return through

    def _actors(self, running: RunningLaunch, alone: bool, again: bool) -> list[Any]:
        """An actor for each node that the launch takes."""
        need = self._cluster.need
        only = {need.resource: A_LITTLE} if need.resource is not None else {}
        gpus = self._whole_node() if alone else need.gpus

        def actor(at: Any) -> Any:
            options = ray.remote(OnNode).options(
                num_cpus=1,
                num_gpus=gpus,
                resources=only or None,
                max_restarts=0,
                max_concurrency=2,
                scheduling_strategy=at,
            )
            return options.remote()

        if need.nodes == 1:
            running.asked = self._node(alone, again)
            if running.asked is None:
                return [actor("SPREAD")]
            return [actor(NodeAffinitySchedulingStrategy(running.asked, soft=not alone))]
        running.group = placement_group(
            [{"GPU": gpus, "CPU": 1, **only}] * need.nodes, strategy="STRICT_SPREAD"
        )
        return [
            actor(
                PlacementGroupSchedulingStrategy(running.group, placement_group_bundle_index=number)
            )
            for number in range(need.nodes)
        ]

    def _node(self, alone: bool, again: bool) -> str | None:
        """Where a launch on one node goes: alone on the home node, else wherever GPUs are free
        (None); after a loss on a node that has lost none, if there is one."""
        nodes = [node["NodeID"] for node in self._nodes() if self._cluster.need.slots(node)]
        well = [node for node in nodes if node not in self._lost_on]
        home = self._cluster.home
        if alone:
            return home if home in well else next(iter(well or nodes), home)
        return well[0] if again and well and len(well) < len(nodes) else None

    def _whole_node(self) -> int:
        """GPUs of the smallest node that holds a launch."""
        need = self._cluster.need
        held = [int(n["Resources"]["GPU"]) for n in self._nodes() if need.slots(n)]
        return min(held, default=need.gpus)

    @staticmethod
    def _nodes() -> list[dict[str, Any]]:
        return sorted(ray.nodes(), key=lambda n: (n["NodeManagerHostname"], n["NodeID"]))

    def _hear(self, limit_s: float) -> None:
        """What is said within the limit. Raises UserError where a job did."""
        talking = {part.said: (each, part) for each in self._running for part in each.talking}
        if not talking:
            return
        ready, _ = ray.wait(list(talking), num_returns=1, timeout=limit_s)
        for said in ready:
            running, part = talking[said]
            try:
                message = ray.get(next(said))
            except (RayError, StopIteration) as error:
                if isinstance(error, RayError):
                    self._lost_on |= {node for node in (part.node, running.asked) if node}
                message = Over(why=_gone(error, part))
            self._take(running, part, message)

    def _take(
        self, running: RunningLaunch, part: NodePart, message: Begun | Phase | LogPart | Over
    ) -> None:
        if isinstance(message, Phase):
            self._report(replace(message, place=running.name))
        elif isinstance(message, LogPart):
            running.write(part, message)
        elif isinstance(message, Begun):
            running.begun(part, message, self._running)
            part.name = self._cluster.name_of(message)
        else:
            running.over(part, message)
            if running.is_through:
                self._end(running)

    def _end(self, running: RunningLaunch) -> None:
        running.bury()
        self._running.remove(running)
        if (refused := running.refused) is not None:
            raise refused
        self._through.append(FinishedJob(running.job, running.performed()))

    def _lose_what_fits_nowhere(self) -> None:
        """A launch that no node is left for would wait for ever."""
        waiting = [each for each in self._running if not each.has_begun]
        if waiting and self._cluster.need.at_a_time(self._nodes()) < 1:
            why = f"the cluster has {self._cluster.need.words()} no longer"
            for running in waiting:
                for part in list(running.talking):
                    running.over(part, Over(why=why))
                self._end(running)


def _was_cut_off(finished: FinishedJob, ended: list[RunningLaunch]) -> bool:
    """Ended by `close` itself: nothing to record."""
    return any(each.job is finished.job and each.was_cut_off for each in ended)


def _gone(error: BaseException, part: NodePart) -> str:
    """What is known of a part whose worker or node is gone."""
    lines = _COLOURS.sub("", str(error)).strip().splitlines() or ["no more is known"]
    first = lines[-1 if "creation task" in lines[0] else 0]
    where = f"on {part.host}" if part.host is not None else "before it had a node"
    return (
        f"the worker that launched and measured is gone, {where} ({type(error).__name__}: {first})"
    )
