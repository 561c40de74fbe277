"""One trial: a point measured with a launch of its own, and what is recorded of it."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from tuner.engine import gpu
from tuner.engine.base import Engine, server_config
from tuner.engine.endpoint import EndpointEngine
from tuner.engine.process import child_environment
from tuner.errors import EngineFailure
from tuner.ledger.judged import TaskLine
from tuner.ledger.limits import broken_limits
from tuner.ledger.raw_samples import held_out_of
from tuner.ledger.record import SIMULATED, DecisionLine, HeldOut, Role, TrialRecord
from tuner.ledger.run import Run
from tuner.ledger.settled import speedup_figures
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
from tuner.trial.attempt import ATTEMPTS, Attempt, Rig, config_of
from tuner.trial.notes import note, retries, version_doubt
from tuner.trial.outputs import far_note, outputs_of, scored
from tuner.trial.phase import Phase
from tuner.trial.race import Race
from tuner.trial.sent import sent_of
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
    held_out: bool = False
    """Whether it is also measured on prompts that no candidate is chosen on."""


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
        found = sent_of(loaded)
        sent, unseen = found.chosen_on, found.unseen
        whole = max(sent.values(), key=len)
        tokenised = engine.tokenise((*whole, *max(unseen.values(), key=len)))
        first, second = tokenised.requests[: len(whole)], tokenised.requests[len(whole) :]
        asked: tuple[Request, ...] = ()
        if loaded.task and made_up(loaded.sweep, os.environ) is None:
            asked = engine.tokenise([each.prompt for each in loaded.task]).requests
        return cls(
            engine,
            loaded.sweep,
            run,
            {level: first[: len(each)] for level, each in sent.items()},
            tokenised.doubt,
            report,
            held_out={level: second[: len(each)] for level, each in unseen.items() if second},
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
            attempt = self.attempt(phase, launch_id, race=asked.race, held_out=asked.held_out)
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
        checks += [note(s.reason, "note", s.words) for s in entry.taken.stopped.values()]
        if attempt.stop_failure is not None:
            checks.append(note("stop", "doubt", str(attempt.stop_failure)))
        checks += retries(entry.retried)
        checks += version_doubt(self.run.ledger(), attempt)
        checks += [note("GPU memory", "doubt", f"{e}, before the launch") for e in entry.crowded]
        if entry.switch_failure is not None:
            message = f"a launch for several chain lengths failed: {entry.switch_failure}"
            checks.append(note("step switch", "note", message))
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
            command=self._command(phase),
            started=entry.started,
            measured_s=None if seconds is None else round(seconds, 3),
            metrics=metrics,
            checks=checks,
            samples=None if samples is None else self.run.relative(samples),
            warm_steps=list(attempt.warm_steps),
            proposed=entry.proposed,
            switch_failure=entry.switch_failure,
            decision=_written(entry.decision),
            held_out=self._held_out(entry),
            broken=broken_limits(metrics, self.sweep.search, entry.baseline),
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

    def _held_out(self, entry: Entry) -> HeldOut | None:
        """What was measured on prompts that no candidate is chosen on, beside the last baseline's
        on them; their samples are on the disk when this returns."""
        windows, phase = entry.taken.held_out, entry.phase
        if not windows or entry.failure is not None:
            return None
        path = self.run.held_out_file(phase.trial)
        write_samples(path, windows)
        found = [each for each in self.run.ledger().baselines if each.held_out is not None]
        below = held_out_of(self.run, found[-1]) if found and phase.role != "baseline" else {}
        metrics, _ = self._figures(replace(entry, baseline=below or None), windows)
        names = {
            sample.prompt_id for each in windows.values() for w in each for sample in w.samples
        }
        return HeldOut(prompts=len(names), metrics=metrics, samples=self.run.relative(path))

    def crowded(self, point: Point | None) -> tuple[str, ...]:
        """What others hold of the GPUs that a launch of the point will see."""
        if self.engine.name != "sglang":
            return ()
        config = server_config(self.sweep, point)
        return tuple(gpu.crowded(child_environment(config.env, config.unset, mark="")))

    def _command(self, phase: Phase) -> dict[str, Any] | None:
        """The point's own launch, also where it was measured in a shared one."""
        command = self.engine.command(config_of(self.sweep, phase))
        return command.to_json() if command.argv else None

    def _figures(
        self, entry: Entry, taken: Windows | None = None
    ) -> tuple[dict[str, dict[str, Any]], list[dict[str, str]]]:
        """Metrics by concurrency and doubts about them; none of a failed trial. `taken`: of other
        windows than the trial's usual ones."""
        measured = entry.taken.windows if taken is None else taken
        metrics: dict[str, dict[str, Any]] = {}
        checks: list[dict[str, str]] = []
        point, baseline = entry.phase.point, entry.baseline
        steps, topk = (point.num_steps, point.eagle_topk) if point else (None, None)
        for level, windows in measured.items() if entry.failure is None else ():
            figures = summarise(windows, steps, topk, self.sweep.search.limits)
            below = () if baseline is None else baseline.get(level, ())
            context = Context(
                steps,
                topk,
                self.tokenise_doubt,
                self.random_words,
                self.sweep.workload.rate(level),
                below,
            )
            if baseline is not None:
                metric = self.sweep.search.objective.metric
                figures |= speedup_figures(speedup(baseline[level], windows, metric))
            metrics[str(level)] = figures
            for doubt in doubts(windows, figures, context):
                if (told := doubt.to_json()) not in checks:
                    checks.append(told)
        return metrics, checks


def now() -> str:
    """UTC as ledgers write it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _written(decision: Decision | None) -> DecisionLine | None:
    return None if decision is None else DecisionLine.model_validate(decision.to_json())
