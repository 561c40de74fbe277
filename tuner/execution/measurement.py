"""Measurements of one point in one launch: windows, and why some of them were left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tuner.config.load_level import Level
from tuner.metrics.samples import Window

Windows = Mapping[Level, Sequence[Window]]
"""Measured windows by concurrency."""


@dataclass(frozen=True)
class Stop:
    """Why a level of a point has fewer windows than `measure.windows`."""

    reason: Literal["slower", "tight"]
    """The name of the check; `records.SLOWER` is the first."""
    words: str


@dataclass
class PointMeasurement:
    """What one launch has measured of one point so far."""

    windows: dict[Level, list[Window]] = field(default_factory=dict)
    held_out: dict[Level, list[Window]] = field(default_factory=dict)
    """Windows of prompts that no candidate is chosen on."""
    stopped: dict[Level, Stop] = field(default_factory=dict)
    """Levels that need no further window."""
    seconds: float | None = None
    """Seconds of load, warm-up included, to the end of the last window. None before the first."""
    warming_s: float = 0.0
    """Seconds of warm-up that no window has followed yet."""
    task: Window | None = None
    """The task's answers, if the task was sent."""

    def add(self, level: Level, window: Window, seconds: float) -> None:
        """Add a window. `seconds` has its time with everything around it."""
        self.windows.setdefault(level, []).append(window)
        self.seconds = (self.seconds or 0.0) + self.warming_s + seconds
        self.warming_s = 0.0

    def count(self, level: Level) -> int:
        """Return the number of windows at a level."""
        return len(self.windows.get(level, ()))

    def is_due(self, level: Level, number: int) -> bool:
        """Return True if the window of that number, from 1, is still to be measured."""
        return level not in self.stopped and number > self.count(level)

    @property
    def slower_at(self) -> list[Level]:
        """Levels that were stopped for being clearly slower."""
        return [level for level, stop in self.stopped.items() if stop.reason == "slower"]

    def go_on(self) -> None:
        """Continue the levels that were stopped for being slower."""
        for level in self.slower_at:
            del self.stopped[level]
