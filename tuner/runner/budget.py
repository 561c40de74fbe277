"""How long a run may go on, and what its launches take by its own clock.

What is begun must be expected to end in time, and candidates leave room for the launches that close
a run: a winner without a launch of its own is what nobody who wants results by nine is after.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from tuner.config.field_types import when
from tuner.config.schema import SearchSpec, Sweep
from tuner.core.errors import UserError
from tuner.core.formatting import spell_time
from tuner.runs.ledger import Ledger
from tuner.runs.records import SIMULATED, TrialRecord

RECENT = 8
"""Launches that the next one is expected to be like; of these the longest."""

STOPPED = "somebody asked this run to stop"
_SHOWN = "%Y-%m-%d %H:%M %z"


def local_now() -> datetime:
    """The wall clock, with this machine's zone: a deadline is on it, whatever steps it makes."""
    return datetime.now(UTC).astimezone()


@dataclass(frozen=True)
class Clock:
    """The two clocks; tests have their own."""

    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = local_now


CLOCK = Clock()


def refuse_past(search: SearchSpec, now: datetime | None = None) -> None:
    """Raises UserError where `search.deadline` has come already."""
    now = now or CLOCK.now()
    if search.deadline is not None and when(search.deadline, now) <= now:
        raise UserError(
            f"search.deadline {search.deadline} is over, write a later one or give one for this "
            "call, such as --deadline 07:30"
        )


class Budget:
    """The time in which launches may be begun, from now on.

    `stop` is a file that ends it at once, where somebody makes it (`specbench stop`).
    """

    def __init__(self, search: SearchSpec, stop: Path | None = None, clock: Clock = CLOCK) -> None:
        self._clock, self._stop, self._began = clock, stop, clock.monotonic()
        self._seconds = search.time_budget
        self._deadline = None if search.deadline is None else when(search.deadline, clock.now())

    @property
    def left_s(self) -> float | None:
        """Seconds until the nearer end; None without one."""
        return min((left for _, left in self._ends()), default=None)

    def _ends(self) -> Iterator[tuple[str, float]]:
        if self._seconds is not None:
            left = self._began + self._seconds - self._clock.monotonic()
            yield f"the time budget of {spell_time(self._seconds)}", left
        if self._deadline is not None:
            left = (self._deadline - self._clock.now()).total_seconds()
            yield f"the deadline {self._deadline:{_SHOWN}}", left

    @property
    def ends(self) -> str | None:
        """The deadline, as a run says it when it begins; None without one."""
        if self._deadline is None:
            return None
        return f"nothing is begun that is not expected to end before {self._deadline:{_SHOWN}}"

    @property
    def asked_to_stop(self) -> bool:
        """Somebody said `specbench stop`."""
        return self._stop is not None and self._stop.exists()

    def why_not(self, seconds: float = 0.0) -> str | None:
        """Why nothing is begun that takes so long; None where it may be."""
        if self.asked_to_stop:
            return STOPPED
        for name, left in self._ends():
            if left <= 0:
                return f"{name} is spent" if "budget" in name else f"{name} has come"
            if left < seconds:
                needs = spell_time(seconds)
                return f"{name} leaves {spell_time(left)} and what is to come takes about {needs}"
        return None


@dataclass
class Pace:
    """What launches of this run take: once each, and for each point that they measure."""

    sweep: Sweep
    clock: Clock = CLOCK
    _seen: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=RECENT))

    def know(self, ledger: Ledger) -> None:
        """Take what earlier calls have measured; the ledger knows no more than launch and load."""
        for _, group in groupby(ledger.records, key=lambda each: each.launch_id):
            records = list(group)
            launch = records[0].launch_s
            if launch is not None:
                scale = self.sweep.engine.startup_scale if records[0].engine == SIMULATED else 1.0
                self._see(launch * scale + sum(map(_measured, records)), records)

    @contextmanager
    def launching(self) -> Iterator[list[TrialRecord]]:
        """Time what is done in the block; it puts the records that came of it into the list."""
        records: list[TrialRecord] = []
        began = self.clock.monotonic()
        yield records
        self.took(began, records)

    def took(self, began: float, records: Sequence[TrialRecord]) -> None:
        """Take a launch that began at `began`, by this clock, and is over now. Of launches side by
        side each one is timed by itself."""
        self._see(self.clock.monotonic() - began, records)

    def _see(self, seconds: float, records: Sequence[TrialRecord]) -> None:
        """A launch that failed says nothing of one that goes well."""
        if not records or any(each.outcome != "ok" for each in records):
            return
        parts = [_measured(each) / (2 if each.held_out else 1) for each in records]
        self._seen.append((max(0.0, seconds - sum(map(_measured, records))), max(parts)))

    def expected(self, points: int = 1, *, held_out: bool = False) -> float:
        """Seconds of a launch for so many points, `held_out` where it also has windows on other
        prompts; 0 while nothing is known."""
        if not self._seen:
            return 0.0
        once = max(seen[0] for seen in self._seen)
        each = max(seen[1] for seen in self._seen)
        return once + each * (points + held_out)


def _measured(record: TrialRecord) -> float:
    return record.measured_s or 0.0
