"""Shared launches: all points of a block measured on one server that goes from length to length.

A shared launch needs more than a point's own: memory for more graphs, longer at start, a server
that switches. Its failure says nothing about one of its points, so it never fails one: what it did
not measure gets launches of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.config.point import Point
from tuner.core.errors import EngineFailure
from tuner.execution.early_stopping import Race
from tuner.execution.executor import JobResult, Launches, LaunchJob, go_through
from tuner.execution.launch import ATTEMPTS, LaunchResult
from tuner.execution.measurement import Windows
from tuner.execution.progress import Phase
from tuner.execution.recording import RecordInput
from tuner.execution.trial import TrialRequest, TrialRunner, now
from tuner.runs.records import AskedLine, PlaceLine, TrialRecord
from tuner.search.decision import Decision


@dataclass(frozen=True)
class SharedTrial:
    """Points to measure in one launch: the one that the search proposed first."""

    points: tuple[Point, ...]
    baseline: Windows
    is_proposed: bool = True
    """False where the search proposed none of them: the rest of a launch that was cut off."""
    decision: Decision | None = None
    """Why the search proposed the first."""
    race: Race | None = None
    """Whom they are raced against, and among each other; None: every window is measured."""
    known: AskedLine | None = None
    """What the search knew when it proposed the first, where several are measured at a time."""


def measure_together(bench: TrialRunner, shared: SharedTrial) -> list[TrialRecord]:
    """Measure the points, alone, and add them to the ledger: `launches_together`, gone through.

    KeyboardInterrupt passes through: nothing runs, and what a launch before has measured whole is
    recorded.
    """
    return go_through(launches_together(bench, shared), bench.alone)


def launches_together(bench: TrialRunner, shared: SharedTrial) -> Launches[list[TrialRecord]]:
    """The points' launches; then their ledger lines, the first of `shared.points` first.

    A launch whose failure is worth a retry is tried once more for what it did not complete. Where
    points are left after that, the first one, if it is among them, is measured with a launch of
    its own; the others are not recorded, for the search to come back to.
    """
    first, started = shared.points[0], now()
    number = bench.run.ledger().next_trial
    crowded: tuple[str, ...] | None = None
    complete: dict[Point, _Launched] = {}
    failures: list[EngineFailure] = []
    left = shared.points
    while True:
        again = failures[-1] if failures else None
        phase = Phase(number, "candidate", left[0], "launching", again=again, sharing=len(left))
        done: JobResult = yield LaunchJob(phase, bench.next_launch(), left[1:], shared.race)
        attempt = done.attempt
        crowded = done.crowded if crowded is None else crowded
        for point in left:
            if bench.is_complete(attempt.taken.get(point)):
                complete[point] = _Launched(attempt, tuple(failures), done.place)
        left = tuple(point for point in left if point not in complete)
        if attempt.failure is None:
            break
        failures.append(attempt.failure)
        worth = attempt.failure.label.is_worth_a_retry and len(failures) < ATTEMPTS
        if not worth or len(left) < 2:  # one point alone has a launch of its own
            break
    why = str(failures[-1]) if left else None
    taken = _Complete(shared, complete, started, crowded, why)
    records = []
    try:
        if first in left and shared.is_proposed:
            asked = TrialRequest(
                "candidate", first, shared.decision, why, shared.race, known=shared.known
            )
            measured = yield from bench.launches(asked, shared.baseline)
            records.append(measured.record)
    finally:  # an interrupt in that launch must not lose what this one has measured
        records += taken.book(bench)
    return records


@dataclass(frozen=True)
class _Launched:
    """The launch that measured a point whole."""

    attempt: LaunchResult
    before: tuple[EngineFailure, ...]
    """What failed before it."""
    place: PlaceLine | None


@dataclass(frozen=True)
class _Complete:
    """What a shared launch has measured whole, and what goes with it."""

    shared: SharedTrial
    points: Mapping[Point, _Launched]
    started: str
    crowded: tuple[str, ...]
    why: str | None
    """Why points are missing, where some are."""

    def book(self, bench: TrialRunner) -> list[TrialRecord]:
        """Add their lines to the ledger, in one write."""
        shared, trial, booked = self.shared, bench.run.ledger().next_trial, list[TrialRecord]()
        for point in (each for each in shared.points if each in self.points):
            launched, is_first = self.points[point], point == shared.points[0]
            entry = RecordInput(
                phase=Phase(trial + len(booked), "candidate", point, "stopping"),
                started=self.started,
                attempt=launched.attempt,
                failure=None,
                baseline=shared.baseline,
                retried=launched.before,
                crowded=self.crowded,
                proposed=shared.is_proposed and is_first,
                switch_failure=self.why,
                decision=shared.decision if is_first else None,
                place=launched.place,
                asked=shared.known if is_first else None,
            )
            booked.append(bench.book(entry))
        bench.run.append(*booked)
        return booked
