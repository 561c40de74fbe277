"""One worker of a shared search: it claims points, tells its results and learns from the others."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Literal, TypeVar

from tuner.config.point import Point
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run
from tuner.runs.settings import FleetLine, OtherWorker, write_fleet
from tuner.search.observation import Observation
from tuner.search.optuna_storage import StorageUnusable
from tuner.search.optuna_study import Study
from tuner.server.process import interrupts_deferred
from tuner.workers.shared_study import SharedStudy, StudySnapshot

RETRY_S = 2.0
"""Seconds between two looks at a database that is away or at workers that are waited for."""
ELSEWHERE = "another worker measures it"

Answer = TypeVar("Answer")


@dataclass
class Worker:
    """One worker's part in a shared search.

    While the database cannot be reached, the worker measures what it has claimed, keeps the results
    in its ledger and publishes them when the database is back. It claims nothing meanwhile.
    """

    shared: SharedStudy
    run: Run
    line: FleetLine
    note: Callable[[str], None]
    step: Callable[[str], None]
    """Receives what this worker waits for."""
    wait: Callable[[float], None] = time.sleep
    _study: Study | None = None
    _heard: set[int] = field(default_factory=set)
    """Numbers of the shared trials that `_study` knows."""
    _seen: StudySnapshot = field(default_factory=lambda: StudySnapshot((), {}))
    _own: set[Point] = field(default_factory=set)
    """Points in this worker's ledger."""
    _unpublished: dict[Point, Observation] = field(default_factory=dict)
    _doubtful: dict[Point, Observation] = field(default_factory=dict)
    """The last failures in a row: the points cause them, or this host is broken."""
    _measures: bool = False
    """A candidate was measured here, so later failures may be caused by their points."""
    _gave_up: bool = False
    _waits: str | None = None
    """What this worker waits for, as it was reported last."""
    _away: Literal["reading", "writing"] | None = None
    """What failed at the last access to the database."""

    def begin(
        self, study: Study, own: Sequence[tuple[Point, Observation]], max_failures: int
    ) -> None:
        """Take part. `own` is in this worker's ledger from an earlier call, in order.

        Failures of a host that measures nothing, and `max_failures` of them in a row, are not
        published: the host may be broken.
        """
        self._study = study
        self._own = {point for point, _ in own}
        self._measures = any(observation.outcome == "ok" for _, observation in own)
        for has_failed, group in groupby(own, key=lambda pair: pair[1].outcome == "failed"):
            in_a_row = list(group)
            if not has_failed or (self._measures and len(in_a_row) < max_failures):
                self._unpublished.update(in_a_row)
        self.look()

    def has_ended(self, wanted: int) -> bool:
        """Return True, and report it, if the search ended before this worker began."""
        if not self._reached(partial(self.shared.is_concluded, wanted)):
            return False
        if (seen := self._reached(self.shared.look)) is None:
            return False
        self._seen = seen
        self._write()
        self.note(
            "the search has ended: other workers have measured what there was to measure, and this "
            "one launches nothing"
        )
        return True

    def conclude(self, wanted: int) -> None:
        """Record that the search has ended by itself. The worker that measures last does it."""
        if not self.elsewhere and not self._gave_up:
            self._reached(partial(self.shared.conclude, wanted), "writing")

    @property
    def elsewhere(self) -> Mapping[Point, str]:
        """Points that others measure now, with the worker's name."""
        live = self._seen.live.items()
        return {point: worker for point, worker in live if worker != self.shared.worker}

    @property
    def of_others(self) -> int:
        """Number of candidates that only others have measured or are measuring."""
        told = {r.point for r in self._seen.told if r.worker != self.shared.worker}
        return len((told | self.elsewhere.keys()) - self._own)

    def look(self) -> bool:
        """Publish what is not published yet, and tell the study what others have found.

        Returns False while the database is away.
        """
        if (seen := self._reached(self.shared.look)) is None:
            return False
        if self._unpublished:
            if not self._publish_all(seen):
                return False
            if (seen := self._reached(self.shared.look)) is None:
                return False
        self._seen = seen
        for result in seen.told:
            is_news = result.number not in self._heard and result.worker != self.shared.worker
            if is_news and self._study is not None:
                self._study.add(result.point, result.observation)
            self._heard.add(result.number)
        self._write()
        return True

    def is_full(self, wanted: int) -> bool:
        """Return True if so many were measured or claimed at the last look."""
        return self._seen.taken >= wanted

    def _publish_all(self, seen: StudySnapshot) -> bool:
        """Publish all results. Returns False if the database is away.

        A result that arrived although the database did not answer is not published again.
        """
        known = {result.point for result in seen.told if result.worker == self.shared.worker}
        for point, observation in list(self._unpublished.items()):
            if point in known:
                self.shared.release(point)
            elif self._reached(partial(self.shared.publish, point, observation), "writing") is None:
                return False
            del self._unpublished[point]
        return True

    def claim(self, point: Point, most: int) -> bool | None:
        """Claim one of `most` points that all workers measure. Returns None while the database is
        away."""
        return self._reached(partial(self.shared.claim, point, most), "writing")

    def may_change(self, wanted: int) -> bool:
        """Wait for the others or for the database. Returns False if neither can bring anything."""
        before = bool(self.elsewhere) or self._away is not None
        if self.look() and not self.elsewhere and self.is_full(wanted):
            return False
        if self.elsewhere or self._away:
            self._report_wait()
            self.wait(min(RETRY_S, self.shared.heartbeat_s / 2))
            return True
        return before

    def _report_wait(self) -> None:
        """Report what this worker waits for, if that has changed."""
        points = [f"{worker} measures {point.label()}" for point, worker in self.elsewhere.items()]
        what = "the shared study" if self._away else f"other workers: {'; '.join(points)}"
        if what != self._waits:
            self._waits = what
            self.step(f"waiting for {what}")

    def publish(self, found: Mapping[Point, Observation], claimed: Collection[Point] = ()) -> None:
        """Publish results, now or when the database is back, and release what was only claimed.

        A failure is published after this host has measured something else: a broken host knows
        nothing of the points on which it failed, see `give_up`.
        """
        self._own.update(found)
        self._waits = None
        for point, observation in found.items():
            self._doubtful[point] = observation
            self._measures |= observation.outcome == "ok"
            if observation.outcome != "failed":
                self._trust_failures()
        for point in claimed:
            if point not in found:
                self.shared.release(point)
        self.look()

    def tell_failures(self) -> None:
        """Publish the last failures if this host has measured anything; else give them up."""
        if self._doubtful and self._measures:
            self._trust_failures()
            self.look()
        elif self._doubtful:
            self.give_up()

    def give_up(self) -> None:
        """Release the points of the last failures to the others: this host may be broken."""
        self._gave_up |= bool(self._doubtful)
        for point in self._doubtful:
            self.shared.release(point)
        self._doubtful.clear()
        self.look()

    def _trust_failures(self) -> None:
        self._unpublished.update(self._doubtful)
        self._doubtful.clear()

    def fastest_elsewhere(self) -> str | None:
        """Describe the fastest candidate of all workers. Returns None if it is this worker's.

        It goes by the published values, which are the same for all workers. By ledgers, whose
        figures a later baseline moves, two workers could each take the other for faster.
        """
        told = [result for result in self._seen.told if result.observation.is_answer]
        first = max(told, key=lambda r: (r.observation.value or 0, -r.number), default=None)
        if first is None or first.worker == self.shared.worker:
            return None
        own = [found.value or 0.0 for found in self._unpublished.values() if found.is_answer]
        value = first.observation.value or 0.0
        if value <= max([1.0, *own]):
            return None
        return (
            f"{first.point.label()}, {value:.3f} times its own baseline, of worker {first.worker}"
        )

    def untold(self, records: Sequence[TrialRecord]) -> list[TrialRecord]:
        """Return the records that `publish` was not called for."""
        return [record for record in records if record.at not in self._own]

    def close(self) -> None:
        """Publish what is left and give up all claims."""
        self.tell_failures()
        if self._unpublished and not self.look():
            count = len(self._unpublished)
            what = "1 result is" if count == 1 else f"{count} results are"
            self.note(
                f"{what} in this run's ledger and not in the shared study: resume the worker when "
                "the database is back"
            )
        self.shared.close()

    def _reached(
        self, act: Callable[[], Answer], does: Literal["reading", "writing"] = "reading"
    ) -> Answer | None:
        """Return the result of `act`, True for a result of None, and None while the database is
        away, which is reported once.

        A database that can only be read (it is full, or a copy took over) is away until a write
        succeeds.
        """
        try:
            found = act()
        except StorageUnusable as error:
            if self._away is None:
                self.note(
                    f"the shared study cannot be reached ({error}): this worker measures what it "
                    "has claimed, keeps it in its ledger and tries again"
                )
            self._away = does
            return None
        if self._away is not None and does in (self._away, "writing"):
            self.note("the shared study can be reached again")
            self._away = None
        return True if found is None else found  # type: ignore[return-value]

    def _write(self) -> None:
        """Write the other workers to the run folder."""
        others: dict[str, OtherWorker] = {}
        for result in self._seen.told:
            if result.worker == self.shared.worker:
                continue
            known = others.get(result.worker, OtherWorker(name=result.worker, candidates=0))
            value = result.observation.value if result.observation.is_answer else None
            others[result.worker] = known.also(result.point, value)
        write_fleet(self.run, self.line.with_others(list(others.values())))


@contextmanager
def taking_part(
    shared: SharedStudy | None,
    run: Run,
    note: Callable[[str], None],
    step: Callable[[str], None],
) -> Iterator[Worker | None]:
    """Yield a run's part in a shared search, None for a run alone.

    At the end the worker gives up what it has claimed and not measured.
    """
    if shared is None or run.settings.worker is None:
        yield None
        return
    line = FleetLine(study=run.settings.worker.study, worker=shared.worker)
    worker = Worker(shared, run, line, note, step)
    try:
        yield worker
    finally:
        with interrupts_deferred():
            worker.close()
