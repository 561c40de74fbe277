"""One trial: a point measured with launches of its own, and what is recorded of it."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from tuner.config.loader import LoadedSweep
from tuner.config.point import Point
from tuner.config.random_text import describe_random_text
from tuner.config.synthetic import made_up
from tuner.core.errors import EngineFailure
from tuner.execution.early_stopping import Race
from tuner.execution.executor import (
    Executor,
    InlineExecutor,
    JobResult,
    Launches,
    LaunchJob,
    go_through,
)
from tuner.execution.launch import ATTEMPTS, LaunchResult
from tuner.execution.measurement import Windows
from tuner.execution.progress import Phase
from tuner.execution.recording import RecordInput, TrialRecorder
from tuner.execution.request_plan import plan_requests
from tuner.loadgen.client import beside_others, first_cause
from tuner.metrics.samples import Request
from tuner.runs.records import AskedLine, Role, TrialRecord
from tuner.runs.run import Run
from tuner.search.decision import Decision
from tuner.server.base import Engine


@dataclass(frozen=True)
class TrialRequest:
    """What to measure, and why."""

    role: Role
    point: Point | None
    """None: no speculation."""
    decision: Decision | None = None
    """The search's reason, where it gave one."""
    switch_failure: str | None = None
    """Why the point is not measured in a shared launch, where one failed."""
    race: Race | None = None
    """Whom it is raced against; None: every window is measured."""
    held_out: bool = False
    """Whether it is also measured on prompts that no candidate is chosen on."""
    known: AskedLine | None = None
    """What the search knew, where several are measured at a time."""
    smoothed: Mapping[int, float] = field(default_factory=dict)
    """Objectives of candidates by all measurements together, by trial, that the choice of this one
    rests on."""


@dataclass(frozen=True)
class TrialOutcome:
    """A recorded trial. `failure` says why it has no numbers, None where it has."""

    record: TrialRecord
    windows: Windows
    failure: EngineFailure | None


@dataclass
class _Issued:
    """The last launch id that was given away; its log may not be there yet."""

    last: int = -1


@dataclass(frozen=True)
class TrialRunner(TrialRecorder):
    """Says what to launch for a trial and books what came of it. It performs nothing itself."""

    places: Executor | None = field(default=None, kw_only=True)
    """Where `measure` has its launches performed, alone; None: here, in this process."""
    _issued: _Issued = field(default_factory=_Issued, kw_only=True)

    @classmethod
    def prepare(
        cls, engine: Engine, loaded: LoadedSweep, run: Run, report: Callable[[Phase], None]
    ) -> "TrialRunner":
        """Choose and tokenise the prompts. Raises EngineFailure where tokenising fails."""
        found, model, server = plan_requests(loaded), loaded.sweep.model, loaded.sweep.server
        sent, unseen = found.chosen_on, found.unseen
        whole = max(sent.values(), key=len)
        tokenised = engine.tokenise(model, server, (*whole, *max(unseen.values(), key=len)))
        first, second = tokenised.requests[: len(whole)], tokenised.requests[len(whole) :]
        asked: tuple[Request, ...] = ()
        if loaded.task and made_up(loaded.sweep, os.environ) is None:
            asked = engine.tokenise(model, server, [each.prompt for each in loaded.task]).requests
        return cls(
            engine,
            loaded.sweep,
            run,
            {level: first[: len(each)] for level, each in sent.items()},
            tokenised.doubt,
            report,
            held_out={level: second[: len(each)] for level, each in unseen.items() if second},
            task=asked,
            random_words=describe_random_text([prompt.text for prompt in loaded.prompts]),
            answers={each.prompt.id: each.answer for each in loaded.task},
        )

    @property
    def alone(self) -> Executor:
        """Where launches are performed one after the other."""
        return InlineExecutor(self, self.report) if self.places is None else self.places

    def measure(self, asked: TrialRequest, baseline: Windows | None) -> TrialOutcome:
        """Measure a point, alone, and add it to the ledger: `launches`, gone through.

        KeyboardInterrupt passes through: nothing runs, nothing is recorded.
        """
        return go_through(self.launches(asked, baseline), self.alone)

    def launches(self, asked: TrialRequest, baseline: Windows | None) -> Launches[TrialOutcome]:
        """A point's launches, until one succeeds or none is worth while; then its ledger line.

        An endpoint has its own point, whatever is asked for; it is recorded as what it is.
        `baseline`, where there is one, gives each level its speed-up. A failure is recorded and
        returned, not raised.
        """
        role, point, started = asked.role, asked.point, now()
        phase = Phase(self.run.ledger().next_trial, role, point, "launching")
        retried: list[EngineFailure] = []
        crowded: tuple[str, ...] | None = None
        while True:
            again = retried[-1] if retried else None
            job = LaunchJob(replace(phase, again=again), self.next_launch(), race=asked.race,
                      held_out=asked.held_out)  # fmt: skip
            done: JobResult = yield job
            attempt, failure = done.attempt, done.attempt.failure
            crowded = done.crowded if crowded is None else crowded
            if failure is None or not failure.label.is_worth_a_retry:
                break
            if len(retried) + 1 == ATTEMPTS:
                break
            retried.append(failure)
        if not self.sweep.engine.launches_servers:
            if failure is not None and retried:
                failure = first_cause(retried[0], failure)
            role, point = self._as_it_is(attempt, role, point)
        failure = beside_others(failure, crowded)
        phase = Phase(self.run.ledger().next_trial, role, point, "stopping")
        entry = RecordInput(phase, started, attempt, failure, baseline, tuple(retried), crowded,
                      switch_failure=asked.switch_failure, decision=asked.decision,
                      place=done.place, asked=asked.known, smoothed=asked.smoothed)  # fmt: skip
        record = self.book(entry)
        self.run.append(record)
        return TrialOutcome(record, entry.taken.windows, failure)

    def _as_it_is(
        self, attempt: LaunchResult, role: Role, point: Point | None
    ) -> tuple[Role, Point | None]:
        """What a server that somebody else launched turned out to be, once it has answered."""
        if attempt.info is None:
            return role, point
        own = self.engine.running_point(attempt.info)
        if point in attempt.taken:
            attempt.taken[own] = attempt.taken.pop(point)
        return "baseline" if own is None else "candidate", own

    def next_launch(self) -> int:
        """A launch id that nobody has; of launches that run there may be no trace on disk yet."""
        wanted = max(self.run.ledger().next_launch, self._issued.last + 1)
        self._issued.last = self.run.free_launch(wanted)
        return self._issued.last


def now() -> str:
    """UTC as ledgers write it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
