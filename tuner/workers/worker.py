"""A run that is one of several workers on a search: what others do is kept to, and told."""

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
"""Between two looks at a database that was away, or at others that one waits for."""
ELSEWHERE = "another worker measures it"

Answer = TypeVar("Answer")


@dataclass
class Worker:
    """One worker's part in a shared search.

    While the database cannot be reached, what is claimed is measured and recorded, and told when
    it is back; nothing new is claimed meanwhile.
    """

    fleet: SharedStudy
    run: Run
    line: FleetLine
    note: Callable[[str], None]
    step: Callable[[str], None]
    """Hears what this worker waits for."""
    wait: Callable[[float], None] = time.sleep
    _study: Study | None = None
    _heard: set[int] = field(default_factory=set)
    _sight: StudySnapshot = field(default_factory=lambda: StudySnapshot((), {}))
    _unpublished: dict[Point, Observation] = field(default_factory=dict)
    _doubtful: dict[Point, Observation] = field(default_factory=dict)
    """The last failures in a row: the points' own, or of a host that is broken."""
    _measures: bool = False
    """A candidate was measured here: what fails later may be the point's fault."""
    _gave_up: bool = False
    _own: set[Point] = field(default_factory=set)
    """Points that this worker's ledger has."""
    _waits: str | None = None
    """What for, as it was said last."""
    _away: Literal["reading", "writing"] | None = None
    """What the database did not do at the last try."""

    def begin(
        self, study: Study, own: Sequence[tuple[Point, Observation]], max_failures: int
    ) -> None:
        """Take part: `own` is what this worker's ledger has from an earlier call, in order. So many
        failures in a row had ended that and were not told, nor those of a host that measures
        nothing."""
        self._study = study
        self._own = {point for point, _ in own}
        self._measures = any(verdict.outcome == "ok" for _, verdict in own)
        for has_failed, some in groupby(own, key=lambda each: each[1].outcome == "failed"):
            in_a_row = list(some)
            if not has_failed or (self._measures and len(in_a_row) < max_failures):
                self._unpublished.update(in_a_row)
        self.look()

    def has_ended(self, wanted: int) -> bool:
        """Whether the others' search came to its end before this worker began: nothing that it
        could launch would change anything. Says so, and keeps who took part."""
        if not self._reached(partial(self.fleet.is_concluded, wanted)):
            return False
        if (sight := self._reached(self.fleet.look)) is None:
            return False
        self._sight = sight
        self._write()
        self.note(
            "the search has ended: other workers have measured what there was to measure, and this "
            "one launches nothing"
        )
        return True

    def conclude(self, wanted: int) -> None:
        """Tell those that come later that the search has ended by itself; whoever measures last
        does."""
        if not self.elsewhere and not self._gave_up:
            self._reached(partial(self.fleet.conclude, wanted), "writing")

    @property
    def elsewhere(self) -> Mapping[Point, str]:
        """Points that others measure now, and who."""
        live = self._sight.live.items()
        return {point: worker for point, worker in live if worker != self.fleet.worker}

    @property
    def of_others(self) -> int:
        """Candidates that others have measured or are measuring, and this worker has not."""
        own = self.fleet.worker
        told = {each.point for each in self._sight.told if each.worker != own}
        return len((told | self.elsewhere.keys()) - self._own)

    def look(self) -> bool:
        """Publish what is not published yet, and tell the study what others have found. False
        while the database is away."""
        if (sight := self._reached(self.fleet.look)) is None:
            return False
        if self._unpublished:
            if not self._all_published(sight):
                return False
            if (sight := self._reached(self.fleet.look)) is None:
                return False
        self._sight = sight
        for each in sight.told:
            if each.number in self._heard:
                continue
            self._heard.add(each.number)
            if each.worker != self.fleet.worker and self._study is not None:
                self._study.add(each.point, each.verdict)
        self._write()
        return True

    def is_full(self, wanted: int) -> bool:
        """Whether so many are measured or claimed, as the last look had it."""
        return self._sight.taken >= wanted

    def _all_published(self, sight: StudySnapshot) -> bool:
        """Whether the others know everything now. What was told is not told again, also where the
        database went away before it could say so."""
        known = {each.point for each in sight.told if each.worker == self.fleet.worker}
        for point, verdict in list(self._unpublished.items()):
            if point in known:
                self.fleet.release(point)
            elif self._reached(partial(self.fleet.publish, point, verdict), "writing") is None:
                return False
            del self._unpublished[point]
        return True

    def claim(self, point: Point, most: int) -> bool | None:
        """Whether the point is this worker's, of `most` that all together measure; None while the
        database is away."""
        return self._reached(partial(self.fleet.claim, point, most), "writing")

    def may_change(self, wanted: int) -> bool:
        """Wait for what others do, or for the database; False where neither can bring anything, as
        where all that is wanted has been measured."""
        before = bool(self.elsewhere) or self._away is not None
        if self.look() and not self.elsewhere and self.is_full(wanted):
            return False
        if self.elsewhere or self._away:
            self._say_what_for()
            self.wait(min(RETRY_S, self.fleet.heartbeat_s / 2))
            return True
        return before

    def _say_what_for(self) -> None:
        """For `specbench status`, whenever it is something else."""
        at_work = (f"{worker} measures {point.label()}" for point, worker in self.elsewhere.items())
        what = "the shared study" if self._away else f"other workers: {'; '.join(at_work)}"
        if what != self._waits:
            self._waits = what
            self.step(f"waiting for {what}")

    def publish(self, found: Mapping[Point, Observation], claimed: Collection[Point] = ()) -> None:
        """Tell the others, now or as soon as the database is back; what was claimed for that and
        not measured is theirs again.

        A failure is told when something else has come after it: a host that is broken has nothing
        to say of the points on which it failed, see `give_up`.
        """
        self._own.update(found)
        self._waits = None
        for point, verdict in found.items():
            self._doubtful[point] = verdict
            self._measures |= verdict.outcome == "ok"
            if verdict.outcome != "failed":
                self._tell_doubtful()
        for point in claimed:
            if point not in found:
                self.fleet.release(point)
        self.look()

    def tell_failures(self) -> None:
        """Nothing follows that could say what the last failures were of: the points' own, unless
        this host has measured nothing yet."""
        if self._doubtful and self._measures:
            self._tell_doubtful()
            self.look()
        elif self._doubtful:
            self.give_up()

    def give_up(self) -> None:
        """This host may be broken: the points on which it failed last are the others' again."""
        self._gave_up |= bool(self._doubtful)
        for point in self._doubtful:
            self.fleet.release(point)
        self._doubtful.clear()
        self.look()

    def _tell_doubtful(self) -> None:
        self._unpublished.update(self._doubtful)
        self._doubtful.clear()

    def fastest_elsewhere(self) -> str | None:
        """The fastest candidate of all workers, in words, where another one has it; else None.

        By what was told, which is the same for all: if each went by its ledger, where a later
        baseline has moved the figures, two workers could each take the other one for faster.
        """
        own = self.fleet.worker
        untold = (each.value for each in self._unpublished.values() if each.is_answer)
        told = [each for each in self._sight.told if each.verdict.is_answer]
        first = max(told, key=lambda each: (each.verdict.value or 0, -each.number), default=None)
        if first is None or first.worker == own or (value := first.verdict.value) is None:
            return None
        if value <= max([1.0, *(each or 0.0 for each in untold)]):
            return None
        return (
            f"{first.point.label()}, {value:.3f} times its own baseline, of worker {first.worker}"
        )

    def untold(self, records: Sequence[TrialRecord]) -> list[TrialRecord]:
        """Those of them that `publish` has not been called for."""
        return [each for each in records if each.at not in self._own]

    def close(self) -> None:
        """Give up what is claimed and not measured."""
        self.tell_failures()
        if self._unpublished and not self.look():
            count = len(self._unpublished)
            what = "1 result is" if count == 1 else f"{count} results are"
            self.note(
                f"{what} in this run's ledger and not in the shared study: resume the worker when "
                "the database is back"
            )
        self.fleet.close()

    def _reached(
        self, act: Callable[[], Answer], does: Literal["reading", "writing"] = "reading"
    ) -> Answer | None:
        """What `act` gives, or True for nothing; None while the database is away, which is said.

        One that can be read and not written (it is full, or a copy took over) is away until it is
        written again.
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
        """Keep in the run folder who else takes part."""
        others: dict[str, OtherWorker] = {}
        for each in self._sight.told:
            if each.worker == self.fleet.worker:
                continue
            known = others.get(each.worker, OtherWorker(name=each.worker, candidates=0))
            value = each.verdict.value if each.verdict.is_answer else None
            others[each.worker] = known.also(each.point, value)
        write_fleet(self.run, self.line.with_others(list(others.values())))


@contextmanager
def taking_part(
    fleet: SharedStudy | None,
    run: Run,
    note: Callable[[str], None],
    step: Callable[[str], None],
) -> Iterator[Worker | None]:
    """A run's part in a shared search, None of a run alone; what it has claimed and not measured
    is given up at the end."""
    if fleet is None or run.settings.worker is None:
        yield None
        return
    line = FleetLine(study=run.settings.worker.study, worker=fleet.worker)
    together = Worker(fleet, run, line, note, step)
    try:
        yield together
    finally:
        with interrupts_deferred():
            together.close()
