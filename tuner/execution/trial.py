"""Trials: points measured with launches of their own or with a shared one, and their records.

A shared launch measures all points of a block on one server that goes from length to length. It
needs more than a point's own launch: memory for more graphs, a longer start, a server that
switches. Its failure says nothing about one of its points, so it never fails one: what it did not
measure gets launches of its own.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Generic, Protocol, TypeVar

from tuner.config.loader import LoadedSweep
from tuner.config.point import Point
from tuner.config.random_text import describe_random_text
from tuner.config.synthetic import made_up
from tuner.core.errors import EngineFailure
from tuner.execution.executor import Executor, InlineExecutor, LaunchFuture
from tuner.execution.launch import ATTEMPTS, LaunchJob, LaunchResult
from tuner.execution.measurement import Windows
from tuner.execution.progress import Phase
from tuner.execution.recording import RecordInput, TrialRecorder, TrialRequest
from tuner.execution.request_plan import plan_requests
from tuner.loadgen.client import beside_others, first_cause
from tuner.metrics.samples import Request
from tuner.runs.records import Role, TrialRecord
from tuner.runs.run import Run
from tuner.server.base import Engine
from tuner.server.process import interrupts_deferred


@dataclass(frozen=True)
class TrialOutcome:
    """A recorded trial."""

    record: TrialRecord
    windows: Windows
    failure: EngineFailure | None
    """Why the trial has no numbers; None if it has."""


@dataclass
class _Issued:
    """The last launch id that was given away; its log may not be there yet."""

    last: int = -1


@dataclass(frozen=True)
class TrialRunner(TrialRecorder):
    """Decides what to launch for a trial, and records the result. An executor performs."""

    concurrent: Executor | None = field(default=None, kw_only=True)
    """Executor of several launches at a time; None: launches are performed in this process."""
    _issued: _Issued = field(default_factory=_Issued, kw_only=True)

    @classmethod
    def prepare(
        cls, engine: Engine, loaded: LoadedSweep, run: Run, report: Callable[[Phase], None]
    ) -> "TrialRunner":
        """Choose and tokenise the prompts. Raises EngineFailure if tokenising fails."""
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
    def executor(self) -> Executor:
        """The executor that performs this runner's launches."""
        return InlineExecutor(self, self.report) if self.concurrent is None else self.concurrent

    def measure(self, request: TrialRequest, baseline: Windows | None) -> TrialOutcome:
        """Measure a point when nothing else runs, and record the trial.

        KeyboardInterrupt passes through: nothing runs, nothing is recorded.
        """
        trial = SingleTrial(self, request, baseline)
        self._perform(trial)
        return trial.outcome

    def measure_block(self, request: TrialRequest, baseline: Windows) -> list[TrialRecord]:
        """Measure the points of `request` in one launch when nothing else runs. See `SharedTrial`.

        KeyboardInterrupt passes through: nothing runs. What a launch before has measured whole is
        recorded.
        """
        return self._perform(SharedTrial(self, request, baseline))

    def _perform(self, trial: "Trial") -> list[TrialRecord]:
        pool: TrialPool[None] = TrialPool(self)
        try:
            pool.begin(None, trial)
            return pool.wait()[1]
        except BaseException:
            pool.abort()
            raise

    def next_launch(self) -> int:
        """Return an unused launch id. A launch that runs may have left no trace on disk yet."""
        wanted = max(self.run.ledger().next_launch, self._issued.last + 1)
        self._issued.last = self.run.free_launch(wanted)
        return self._issued.last


class Trial(Protocol):
    """A trial, or several that share launches, while it goes on."""

    job: LaunchJob | None
    """The launch that is due. None: the trial is over."""
    records: list[TrialRecord]
    """What was recorded of it, when it is over."""

    def add(self, result: LaunchResult) -> None:
        """Take the result of `job`. Record the trial, or decide on a further launch."""

    def abort(self) -> None:
        """Record what was measured whole: there is no further launch."""


class SingleTrial:
    """A point's launches, until one succeeds or none is worth while; then its record.

    An endpoint has a point of its own, whatever is requested; the record has that one. A failure is
    recorded, not raised.
    """

    outcome: TrialOutcome

    def __init__(
        self, runner: TrialRunner, request: TrialRequest, baseline: Windows | None
    ) -> None:
        """`baseline` gives each level its speed-up."""
        self._runner, self._request, self._baseline = runner, request, baseline
        self._started = now()
        self._phase = Phase(
            runner.run.ledger().next_trial, request.role, request.point, "launching"
        )
        self._retried: list[EngineFailure] = []
        self._gpus_in_use: tuple[str, ...] | None = None
        self.records: list[TrialRecord] = []
        self.job: LaunchJob | None = self._next_job()

    def _next_job(self) -> LaunchJob:
        request, again = self._request, self._retried[-1] if self._retried else None
        return LaunchJob(
            replace(self._phase, again=again),
            self._runner.next_launch(),
            race=request.race,
            held_out=request.held_out,
        )

    def add(self, result: LaunchResult) -> None:
        """Launch once more if the failure is worth it, else record the trial."""
        failure = result.failure
        if self._gpus_in_use is None:
            self._gpus_in_use = result.gpus_in_use
        self.job = None
        may_retry = len(self._retried) + 1 < ATTEMPTS
        if failure is not None and failure.label.is_worth_a_retry and may_retry:
            self._retried.append(failure)
            self.job = self._next_job()
            return
        self._record(result, self._gpus_in_use)

    def abort(self) -> None:
        """Record nothing: a trial that was cut off is measured again."""

    def _record(self, result: LaunchResult, in_use: tuple[str, ...]) -> None:
        runner, request, failure = self._runner, self._request, result.failure
        role, point = request.role, request.point
        if not runner.sweep.engine.launches_servers:
            if failure is not None and self._retried:
                failure = first_cause(self._retried[0], failure)
            role, point = _as_it_is(runner.engine, result, role, point)
        failure = beside_others(failure, in_use)
        entry = RecordInput(
            phase=Phase(runner.run.ledger().next_trial, role, point, "stopping"),
            started=self._started,
            result=result,
            failure=failure,
            baseline=self._baseline,
            retried=tuple(self._retried),
            gpus_in_use=in_use,
            request=request,
        )
        record = runner.book(entry)
        runner.run.append(record)
        self.records = [record]
        self.outcome = TrialOutcome(record, entry.taken.windows, failure)


def _as_it_is(
    engine: Engine, result: LaunchResult, role: Role, point: Point | None
) -> tuple[Role, Point | None]:
    """Return what a server that somebody else launched turned out to be, once it has answered."""
    if result.info is None:
        return role, point
    own = engine.running_point(result.info)
    if point in result.taken:
        result.taken[own] = result.taken.pop(point)
    return "baseline" if own is None else "candidate", own


class SharedTrial:
    """The shared launches of several points; then their records, the first point's first.

    A launch whose failure is worth a retry is made once more for what it did not complete. If the
    first point is left after that, it is measured with a launch of its own. The other points that
    are left are not recorded, for the search to come back to.
    """

    def __init__(self, runner: TrialRunner, request: TrialRequest, baseline: Windows) -> None:
        assert request.point is not None
        self._runner, self._request, self._baseline = runner, request, baseline
        self._points = self._left = (request.point, *request.along)
        self._started = now()
        self._number = runner.run.ledger().next_trial
        self._gpus_in_use: tuple[str, ...] | None = None
        self._measured: dict[Point, tuple[LaunchResult, tuple[EngineFailure, ...]]] = {}
        """The launch that measured a point whole, and what failed before it."""
        self._failures: list[EngineFailure] = []
        self._own: SingleTrial | None = None
        """The first point with a launch of its own."""
        self.records: list[TrialRecord] = []
        self.job: LaunchJob | None = self._next_job()

    def _next_job(self) -> LaunchJob:
        first, *along = self._left
        again = self._failures[-1] if self._failures else None
        sharing = len(self._left)
        phase = Phase(
            self._number, self._request.role, first, "launching", again=again, sharing=sharing
        )
        return LaunchJob(phase, self._runner.next_launch(), tuple(along), self._request.race)

    def add(self, result: LaunchResult) -> None:
        """Keep what was measured whole. Launch once more for the rest if that is worth it."""
        if self._own is not None:
            self._own.add(result)
            self.job = self._own.job
            if self.job is None:
                self.records = [*self._own.records, *self._record()]
            return
        if self._gpus_in_use is None:
            self._gpus_in_use = result.gpus_in_use
        for point in self._left:
            if self._runner.is_complete(result.taken.get(point)):
                self._measured[point] = result, tuple(self._failures)
        self._left = tuple(point for point in self._left if point not in self._measured)
        self.job = None
        if result.failure is not None:
            self._failures.append(result.failure)
            is_worth = result.failure.label.is_worth_a_retry and len(self._failures) < ATTEMPTS
            if is_worth and len(self._left) > 1:  # one point alone has a launch of its own
                self.job = self._next_job()
                return
        if self._points[0] in self._left and self._request.is_proposed:
            alone = replace(self._request, along=(), switch_failure=self._why)
            self._own = SingleTrial(self._runner, alone, self._baseline)
            self.job = self._own.job
        else:
            self.records = self._record()

    def abort(self) -> None:
        """Record what was measured whole before the first point's own launch."""
        if self._own is not None and self.job is not None:
            self._record()

    @property
    def _why(self) -> str | None:
        """Why points are left; None if none is."""
        return str(self._failures[-1]) if self._left else None

    def _record(self) -> list[TrialRecord]:
        """Add the points that were measured whole to the ledger, in one write."""
        runner, request = self._runner, self._request
        trial, booked = runner.run.ledger().next_trial, list[TrialRecord]()
        for point in (point for point in self._points if point in self._measured):
            result, before = self._measured[point]
            single = replace(request, point=point, switch_failure=self._why)
            if point != self._points[0]:
                single = replace(single, is_proposed=False, decision=None)
            entry = RecordInput(
                phase=Phase(trial + len(booked), request.role, point, "stopping"),
                started=self._started,
                result=result,
                failure=None,
                baseline=self._baseline,
                retried=before,
                gpus_in_use=self._gpus_in_use or (),
                request=single,
            )
            booked.append(runner.book(entry))
        runner.run.append(*booked)
        return booked


Tag = TypeVar("Tag")


@dataclass(eq=False)
class _Running(Generic[Tag]):
    tag: Tag
    trial: Trial
    future: LaunchFuture | None = None


class TrialPool(Generic[Tag]):
    """Trials that go on at the same time, each with what its caller wants back with its records."""

    def __init__(self, runner: TrialRunner) -> None:
        self._runner, self.executor = runner, runner.executor
        self._running: list[_Running[Tag]] = []

    @property
    def tags(self) -> list[Tag]:
        """Tags of what runs, in the order of their last launches."""
        return [running.tag for running in self._running]

    @property
    def has_room(self) -> bool:
        """True if another trial may begin."""
        return len(self._running) < self.executor.count

    def begin(self, tag: Tag, trial: Trial) -> None:
        """Submit the first launch of a trial. Only if there is room."""
        self._submit(_Running(tag, trial))

    def wait(self) -> tuple[Tag, list[TrialRecord]]:
        """Wait until a trial is over and recorded. Only while one runs."""
        while True:
            futures = [each.future for each in self._running if each.future is not None]
            done = self.executor.wait(futures)
            running = next(each for each in self._running if each.future is done)
            self._add(running, done.result())
            if running.trial.job is None:
                return running.tag, running.trial.records
            self._submit(running)

    def abort(self) -> None:
        """End everything. Record what was complete or measured whole by then.

        The caller calls it for whatever is raised while something runs.
        """
        with interrupts_deferred():
            self.executor.close()
            for running in self._running:
                if running.future is not None and _is_complete(running.future):
                    running.trial.add(running.future.result())
                running.trial.abort()
            self._running.clear()

    def _submit(self, running: _Running[Tag]) -> None:
        assert running.trial.job is not None
        running.future = None
        self._running.append(running)
        running.future = self.executor.submit(running.trial.job)

    def _add(self, running: _Running[Tag], result: LaunchResult) -> None:
        """Give a trial its result, and report that the place is free: the next launch may be made
        in another one."""
        runner, job = self._runner, running.trial.job
        assert job is not None
        if runner.guard is not None:
            runner.guard.learn(job.config(runner.sweep), runner.run.log_file(job.launch_id))
        if result.place is not None:
            over = replace(job.phase, doing="over", place=result.place.name, again=None)
            runner.report(over)
        self._running.remove(running)
        try:
            running.trial.add(result)
        except BaseException:
            running.trial.abort()
            raise


def _is_complete(future: LaunchFuture) -> bool:
    """Return True if the launch has a result."""
    return future.done() and not future.cancelled() and future.exception() is None


def now() -> str:
    """Return the time as ledgers write it, in UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
