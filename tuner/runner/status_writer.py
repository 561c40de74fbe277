"""Listener that writes what a run does into its folder, for `specbench status`."""

import time
from dataclasses import replace
from datetime import UTC, datetime

from tuner.config.load_level import Rate, at
from tuner.execution.progress import Phase, Progress, SweepProgress
from tuner.runner.budget import Budget
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run
from tuner.runs.status import own_state, write_state


class StatusWriter(Progress):
    """Writes state.json between measured windows, never during one."""

    def __init__(self, run: Run, budget: Budget, closing: int = 0) -> None:
        """`closing` is the number of launches that may follow the candidates."""
        self._closing = closing
        self._run, self._budget = run, budget
        self._began, self._clock = datetime.now(UTC), time.monotonic()
        self._measured = 0
        self._places: dict[str, str] = {}
        self._left: int | None = None
        """Candidates that are still wanted; None before the first trial has ended."""
        self._state = own_state(self._began, "beginning")
        write_state(run, self._state)

    def phase(self, phase: Phase) -> None:
        if phase.doing == "over":
            self._places.pop(phase.place or "", None)
            write_state(self._run, replace(self._state, places=self._shown_places()))
            return
        point = "no speculation" if phase.point is None else phase.point.label()
        level = phase.concurrency
        if phase.place is not None:
            self._places[phase.place] = f"{point}: {_doing(phase)}"
        state = own_state(
            self._began,
            phase.doing,
            trial=phase.trial if phase.place is None else None,
            places=self._shown_places(),
            role=phase.role,
            configuration=point,
            concurrency=str(level) if isinstance(level, Rate) else level,
            window=phase.window,
            windows=phase.windows,
            left_s=self._left_s(),
        )
        write_state(self._run, state)
        self._state = state

    def _shown_places(self) -> dict[str, str] | None:
        return dict(sorted(self._places.items())) or None

    def recorded(self, record: TrialRecord, standing: SweepProgress) -> None:
        self._measured += 1
        self._left = standing.wanted - standing.done
        if record.role in ("confirm", "plain") or (record.role == "baseline" and not self._left):
            self._closing = max(0, self._closing - 1)

    def step(self, message: str) -> None:
        write_state(self._run, own_state(self._began, message, left_s=self._left_s()))

    def _left_s(self) -> float | None:
        if not self._measured or self._left is None:
            return None
        each = (time.monotonic() - self._clock) / self._measured
        left = each * (max(0, self._left) + self._closing)
        most = self._budget.left_s
        return round(left if most is None else max(0.0, min(left, most)), 1)


def _doing(phase: Phase) -> str:
    window = "" if phase.window is None else f" {phase.window}/{phase.windows}"
    level = "" if phase.concurrency is None else f" {at(phase.concurrency)}"
    return f"{phase.doing}{window}{level}"
