"""What a trial is doing at a moment."""

from dataclasses import dataclass
from typing import Literal

from tuner.errors import EngineFailure
from tuner.ledger.record import Role
from tuner.sweep.level import Level
from tuner.sweep.point import Point


@dataclass(frozen=True)
class Phase:
    """What a trial is doing, for the progress line."""

    trial: int
    role: Role
    point: Point | None
    doing: Literal["launching", "answering", "warming", "measuring", "stopping", "over"]
    """`answering`: before anything is measured, what stands between turns is written, by a launch
    without speculation. `over` is said of places alone, where several measure: nothing goes on in
    it any more."""
    concurrency: Level | None = None
    window: int | None = None
    """The window that runs, from 1."""
    windows: int | None = None
    again: EngineFailure | None = None
    """Why the launch before failed, where this is the second one."""
    sharing: int = 1
    """Points that the launch measures."""
    place: str | None = None
    """`slot 0`: where, in a run that measures in several places at a time. Its trial then has the
    number only once it has ended."""
