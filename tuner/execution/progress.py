"""What a trial is doing at a moment."""

from dataclasses import dataclass
from typing import Literal

from tuner.config.load_level import Level
from tuner.config.point import Point
from tuner.core.errors import EngineFailure
from tuner.runs.records import Role, TrialRecord


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


@dataclass(frozen=True)
class SweepProgress:
    """How far the run is, after a trial."""

    done: int
    """Candidates recorded."""
    wanted: int
    """Candidates in all: what was asked for, or the whole space where that is smaller."""
    value: float | None
    """This trial's objective, None where it has none."""
    best: TrialRecord | None
    """The fastest candidate so far, also where the baseline is faster."""
    best_value: float | None
    alike: int = 0
    """Other candidates that the measurements do not tell apart from `best`."""


class Progress:
    """Listener to a run that does nothing. A subclass overrides what it needs."""

    def phase(self, phase: Phase) -> None:
        """React to a trial that does something else now."""

    def recorded(self, record: TrialRecord, standing: SweepProgress) -> None:
        """React to a trial that ended and is in the ledger."""

    def step(self, message: str) -> None:
        """React to work besides a trial; a live line shows the latest message."""

    def note(self, message: str) -> None:
        """Show the user one sentence."""


class Listeners(Progress):
    """Several listeners as one. Each event reaches all of them, in their order."""

    def __init__(self, *listeners: Progress) -> None:
        self._listeners = listeners

    def phase(self, phase: Phase) -> None:
        for listener in self._listeners:
            listener.phase(phase)

    def recorded(self, record: TrialRecord, standing: SweepProgress) -> None:
        for listener in self._listeners:
            listener.recorded(record, standing)

    def step(self, message: str) -> None:
        for listener in self._listeners:
            listener.step(message)

    def note(self, message: str) -> None:
        for listener in self._listeners:
            listener.note(message)
