"""A launch that runs on a node, or on several: its parts, their logs, and what came of it."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import remove_placement_group

from tuner.core.errors import EngineFailure, Failure, UserError
from tuner.execution.executor import JobResult, LaunchJob, lost
from tuner.execution.ray.messages import Begun, LogPart, Over
from tuner.runs.records import PlaceLine
from tuner.runs.run_folder import RunFolder
from tuner.server.log_file import ServerLog

_VAGUE = (Failure.CRASH, Failure.CLIENT, Failure.HANG, Failure.LAUNCH_TIMEOUT)
"""What a server shows of the death of a rank on another node."""


@dataclass(eq=False)
class NodePart:
    """What one node has of a launch."""

    number: int
    """The rank."""
    actor: Any
    said: Any
    """Its messages, as Ray streams them."""
    name: str = ""
    """Of its place."""
    host: str | None = None
    node: str | None = None
    gpus: tuple[str, ...] = ()
    over: Over | None = None


@dataclass(eq=False)
class RunningLaunch:
    """One launch."""

    job: LaunchJob
    folder: RunFolder
    parts: list[NodePart] = field(default_factory=list)
    group: Any = None
    """Ray's placement group, where it takes several nodes."""
    asked: str | None = None
    """Ray's id of the node that it was sent to; None where Ray chose one."""
    alone: bool = True
    """No other launch of the run was on its nodes meanwhile."""
    is_ending: bool = False
    _first: EngineFailure | None = None
    """Why the first rank that went had gone, while rank 0 was still there."""

    @property
    def talking(self) -> list[NodePart]:
        """Parts that have not said their last."""
        return [part for part in self.parts if part.over is None]

    @property
    def has_begun(self) -> bool:
        """Every part has its node."""
        return all(part.host is not None for part in self.parts)

    @property
    def name(self) -> str:
        """Of its places together."""
        return " + ".join(part.name for part in self.parts if part.name)

    @property
    def is_through(self) -> bool:
        """Nothing of it runs any more."""
        return not self.talking

    @property
    def refused(self) -> UserError | None:
        """What is wrong with the world on one of its nodes."""
        return next((p.over.refused for p in self.parts if p.over and p.over.refused), None)

    @property
    def was_cut_off(self) -> bool:
        """It was ended from here, and rank 0 had nothing to say."""
        over = self.parts[0].over
        return self.is_ending and (over is None or over.performed is None)

    def log(self, part: NodePart) -> Path:
        """`logs/0004.log`, `logs/0004.rank1.log`."""
        log = self.folder.log_file(self.job.launch_id)
        return log if part.number == 0 else log.with_name(f"{log.stem}.rank{part.number}.log")

    def write(self, part: NodePart, piece: LogPart) -> None:
        """Bring a piece of a log home."""
        log = self.log(part)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("r+b" if log.exists() else "w+b") as file:
            file.seek(piece.start)
            file.write(piece.data)
            file.truncate()

    def begun(self, part: NodePart, said: Begun, all_running: "list[RunningLaunch]") -> None:
        """A part has its node."""
        part.host, part.node, part.gpus = said.host, said.node, said.gpus
        for other in all_running:
            if other is not self and any(p.node == said.node for p in other.parts):
                self.alone = other.alone = False

    def over(self, part: NodePart, said: Over) -> None:
        """A part has said its last; the others cannot go on without it."""
        part.over = said
        if said.why is not None:
            with suppress(OSError):
                ServerLog(self.log(part)).seal()  # it came without what the node does at the end
        if part.number == 0:
            for other in self.talking:
                _tell(other, "end")
        elif self.parts[0].over is None:
            self._first = self._first or _cause(part)
            _tell(self.parts[0], "abort")

    def performed(self) -> JobResult:
        """What came of it."""
        over = self.parts[0].over
        assert over is not None
        if over.performed is None:
            done = lost(self.job, over.why or "it was ended")
        else:
            done = self._explained(over.performed, over.aborted)
        return replace(done, place=self._place())

    def _explained(self, done: JobResult, aborted: bool) -> JobResult:
        """The death of another rank in the place of what rank 0 saw of it."""
        seen, first = done.attempt.failure, self._first
        if seen is None or first is None:
            return done
        if aborted or (seen.label in _VAGUE and first.label not in _VAGUE):
            done.attempt.failure = first
        return done

    def _place(self) -> PlaceLine | None:
        hosts = [part.host for part in self.parts if part.host is not None]
        if not hosts:
            return None
        gpus = [gpu for part in self.parts for gpu in part.gpus]
        return PlaceLine(name=self.name, host=hosts[0], gpus=gpus or None, alone=self.alone)

    def bury(self) -> None:
        """Give its resources back."""
        for part in self.parts:
            with suppress(RayError, ValueError):
                ray.kill(part.actor, no_restart=True)
        if self.group is not None:
            with suppress(RayError):
                remove_placement_group(self.group)


def _tell(part: NodePart, what: str) -> None:
    with suppress(RayError):
        getattr(part.actor, what).remote()


def _cause(part: NodePart) -> EngineFailure:
    """Why a rank went."""
    over = part.over
    assert over is not None
    whose = f"rank {part.number} on {part.host}"
    if over.failure is None:
        return EngineFailure(Failure.LOST, f"{whose}: {over.why or 'it was ended'}")
    return EngineFailure(
        over.failure.label, f"{whose}: {over.failure.message}", over.failure.log_tail
    )
