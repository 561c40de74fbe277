"""What goes to a node and what comes back from it. All of it can be pickled."""

from dataclasses import dataclass

from tuner.core.errors import EngineFailure, UserError
from tuner.execution.executor import JobResult, LaunchJob
from tuner.execution.launch import LaunchContext
from tuner.server.base import Rank


@dataclass(frozen=True)
class LaunchOrder:
    """A launch, or the part of one that is a node's."""

    rig: LaunchContext
    """`job.bare`; its run folder is replaced by one of the node."""
    job: LaunchJob
    gpus: int
    """Of those that Ray gave, the first so many are used; a launch alone is given more."""
    rank: Rank | None = None
    """Of a server that spans nodes."""


@dataclass(frozen=True)
class Begun:
    """Where it is."""

    host: str
    node: str
    """Ray's id of the node."""
    gpus: tuple[str, ...]
    """The GPUs that are used, as CUDA_VISIBLE_DEVICES has them."""


@dataclass(frozen=True)
class LogPart:
    """A piece of the server's log; it ends there for now."""

    start: int
    """Bytes before it."""
    data: bytes


@dataclass(frozen=True)
class Over:
    """Nothing of it runs any more, and this is the last that is said of it."""

    performed: JobResult | None = None
    """Of a launch, or of its rank 0; None where it was ended, or is gone (`why`)."""
    failure: EngineFailure | None = None
    """Of another rank: why it ended by itself."""
    refused: UserError | None = None
    """The world is wrong there."""
    aborted: bool = False
    """Its server was ended because another rank of it had gone."""
    why: str | None = None
    """What is known of a process that is gone."""
