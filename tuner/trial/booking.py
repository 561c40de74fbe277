"""What is recorded of a trial: its samples, its ledger line. Only who holds the run does this."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.errors import EngineFailure
from tuner.ledger.asked import AskedLine, PlaceLine
from tuner.ledger.judged import TaskLine
from tuner.ledger.limits import broken_limits
from tuner.ledger.raw_samples import held_out_samples
from tuner.ledger.record import SIMULATED, DecisionLine, HeldOut, TrialRecord
from tuner.ledger.run import Run
from tuner.ledger.settled import speedup_figures
from tuner.ledger.side_by_side import beside, figures_of, interference
from tuner.measure.checks import Context, doubts
from tuner.measure.failures import outcome_of
from tuner.measure.metrics import summarise
from tuner.measure.overload import served_elsewhere
from tuner.measure.samples import Window
from tuner.measure.samples_file import write_samples
from tuner.measure.statistics import Interval, speedup
from tuner.search.decision import Decision
from tuner.sweep.level import Level
from tuner.trial.attempt import Attempt, Rig, config_of
from tuner.trial.notes import beside_note, note, retries, version_doubt
from tuner.trial.outputs import far_note, outputs_of, scored
from tuner.trial.phase import Phase
from tuner.trial.taken import Taken, Windows


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
    place: PlaceLine | None = None
    """Where it was measured; None where there is one place only."""
    asked: AskedLine | None = None
    """What the search knew when it proposed it, where that is not what stands above the line."""
    smoothed: Mapping[int, float] = field(default_factory=dict)
    """As of `bench.Asked`."""

    @property
    def taken(self) -> Taken:
        """What was measured of the point."""
        return self.attempt.taken.get(self.phase.point, Taken())


@dataclass(frozen=True)
class Booking(Rig):
    """A rig, and the run whose ledger tells what it measured."""

    run: Run
    random_words: str | None = field(default=None, kw_only=True)
    """What shows that the prompts are no text; None where they are."""
    answers: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    """What is right, by question of the task."""

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
            place=entry.place,
            asked=entry.asked,
            smoothed={str(trial): value for trial, value in entry.smoothed.items()} or None,
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
        below = held_out_samples(self.run, found[-1]) if found and phase.role != "baseline" else {}
        metrics, _ = self._figures(replace(entry, baseline=below or None), windows)
        names = {
            sample.prompt_id for each in windows.values() for w in each for sample in w.samples
        }
        return HeldOut(prompts=len(names), metrics=metrics, samples=self.run.relative(path))

    def _beside(self, entry: Entry, level: Level) -> Interval | None:
        """How others slow its place down, where a candidate had some beside it."""
        place = entry.place
        if place is None or place.alone or entry.phase.role != "candidate":
            return None
        return interference(self.run.ledger(), place, level)

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
        contexts: dict[Level, Context] = {}
        point, baseline = entry.phase.point, entry.baseline
        steps, topk = (point.num_steps, point.eagle_topk) if point else (None, None)
        for level, windows in measured.items() if entry.failure is None else ():
            figures = summarise(windows, steps, topk, self.sweep.search.limits)
            below = () if baseline is None else baseline.get(level, ())
            contexts[level] = Context(
                steps,
                topk,
                self.tokenise_doubt,
                self.random_words,
                self.sweep.workload.rate(level),
                below,
            )
            if baseline is not None:
                metric = self.sweep.search.objective.metric
                known = self._beside(entry, level)
                ratio = beside(speedup(baseline[level], windows, metric), known)
                figures |= {**speedup_figures(ratio), **figures_of(known)}
                if known is not None:
                    checks.append(beside_note(entry.place, level, known))
            metrics[str(level)] = figures
        for level, context in contexts.items():
            context = replace(context, served=served_elsewhere(metrics, str(level)))
            for doubt in doubts(measured[level], metrics[str(level)], context):
                if (told := doubt.to_json()) not in checks:
                    checks.append(told)
        return metrics, checks


def _written(decision: Decision | None) -> DecisionLine | None:
    return None if decision is None else DecisionLine.model_validate(decision.to_json())
