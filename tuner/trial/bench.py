"""One trial: a point measured with a launch of its own, and what is recorded of it."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tuner.engine import gpu
from tuner.engine.base import Engine, server_config
from tuner.engine.endpoint import EndpointEngine
from tuner.engine.process import child_environment
from tuner.errors import EngineFailure
from tuner.ledger.limits import broken_limits
from tuner.ledger.lines import Ledger
from tuner.ledger.record import SIMULATED, DecisionLine, Role, TaskLine, TrialRecord
from tuner.ledger.run import Run
from tuner.measure.checks import Context, doubts
from tuner.measure.failures import beside_others, first_cause, outcome_of
from tuner.measure.metrics import summarise
from tuner.measure.samples import Request, Window
from tuner.measure.samples_file import write_samples
from tuner.measure.statistics import speedup
from tuner.search.decision import Decision
from tuner.sweep.artificial import made_up
from tuner.sweep.door import LoadedSweep
from tuner.sweep.point import Point
from tuner.sweep.random_words import random_words
from tuner.sweep.turns import to_send
from tuner.sweep.workload import pick
from tuner.trial.attempt import ATTEMPTS, Attempt, Phase, Rig
from tuner.trial.outputs import far_note, outputs_of, scored
from tuner.trial.race import Race
from tuner.trial.taken import Taken, Windows


@dataclass(frozen=True)
class Asked:
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


@dataclass(frozen=True)
class Measured:
    """A recorded trial. `failure` says why it has no numbers, None where it has."""

    record: TrialRecord
    windows: Windows
    failure: EngineFailure | None


@dataclass(frozen=True)
class Entry:
    """What a ledger line is made of, beside what the run knows."""

    phase: Phase
    """The trial's number, role and point."""
    started: str
    attempt: Attempt
    """The launch that it ends with."""
    failure: EngineFailure | None
    baseline: Windows | None
    """Gives each level its speed-up, where there is one."""
    retried: tuple[EngineFailure, ...] = ()
    """Launches before that failed."""
    crowded: tuple[str, ...] = ()
    """What others held of the GPUs before the launch."""
    proposed: bool = True
    switch_failure: str | None = None
    decision: Decision | None = None

    @property
    def taken(self) -> Taken:
        """What was measured of the point."""
        return self.attempt.taken.get(self.phase.point, Taken())


@dataclass(frozen=True)
class Bench(Rig):
    """Measures points and books them in the run's ledger."""

    random_words: str | None = field(default=None, kw_only=True)
    """What shows that the prompts are no text; None where they are."""
    answers: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    """What is right, by question of the task."""

    @classmethod
    def prepare(
        cls, engine: Engine, loaded: LoadedSweep, run: Run, report: Callable[[Phase], None]
    ) -> "Bench":
        """Choose and tokenise the prompts. Raises EngineFailure where tokenising fails."""
        workload = loaded.sweep.workload
        counts = {level: max(workload.requests, level) for level in workload.concurrency}
        prompts = pick(loaded.prompts, max(counts.values()), workload.seed)
        sent = {n: to_send(prompts, workload.turns, count, n) for n, count in counts.items()}
        tokenised = engine.tokenise(max(sent.values(), key=len))
        requests = {level: tokenised.requests[: len(each)] for level, each in sent.items()}
        asked: tuple[Request, ...] = ()
        if loaded.task and made_up(loaded.sweep, os.environ) is None:
            asked = engine.tokenise([each.prompt for each in loaded.task]).requests
        return cls(
            engine,
            loaded.sweep,
            run,
            requests,
            tokenised.doubt,
            report,
            task=asked,
            random_words=random_words([prompt.text for prompt in loaded.prompts]),
            answers={each.prompt.id: each.answer for each in loaded.task},
        )

    def measure(self, asked: Asked, baseline: Windows | None) -> Measured:
        """Measure a point and add it to the ledger.

        An endpoint has its own point, whatever is asked for; it is recorded as what it is.
        `baseline`, where there is one, gives each level its speed-up. A failure is recorded and
        returned, not raised. KeyboardInterrupt passes through: nothing runs, nothing is recorded.
        """
        ledger, role, point = self.run.ledger(), asked.role, asked.point
        trial, launch_id = ledger.next_trial, self.run.free_launch(ledger.next_launch)
        started = now()
        retried: list[EngineFailure] = []
        crowded = self.crowded(point)
        while True:
            again = retried[-1] if retried else None
            phase = Phase(trial, role, point, "launching", again=again)
            attempt = self.attempt(phase, launch_id, race=asked.race)
            failure = attempt.failure
            if failure is None or not failure.label.is_worth_a_retry:
                break
            if len(retried) + 1 == ATTEMPTS:
                break
            retried.append(failure)
            launch_id = self.run.free_launch(launch_id + 1)
        if isinstance(self.engine, EndpointEngine):
            if failure is not None and retried:
                failure = first_cause(retried[0], failure)
            if attempt.info is not None:
                own = self.engine.point_of(attempt.info)
                role = "baseline" if own is None else "candidate"
                if point in attempt.taken:
                    attempt.taken[own] = attempt.taken.pop(point)
                phase = Phase(trial, role, own, "stopping")
        failure = beside_others(failure, crowded)
        entry = Entry(phase, started, attempt, failure, baseline, tuple(retried), crowded,
                      switch_failure=asked.switch_failure, decision=asked.decision)  # fmt: skip
        record = self.book(entry)
        self.run.append(record)
        return Measured(record, entry.taken.windows, failure)

    def book(self, entry: Entry) -> TrialRecord:
        """The ledger line of a trial; its samples are on the disk when this returns."""
        phase, attempt, failure = entry.phase, entry.attempt, entry.failure
        samples = None
        if entry.taken.windows:
            samples = self.run.samples_file(phase.trial)
            write_samples(samples, entry.taken.windows)
        metrics, checks = self._figures(entry)
        outputs = {}
        if entry.baseline is not None and failure is None:
            outputs = outputs_of(self.sweep, entry.baseline, entry.taken.windows)
            checks += far_note(outputs)
        checks += [_note(s.reason, "note", s.words) for s in entry.taken.stopped.values()]
        if attempt.stop_failure is not None:
            checks.append(_note("stop", "doubt", str(attempt.stop_failure)))
        checks += _retries(entry.retried)
        checks += _version_doubt(self.run.ledger(), attempt)
        checks += [_note("GPU memory", "doubt", f"{e}, before the launch") for e in entry.crowded]
        if entry.switch_failure is not None:
            message = f"a launch for several chain lengths failed: {entry.switch_failure}"
            checks.append(_note("step switch", "note", message))
        seconds = entry.taken.seconds
        return TrialRecord(
            trial=phase.trial,
            role=phase.role,
            point=None if phase.point is None else phase.point.to_json(),
            outcome=outcome_of(failure),
            failure=None if failure is None else failure.label.value,
            message=None if failure is None else failure.message,
            engine=SIMULATED if SIMULATED in (attempt.info or {}) else self.engine.name,
            engine_version=attempt.engine_version,
            launch_id=attempt.launch_id,
            launch_s=attempt.launch_s,
            command=self._command(phase.point),
            started=entry.started,
            measured_s=None if seconds is None else round(seconds, 3),
            metrics=metrics,
            checks=checks,
            samples=None if samples is None else self.run.relative(samples),
            warm_steps=list(attempt.warm_steps),
            proposed=entry.proposed,
            switch_failure=entry.switch_failure,
            decision=_written(entry.decision),
            broken=broken_limits(metrics, self.sweep.search),
            outputs=outputs,
            task=None if failure is not None else self._task(phase, entry.taken.task),
        )

    def _task(self, phase: Phase, window: Window | None) -> TaskLine | None:
        """The task's score; its answers are on the disk when this returns."""
        if window is None:
            return None
        file = self.run.samples_file(phase.trial, "task")
        write_samples(file, {window.concurrency: [window]})
        baseline = self.run.ledger().baseline if phase.role != "baseline" else None
        before = None if baseline is None else baseline.task
        return scored(self.sweep, self.answers, window, before, self.run.relative(file))

    def crowded(self, point: Point | None) -> tuple[str, ...]:
        """What others hold of the GPUs that a launch of the point will see."""
        if self.engine.name != "sglang":
            return ()
        config = server_config(self.sweep, point)
        return tuple(gpu.crowded(child_environment(config.env, config.unset, mark="")))

    def _command(self, point: Point | None) -> dict[str, Any] | None:
        """The point's own launch, also where it was measured in a shared one."""
        command = self.engine.command(server_config(self.sweep, point))
        return command.to_json() if command.argv else None

    def _figures(self, entry: Entry) -> tuple[dict[str, dict[str, Any]], list[dict[str, str]]]:
        """Metrics by concurrency and doubts about them; none of a failed trial."""
        metrics: dict[str, dict[str, Any]] = {}
        checks: list[dict[str, str]] = []
        point, baseline = entry.phase.point, entry.baseline
        steps, topk = (point.num_steps, point.eagle_topk) if point else (None, None)
        for level, windows in entry.taken.windows.items() if entry.failure is None else ():
            figures = summarise(windows, steps, topk, self.sweep.search.limits)
            below = () if baseline is None else baseline.get(level, ())
            context = Context(steps, topk, self.tokenise_doubt, self.random_words, below)
            if baseline is not None:
                metric = self.sweep.search.objective.metric
                ratio = speedup(baseline[level], windows, metric)
                figures |= {
                    "speedup": ratio and ratio.value,
                    "speedup_low": ratio and ratio.low,
                    "speedup_high": ratio and ratio.high,
                }
            metrics[str(level)] = figures
            for doubt in doubts(windows, figures, context):
                if (note := doubt.to_json()) not in checks:
                    checks.append(note)
        return metrics, checks


def now() -> str:
    """UTC as ledgers write it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _written(decision: Decision | None) -> DecisionLine | None:
    return None if decision is None else DecisionLine.model_validate(decision.to_json())


def _retries(failures: Iterable[EngineFailure]) -> list[dict[str, str]]:
    return [_note("retried", "note", f"a launch failed before: {each}") for each in failures]


def _version_doubt(ledger: Ledger, attempt: Attempt) -> list[dict[str, str]]:
    """Another release than the baseline's, as after an upgrade before a resume."""
    first, later = ledger.baseline, attempt.engine_version
    if first is None or later is None or first.engine_version == later:
        return []
    message = f"measured with {later}, the baseline with {first.engine_version}: begin a new run"
    return [_note("engine version", "doubt", message)]


def _note(check: str, level: str, message: str) -> dict[str, str]:
    return {"check": check, "level": level, "message": message}
