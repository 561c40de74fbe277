"""Launches that sleep and windows that are known, for what must not depend on a busy machine.

In a module of its own: processes of slots import it anew.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.measure.make import World
from tests.played import speed
from tuner.engine.base import ServerConfig
from tuner.engine.simulated.engine import SimulatedEngine
from tuner.ledger.folder import RunFolder
from tuner.measure.samples import Request, Window
from tuner.sweep.point import Point
from tuner.trial.attempt import Attempt, Rig
from tuner.trial.phase import Phase

LAUNCH_S = 1.0
SLOWED = 0.9
"""Speed in a slot with servers beside it, over that of one alone."""


class PlayedServer:
    """Answers at once."""

    url, engine_version, launch_s, gpus = "", "0.5.17", LAUNCH_S, None
    info: dict[str, Any] = {"simulated": {}}  # noqa: RUF012

    def flush_cache(self) -> None: ...

    def counters(self) -> None: ...

    def stop(self) -> None: ...


class SleepingEngine(SimulatedEngine):
    """A launch is a sleep."""

    def launch(self, config: ServerConfig, log: Path, launch_id: int) -> Any:
        time.sleep(LAUNCH_S)
        return PlayedServer()


@dataclass(frozen=True)
class KnownRig(Rig):
    """Windows by the point alone: the same wherever and beside whatever it is measured."""

    def _warm_up(self, server: Any, phase: Phase, attempt: Attempt) -> None: ...

    def _window(self, server: Any, requests: Any, level: int, keep: Any = "nothing") -> Window:
        raise AssertionError("nothing is sent")

    def _measure(self, server: Any, phase: Phase, attempt: Attempt) -> None:
        """Beside others everything is slower alike."""
        assert phase.concurrency is not None
        share = SLOWED if phase.role in ("abreast", "candidate") else 1.0
        attempt.taken[phase.point].add(phase.concurrency, known_window(phase.point, share), 0.01)


def known_measure(_rig: Rig, _server: Any, phase: Phase, attempt: Attempt) -> None:
    """In the place of `Rig._measure`."""
    assert phase.concurrency is not None
    attempt.taken[phase.point].add(phase.concurrency, known_window(phase.point), 0.01)


def known_window(point: Point | None, share: float = 1.0) -> Window:
    """Its own noise for each point."""
    world = World(round(speed(point) * 1000), 8, 0.003, 0.003)
    return world.windows(1, share * speed(point) / 50)[0]


def known_bare(rig: Rig) -> Rig:
    """In the place of `job.bare`."""
    requests = {level: (Request("p", "chat", "hi"),) for level in rig.requests}
    return KnownRig(rig.engine, rig.sweep, RunFolder(rig.run.path), requests, None, print)
