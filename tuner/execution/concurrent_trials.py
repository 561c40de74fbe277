"""Trials that go on at the same time: which launch belongs to which, and what is over."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tuner.execution.executor import Executor, JobResult, Launches
from tuner.runs.records import TrialRecord

Tag = TypeVar("Tag")


@dataclass(frozen=True)
class _Flying(Generic[Tag]):
    tag: Tag
    launches: Launches[Sequence[TrialRecord]]


@dataclass
class TrialPool(Generic[Tag]):
    """What was begun in some places and is not over. One thread, which is the ledger's."""

    places: Executor
    _running: dict[int, _Flying[Tag]] = field(default_factory=dict)
    """By the identity of the job that is being performed."""

    @property
    def tags(self) -> list[Tag]:
        """Of what runs, in the order of their last launches."""
        return [each.tag for each in self._running.values()]

    @property
    def has_room(self) -> bool:
        """A place is free."""
        return len(self._running) < self.places.count

    def begin(self, tag: Tag, launches: Launches[Sequence[TrialRecord]]) -> None:
        """Submit the first launch of a trial. Only where there is room."""
        self._submit(_Flying(tag, launches), None)

    def land(self) -> tuple[Tag, Sequence[TrialRecord]]:
        """Wait until a trial is over and recorded. Only while one runs."""
        while True:
            done = self.places.wait()
            flying = self._running.pop(id(done.job))
            over = self._submit(flying, done.performed)
            if over is not None:
                return flying.tag, over

    def abort(self, error: BaseException) -> None:
        """End everything; what was through or measured whole by then is recorded. To be called for
        whatever is raised while something runs."""
        for done in self.places.close():
            if (flying := self._running.pop(id(done.job), None)) is not None:
                with suppress(StopIteration):  # recorded; what wants another launch has none
                    flying.launches.send(done.performed)
                    self._running[id(flying)] = flying
        for flying in self._running.values():
            with suppress(type(error), StopIteration):
                flying.launches.throw(error)
        self._running.clear()

    def _submit(
        self, flying: _Flying[Tag], performed: JobResult | None
    ) -> Sequence[TrialRecord] | None:
        """The next launch; or, where there is none, what was recorded."""
        try:
            job = next(flying.launches) if performed is None else flying.launches.send(performed)
        except StopIteration as ended:
            found: Sequence[TrialRecord] = ended.value
            return found
        self._running[id(job)] = flying
        self.places.submit(job)
        return None
