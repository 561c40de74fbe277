"""Records of trials: samples and ledger lines. Only the process that holds the run writes them."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.config.load_level import Level, at
from tuner.config.point import Point
from tuner.config.schema import Sweep
from tuner.config.synthetic import no_output_to_compare
from tuner.config.task_dataset import last_number
from tuner.core import formatting
from tuner.core.errors import EngineFailure
from tuner.execution.early_stopping import Race
from tuner.execution.launch import LaunchContext, LaunchResult, phase_config
from tuner.execution.measurement import PointMeasurement, Windows
from tuner.execution.progress import Phase
from tuner.loadgen.client import count_outcome
from tuner.metrics.catalogue import summarise
from tuner.metrics.level_metrics import speedup_figures
from tuner.metrics.output_comparison import OutputComparison, judge, mark, worse
from tuner.metrics.request_rate import served_elsewhere
from tuner.metrics.samples import Window
from tuner.metrics.samples_file import write_samples
from tuner.metrics.statistics import Interval, speedup
from tuner.metrics.warnings import Context, doubts
from tuner.runs.latency_limits import broken_limits
from tuner.runs.ledger import Ledger
from tuner.runs.raw_samples import held_out_samples
from tuner.runs.records import (
    SIMULATED,
    DecisionLine,
    HeldOut,
    OutputCounts,
    OutputsLine,
    PlaceLine,
    Role,
    TaskLine,
    TrialRecord,
)
from tuner.runs.run import Run
from tuner.runs.slot_interference import beside, interference, slot_figures, slowed
from tuner.search.decision import Decision


@dataclass(frozen=True)
class TrialRequest:
    """What to measure, and why."""

    role: Role
    point: Point | None
    """None: no speculation."""
    decision: Decision | None = None
    """The search's reason for the first point, if it gave one."""
    switch_failure: str | None = None
    """Why the point is not measured in a shared launch, if one failed."""
    race: Race | None = None
    """Whom the points are raced against, and among each other; None: every window is measured."""
    held_out: bool = False
    """Measure the point also on prompts that no candidate is chosen on."""
    smoothed: Mapping[int, float] = field(default_factory=dict)
    """Objectives of candidates by all measurements together, by trial, that the choice of this one
    rests on."""
    along: tuple[Point, ...] = field(default=(), kw_only=True)
    """Further points of its block, to measure in the same launch."""
    is_proposed: bool = field(default=True, kw_only=True)
    """False if the search proposed none of the points: the rest of a launch that was cut off."""


@dataclass(frozen=True)
class RecordInput:
    """Everything that a record is made of, besides what the run knows."""

    phase: Phase
    """The trial's number, role and point."""
    started: str
    result: LaunchResult
    """The launch that the trial ends with."""
    failure: EngineFailure | None
    baseline: Windows | None
    """Gives each level its speed-up, if there is one."""
    retried: tuple[EngineFailure, ...]
    """Failures of the launches before."""
    gpus_in_use: tuple[str, ...]
    """What other processes held of the GPUs before the first launch."""
    request: TrialRequest
    """What was requested of this point."""

    @property
    def taken(self) -> PointMeasurement:
        """What was measured of the point."""
        return self.result.taken.get(self.phase.point, PointMeasurement())


@dataclass(frozen=True)
class TrialRecorder(LaunchContext):
    """What every launch of a run shares, and the run whose ledger gets the records."""

    run: Run
    random_words: str | None = field(default=None, kw_only=True)
    """Evidence that the prompts are no text; None if they are text."""
    answers: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    """The right answers, by question of the task."""

    def book(self, entry: RecordInput) -> TrialRecord:
        """Return the record of a trial. Its samples are on the disk then."""
        phase, result, failure = entry.phase, entry.result, entry.failure
        request = entry.request
        samples = None
        if entry.taken.windows:
            samples = self.run.samples_file(phase.trial)
            write_samples(samples, entry.taken.windows)
        metrics, checks = self._figures(entry)
        outputs = {}
        if entry.baseline is not None and failure is None:
            outputs = comparable_outputs(self.sweep, entry.baseline, entry.taken.windows)
            checks += far_note(outputs)
        checks += [note(s.reason, "note", s.words) for s in entry.taken.stopped.values()]
        if result.stop_failure is not None:
            checks.append(note("stop", "doubt", str(result.stop_failure)))
        checks += retries(entry.retried)
        checks += version_doubt(self.run.ledger(), result)
        for process in entry.gpus_in_use:
            checks.append(note("GPU memory", "doubt", f"{process}, before the launch"))
        if request.switch_failure is not None:
            message = f"a launch for several chain lengths failed: {request.switch_failure}"
            checks.append(note("step switch", "note", message))
        seconds = entry.taken.seconds
        return TrialRecord(
            trial=phase.trial,
            role=phase.role,
            point=None if phase.point is None else phase.point.to_json(),
            outcome=count_outcome(failure),
            failure=None if failure is None else failure.label.value,
            message=None if failure is None else failure.message,
            engine=SIMULATED if SIMULATED in (result.info or {}) else self.engine.name,
            engine_version=result.engine_version,
            launch_id=result.launch_id,
            launch_s=result.launch_s,
            command=self._command(phase),
            started=entry.started,
            measured_s=None if seconds is None else round(seconds, 3),
            metrics=metrics,
            checks=checks,
            samples=None if samples is None else self.run.relative(samples),
            warm_steps=list(result.warm_steps),
            proposed=request.is_proposed,
            switch_failure=request.switch_failure,
            decision=_written(request.decision),
            held_out=self._held_out(entry),
            broken=broken_limits(metrics, self.sweep.search, entry.baseline),
            outputs=outputs,
            task=None if failure is not None else self._task(phase, entry.taken.task),
            place=entry.result.place,
            smoothed={str(trial): value for trial, value in request.smoothed.items()} or None,
        )

    def _task(self, phase: Phase, window: Window | None) -> TaskLine | None:
        """Return the task's score. Its answers are on the disk then."""
        if window is None:
            return None
        file = self.run.samples_file(phase.trial, "task")
        write_samples(file, {window.concurrency: [window]})
        baseline = self.run.ledger().baseline if phase.role != "baseline" else None
        before = None if baseline is None else baseline.task
        return scored(self.sweep, self.answers, window, before, self.run.relative(file))

    def _held_out(self, entry: RecordInput) -> HeldOut | None:
        """Return the metrics on prompts that no candidate is chosen on.

        Speed-ups are over the last baseline's windows on them. Their samples are on the disk then.
        """
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

    def _beside(self, entry: RecordInput, level: Level) -> Interval | None:
        """Return how much concurrent servers slow down the place of a candidate, if it had some."""
        place = entry.result.place
        if place is None or place.alone or entry.phase.role != "candidate":
            return None
        return interference(self.run.ledger(), place, level)

    def _command(self, phase: Phase) -> dict[str, Any] | None:
        """Return the command of the point's own launch, even if it was measured in a shared one."""
        command = self.engine.command(phase_config(self.sweep, phase))
        return command.to_json() if command.argv else None

    def _figures(
        self, entry: RecordInput, taken: Windows | None = None
    ) -> tuple[dict[str, dict[str, Any]], list[dict[str, str]]]:
        """Return metrics by concurrency and warnings about them. A failed trial has none.

        `taken` has other windows than the trial's usual ones.
        """
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
                figures |= {**speedup_figures(ratio), **slot_figures(known)}
                if known is not None:
                    checks.append(beside_note(entry.result.place, level, known))
            metrics[str(level)] = figures
        for level, context in contexts.items():
            context = replace(context, served=served_elsewhere(metrics, str(level)))
            for doubt in doubts(measured[level], metrics[str(level)], context):
                if (told := doubt.to_json()) not in checks:
                    checks.append(told)
        return metrics, checks


def _written(decision: Decision | None) -> DecisionLine | None:
    return None if decision is None else DecisionLine.model_validate(decision.to_json())


def retries(failures: Iterable[EngineFailure]) -> list[dict[str, str]]:
    return [note("retried", "note", f"a launch failed before: {each}") for each in failures]


def version_doubt(ledger: Ledger, result: LaunchResult) -> list[dict[str, str]]:
    """Return a check if the release differs from the baseline's, as after an upgrade."""
    first, later = ledger.baseline, result.engine_version
    if first is None or later is None or first.engine_version == later:
        return []
    message = f"measured with {later}, the baseline with {first.engine_version}: begin a new run"
    return [note("engine version", "doubt", message)]


def beside_note(place: PlaceLine | None, level: Level, known: Interval) -> dict[str, str]:
    """Return the check of a place whose servers are slower, or faster, while others run."""
    name = "its place" if place is None else place.name
    message = (
        f"with servers beside it {name} serves no speculation at {formatting.ratio(known)} times "
        f"the speed that it has alone, {at(level)}: the speed-up is held against that"
    )
    return note("side by side", "doubt" if slowed(known) else "note", message)


def note(check: str, level: str, message: str) -> dict[str, str]:
    return {"check": check, "level": level, "message": message}


NONE_KEPT = "no complete output with token ids on both sides"


def comparable_outputs(
    sweep: Sweep, baseline: Windows, measured: Windows
) -> dict[str, OutputsLine]:
    """Return comparisons by concurrency; {} if `measure.outputs` is `ignore`."""
    if sweep.measure.outputs == "ignore":
        return {}
    why = no_output_to_compare(sweep, os.environ)
    return {
        str(level): _line(sweep, baseline, level, windows, why)
        for level, windows in measured.items()
    }


def _line(
    sweep: Sweep, baseline: Windows, level: Level, windows: Sequence[Window], why: str | None
) -> OutputsLine:
    elsewhere = [each[0] for other, each in baseline.items() if other != level and each]
    limit, judged = sweep.measure.outputs_off, None
    if why is None:
        judged = judge(baseline.get(level, ()), windows, limit, elsewhere)
    if judged is None:
        return OutputsLine(outcome="not compared", why=why or NONE_KEPT)
    return OutputsLine(
        outcome=judged.outcome,
        stops=judged.outcome == "far" and sweep.measure.outputs == "stop",
        found=_counts(judged.found),
        itself=None if judged.itself is None else _counts(judged.itself),
        across=None if judged.across is None else _counts(judged.across),
    )


def _counts(comparison: OutputComparison) -> OutputCounts:
    return OutputCounts(**comparison.to_json())


def far_note(outputs: Mapping[str, OutputsLine]) -> list[dict[str, str]]:
    """The check of a trial whose outputs are far from the baseline's; [] of any other."""
    for level, line in outputs.items():
        if line.outcome == "far" and (found := line.found) is not None:
            message = (
                f"{at(level)} greedy outputs are far from the baseline's: {found.off} "
                f"of {found.prompts} prompts part within the first tokens or end in a loop, so "
                "wrong tokens are accepted: look at the draft's patch, the tree and the kernels"
            )
            return [{"check": "outputs", "level": "doubt", "message": message}]
    return []


def scored(
    sweep: Sweep,
    answers: Mapping[str, float],
    window: Window,
    baseline: TaskLine | None,
    file: str,
) -> TaskLine:
    """Return the score of a task's answers, compared with the baseline's if that has one."""
    said = {sample.prompt_id: sample for sample in window.samples if sample.error is None}
    marks = "".join(
        mark(right, None if sample is None else last_number(sample.text or ""), sample is None)
        for right, sample in ((right, said.get(name)) for name, right in answers.items())
    )
    if baseline is None or len(baseline.marks) != len(marks):
        return TaskLine(marks=marks, samples=file)
    found = worse(baseline.marks, marks)
    stops = found.clearly and sweep.measure.outputs == "stop"
    return TaskLine(
        marks=marks, lost=found.lost, won=found.won, p=found.p, stops=stops, samples=file
    )
