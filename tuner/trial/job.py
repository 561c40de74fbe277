"""One launch as an order and as what came of it: both can be pickled, neither knows a ledger.

A job is exactly one launch. Whether its failure is worth another one, and what is recorded of it,
is decided where the ledger is (bench.py, shared.py): so a second try may be made elsewhere.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tuner.engine import gpu
from tuner.engine.base import server_config
from tuner.engine.process import child_environment
from tuner.errors import EngineFailure, Failure
from tuner.ledger.asked import PlaceLine
from tuner.ledger.folder import RunFolder
from tuner.sweep.point import Point
from tuner.trial.attempt import Attempt, Rig
from tuner.trial.phase import Phase
from tuner.trial.race import Race


@dataclass(frozen=True)
class Job:
    """What to launch and to measure."""

    phase: Phase
    """`launching`, of the launch's first point: with its trial's number while nothing else is
    measured, and with the failure before, where this is a second try."""
    launch_id: int
    """Nobody else's: it names the log."""
    along: tuple[Point, ...] = ()
    """Further points of its block, measured in turns on the same server."""
    race: Race | None = None
    held_out: bool = False
    """Whether it is also measured on prompts that no candidate is chosen on."""


@dataclass(frozen=True)
class Performed:
    """What one launch has brought; a failure is in the attempt."""

    attempt: Attempt
    crowded: tuple[str, ...] = ()
    """What others held of the GPUs just before."""
    place: PlaceLine | None = None
    """Where; None where there is one place only."""


def perform(rig: Rig, job: Job, report: Callable[[Phase], None]) -> Performed:
    """Launch, measure and stop, here and now; `report` hears what goes on.

    Writes the server's log in the rig's run folder and nothing else. Raises UserError where the
    world is wrong (no program, a full disk); KeyboardInterrupt passes through, with no process
    left.
    """
    crowded = _crowded(rig, job.phase.point)
    attempt = replace(rig, report=report).attempt(
        job.phase, job.launch_id, job.along, job.race, held_out=job.held_out
    )
    return Performed(attempt, crowded)


def lost(job: Job, why: str) -> Performed:
    """A launch whose process or machine is gone, with a sentence of what is known."""
    return Performed(Attempt(job.launch_id, failure=EngineFailure(Failure.LOST, why)))


def bare(rig: Rig) -> Rig:
    """A rig without the ledger's side of it and with nobody to report to, for another process or
    another machine to measure with. It can be pickled."""
    return Rig(
        rig.engine,
        rig.sweep,
        RunFolder(rig.run.path),
        rig.requests,
        rig.tokenise_doubt,
        _unheard,
        held_out=rig.held_out,
        task=rig.task,
    )


def _unheard(_phase: Phase) -> None:
    """Nobody listens."""


def _crowded(rig: Rig, point: Point | None) -> tuple[str, ...]:
    """What others hold of the GPUs that a launch of the point will see."""
    if rig.engine.name != "sglang":
        return ()
    config = server_config(rig.sweep, point)
    return tuple(gpu.crowded(child_environment(config.env, config.unset, mark="")))
