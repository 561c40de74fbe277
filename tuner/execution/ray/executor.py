"""The executor on a Ray cluster: an actor for each node of a launch, which takes GPUs from Ray.

Ray decides where a launch runs and reports a node that is gone. It retries nothing by itself, since
a second launch is another job with a log of its own.
"""

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from tuner.core.errors import EngineFailure, Failure
from tuner.execution.executor import LaunchFuture
from tuner.execution.launch import LaunchContext, LaunchJob, LaunchResult, lost, portable
from tuner.execution.launch_process import LaunchEnd, LaunchOrder
from tuner.execution.progress import Phase
from tuner.execution.ray.actor import NodeActor
from tuner.execution.ray.node_launch import Begun, LogPart
from tuner.execution.ray.nodes import A_LITTLE, Cluster
from tuner.runs.records import PlaceLine
from tuner.runs.run_folder import RunFolder
from tuner.server.base import Rank
from tuner.server.log_file import ServerLog

ALONE = ("baseline", "confirm", "plain")
"""Roles whose launches have their nodes to themselves."""
WAIT_S = 1.0
END_LIMIT_S = 45.0
"""For nodes to end their servers and send the rest of their logs."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_VAGUE = (Failure.CRASH, Failure.CLIENT, Failure.HANG, Failure.LAUNCH_TIMEOUT)
"""What a server shows of the death of a rank on another node."""


@dataclass(eq=False)
class _NodePart:
    """What one node has of a launch."""

    number: int
    """The rank."""
    actor: Any
    messages: Any
    """As Ray streams them."""
    log: Path
    place: str = ""
    """Name of the node, with GPUs if several launches fit on one."""
    begun: Begun | None = None
    end: LaunchEnd | None = None

    def write(self, piece: LogPart) -> None:
        """Copy a piece of the log into the run folder."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("r+b" if self.log.exists() else "w+b") as file:
            file.seek(piece.start)
            file.write(piece.data)
            file.truncate()

    def call(self, method: str) -> None:
        """Call a method of the actor, if that still lives, without waiting."""
        with suppress(RayError):
            getattr(self.actor, method).remote()

    def cause(self) -> EngineFailure:
        """Return why this rank ended."""
        assert self.end is not None
        whose = f"rank {self.number} on {self.begun.host if self.begun else None}"
        failure = None if self.end.result is None else self.end.result.failure
        if failure is None:
            return EngineFailure(Failure.LOST, f"{whose}: {self.end.why or 'it was ended'}")
        return EngineFailure(failure.label, f"{whose}: {failure.message}", failure.log_tail)


@dataclass(eq=False)
class _RayLaunch:
    """A launch on one node, or on several."""

    job: LaunchJob
    future: LaunchFuture = field(default_factory=LaunchFuture)
    parts: list[_NodePart] = field(default_factory=list)
    group: Any = None
    """Ray's placement group, if it takes several nodes."""
    requested: str | None = None
    """Ray's id of the node that it was sent to; None: Ray chose one."""
    alone: bool = True
    """No other launch of the run was on its nodes meanwhile."""
    is_ending: bool = False
    _first_cause: EngineFailure | None = None
    """Why the first rank that ended had ended, while rank 0 still ran."""

    @property
    def active(self) -> list[_NodePart]:
        """Parts that have not sent their last message."""
        return [part for part in self.parts if part.end is None]

    @property
    def has_begun(self) -> bool:
        """Every part has its node."""
        return all(part.begun is not None for part in self.parts)

    @property
    def place(self) -> str:
        """Names of its places together."""
        return " + ".join(part.place for part in self.parts if part.place)

    def shares_node(self, begun: Begun) -> bool:
        """Return True if a part of it is on the same node."""
        nodes = [part.begun.node for part in self.parts if part.begun is not None]
        return begun.node in nodes

    def end_part(self, part: _NodePart, end: LaunchEnd) -> None:
        """A part has sent its last message. The other parts cannot go on without it."""
        part.end = end
        if end.why is not None:
            with suppress(OSError):
                ServerLog(part.log).seal()  # it came without what the node does at the end
        if part.number == 0:
            for other in self.active:
                other.call("end")
        elif self.parts[0].end is None:
            self._first_cause = self._first_cause or part.cause()
            self.parts[0].call("abort")

    def settle(self) -> None:
        """Give its resources back, and give the future its result. Nothing of it runs any more."""
        for part in self.parts:
            with suppress(RayError, ValueError):
                ray.kill(part.actor, no_restart=True)
        if self.group is not None:
            with suppress(RayError):
                remove_placement_group(self.group)
        ends = [part.end for part in self.parts if part.end is not None]
        error = next((end.error for end in ends if end.error is not None), None)
        end = self.parts[0].end
        if error is not None:
            self.future.set_exception(error)
        elif end is None or (self.is_ending and end.result is None):
            self.future.cancel()
        else:
            self.future.set_result(self._result(end))

    def _result(self, end: LaunchEnd) -> LaunchResult:
        """Return the result of rank 0, with another rank's end as its failure if that was first."""
        result = end.result
        if result is None:
            result = lost(self.job, end.why or "it was ended")
        elif result.failure is not None and (first := self._first_cause) is not None:
            is_vague = result.failure.label in _VAGUE and first.label not in _VAGUE
            if end.aborted or is_vague:
                result.failure = first
        begun = [part.begun for part in self.parts if part.begun is not None]
        if begun:
            gpus = [gpu for each in begun for gpu in each.gpus]
            result.place = PlaceLine(
                name=self.place, host=begun[0].host, gpus=gpus or None, alone=self.alone
            )
        return result


class RayExecutor:
    """See `Executor`. `report` gets phases with the host in `place` if it is known.

    Only while joined (`nodes.join`).
    """

    def __init__(
        self, context: LaunchContext, report: Callable[[Phase], None], cluster: Cluster
    ) -> None:
        self._context, self._cluster, self._report = portable(context), cluster, report
        self._running: list[_RayLaunch] = []
        self._lost_on: set[str] = set()

    @property
    def count(self) -> int:
        """Launches that the cluster's nodes hold now."""
        return max(1, self._cluster.need.at_a_time(_nodes()))

    def submit(self, job: LaunchJob) -> LaunchFuture:
        """Have Ray place an actor for each node of the launch."""
        need, running = self._cluster.need, _RayLaunch(job)
        actors = self._actors(running)
        address = actors[0].address.remote() if need.nodes > 1 else None
        for number, actor in enumerate(actors):
            rank = Rank(number, "") if need.nodes > 1 else None
            order = LaunchOrder(replace(self._context, rank=rank), job)
            perform = actor.perform.options(num_returns="streaming")
            messages = perform.remote(order, need.gpus, address)
            log = _log_file(self._context.run, job, number)
            running.parts.append(_NodePart(number, actor, messages, log))
        self._running.append(running)
        return running.future

    def wait(self, futures: Sequence[LaunchFuture]) -> LaunchFuture:
        """Return one of the futures that is done, wherever it ran."""
        while not (done := [future for future in futures if future.done()]):
            self._receive(WAIT_S)
            self._lose_what_fits_nowhere()
        return done[0]

    def close(self) -> None:
        """End every launch, its servers first, and fetch the rest of the logs."""
        for running in self._running:
            running.is_ending = True
            for part in running.parts:
                part.call("end")
        deadline = time.monotonic() + END_LIMIT_S
        while self._running and time.monotonic() < deadline:
            self._receive(WAIT_S)
        for running in list(self._running):
            self._settle(running)

    def _actors(self, running: _RayLaunch) -> list[Any]:
        """Return an actor for each node that the launch takes."""
        need, alone = self._cluster.need, running.job.phase.role in ALONE
        only = {need.resource: A_LITTLE} if need.resource is not None else {}
        gpus = self._whole_node() if alone else need.gpus

        def actor(at: Any) -> Any:
            options = ray.remote(NodeActor).options(
                num_cpus=1,
                num_gpus=gpus,
                resources=only or None,
                max_restarts=0,
                max_concurrency=2,
                scheduling_strategy=at,
            )
            return options.remote()

        if need.nodes == 1:
            node = self._node(alone, again=running.job.phase.again is not None)
            running.requested = node
            if node is None:
                return [actor("SPREAD")]
            return [actor(NodeAffinitySchedulingStrategy(node, soft=not alone))]
        bundles = [{"GPU": gpus, "CPU": 1, **only}] * need.nodes
        group = running.group = placement_group(bundles, strategy="STRICT_SPREAD")
        return [
            actor(PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number))
            for number in range(need.nodes)
        ]

    def _node(self, alone: bool, again: bool) -> str | None:
        """Return the node for a launch on one node. None: where GPUs are free.

        A launch alone goes to the home node. After a loss it goes to a node that has lost none, if
        there is one.
        """
        nodes = [node["NodeID"] for node in _nodes() if self._cluster.need.slots(node)]
        well = [node for node in nodes if node not in self._lost_on]
        home = self._cluster.home
        if alone:
            return home if home in well else next(iter(well or nodes), home)
        return well[0] if again and well and len(well) < len(nodes) else None

    def _whole_node(self) -> int:
        """Return the GPUs of the smallest node that holds a launch."""
        need = self._cluster.need
        held = [int(node["Resources"]["GPU"]) for node in _nodes() if need.slots(node)]
        return min(held, default=need.gpus)

    def _receive(self, limit_s: float) -> None:
        """Take what comes within the limit."""
        active = {part.messages: (each, part) for each in self._running for part in each.active}
        if not active:
            return
        ready, _ = ray.wait(list(active), num_returns=1, timeout=limit_s)
        for messages in ready:
            running, part = active[messages]
            try:
                message = ray.get(next(messages))
            except (RayError, StopIteration) as error:
                if isinstance(error, RayError):
                    node = part.begun.node if part.begun is not None else None
                    self._lost_on |= {name for name in (node, running.requested) if name}
                message = LaunchEnd(why=_describe_loss(error, part))
            self._take(running, part, message)

    def _take(
        self, running: _RayLaunch, part: _NodePart, message: Begun | Phase | LogPart | LaunchEnd
    ) -> None:
        if isinstance(message, Phase):
            self._report(replace(message, place=running.place))
        elif isinstance(message, LogPart):
            part.write(message)
        elif isinstance(message, Begun):
            part.begun, part.place = message, self._cluster.name_of(message)
            for other in self._running:
                if other is not running and other.shares_node(message):
                    running.alone = other.alone = False
        else:
            running.end_part(part, message)
            if not running.active:
                self._settle(running)

    def _settle(self, running: _RayLaunch) -> None:
        self._running.remove(running)
        running.settle()

    def _lose_what_fits_nowhere(self) -> None:
        """End launches that no node is left for: they would wait for ever."""
        waiting = [running for running in self._running if not running.has_begun]
        if waiting and self._cluster.need.at_a_time(_nodes()) < 1:
            why = f"the cluster has {self._cluster.need.words()} no longer"
            for running in waiting:
                for part in list(running.active):
                    running.end_part(part, LaunchEnd(why=why))
                self._settle(running)


def _nodes() -> list[dict[str, Any]]:
    return sorted(ray.nodes(), key=lambda node: (node["NodeManagerHostname"], node["NodeID"]))


def _log_file(run: RunFolder, job: LaunchJob, rank: int) -> Path:
    """Return `logs/0004.log`, `logs/0004.rank1.log`."""
    log = run.log_file(job.launch_id)
    return log if rank == 0 else log.with_name(f"{log.stem}.rank{rank}.log")


def _describe_loss(error: BaseException, part: _NodePart) -> str:
    """Return what is known of a part whose worker or node is gone."""
    lines = _COLOURS.sub("", str(error)).strip().splitlines() or ["no more is known"]
    first = lines[-1 if "creation task" in lines[0] else 0]
    where = f"on {part.begun.host}" if part.begun is not None else "before it had a node"
    return (
        f"the worker that launched and measured is gone, {where} ({type(error).__name__}: {first})"
    )
