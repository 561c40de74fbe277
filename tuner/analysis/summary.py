"""What a run has found: read from its folder, for the screen, `--json` and reports."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tuner.analysis.baselines import CorrectedLedger, settle
from tuner.analysis.best_per_level import (
    LevelBest,
    fastest_by_level,
    not_told_apart,
    record_speedups,
    speedups_by_level,
)
from tuner.analysis.equivalence import Ratio, by_samples
from tuner.analysis.latency_limits import LimitsFound
from tuner.analysis.prompt_categories import KindFound, kinds_found, kinds_json
from tuner.analysis.request_rates import AtRate, crossing
from tuner.analysis.winner import divergent_outputs, fastest_candidate, find_answer, read_objective
from tuner.config.load_level import Level, Rate
from tuner.config.schema import ObjectiveSpec, SearchSpec, Sweep
from tuner.core.formatting import spell_time
from tuner.metrics.statistics import Interval
from tuner.runs.ledger import Ledger
from tuner.runs.raw_samples import RawSamples
from tuner.runs.records import OutputsLine, TrialRecord
from tuner.runs.run import Run
from tuner.runs.settings import FleetLine, read_fleet

_FAR = "outputs are far from the baseline's"


@dataclass(frozen=True)
class Result:
    """What a run found; `--json` prints `to_json`."""

    run: Path
    baseline: TrialRecord | None
    """None where it was not measured, and for an endpoint that speculates."""
    fastest: TrialRecord | None
    """The candidate to run (tuner/analysis/winner.py), whether or not it beats the baseline."""
    fastest_value: float | None
    best: TrialRecord | None
    """`fastest` where its objective is above 1, or `plain` where that is faster still; None: no
    speculation is the best, or `fastest` is None too and nothing is known."""
    speedup: Mapping[Level, Interval]
    """Of `best` by concurrency; exactly 1 where the baseline is the best; {} where nothing was
    compared: no baseline, no candidate with numbers, an endpoint."""
    alike: tuple[TrialRecord, ...]
    """What the measurements do not tell apart from `best`, or from the baseline where that is the
    answer (`tuner.analysis.best_per_level.not_told_apart`); the baseline may be among them."""
    by_level: Mapping[Level, LevelBest]
    """The fastest at each concurrency; {} where nothing was compared."""
    by_rate: Mapping[Rate, AtRate]
    """Whether speculation pays at each of several request rates; {} of a run at concurrencies."""
    by_kind: Mapping[Level, Sequence[KindFound]]
    """Kinds of prompts at each concurrency, of `fastest`; {} where nothing was compared."""
    confirmed: TrialRecord | None
    """`best` measured again on a server of its own, where that was done: it was on a shared one."""
    outputs: Mapping[str, OutputsLine]
    """Of `best` against the baseline's, by concurrency; of its own launch where it has one."""
    far: tuple[TrialRecord, ...]
    """Candidates that are not recommended because their outputs are far from the baseline's, or
    the task's score is clearly lower; the faster first."""
    limits: LimitsFound
    """Who breaks `search.limits`."""
    task: Mapping[str, Any] | None
    """Marks of the task by question, `baseline` and `best`; None without a task."""
    plain: TrialRecord | None
    """No speculation under `fastest`'s own variables and flags, where that was measured."""
    worker: FleetLine | None
    """Of one of several workers on a search; None of a run alone."""
    launches: int
    trials: int
    """Candidates recorded here."""
    exit_code: int
    """0, or 1 where no candidate could be measured or the last ones all failed."""
    verdict: str
    """The outcome in one sentence."""
    settled: CorrectedLedger = field(repr=False, compare=False)
    """The run's lines with speed-ups over all launches of the baseline: what all this is from."""

    def to_json(self) -> dict[str, Any]:
        """The object that `sweep --json` prints; `confirmed` is there where that was done,
        `held_out` where that launch was also measured on prompts that nothing was chosen on,
        `settings_alone` where the best one's own settings were launched without speculation,
        `by_rate` where the levels are request rates, `baseline_drift` where the baseline was
        launched more than once."""
        again: dict[str, Any] = {}
        if self.confirmed is not None:
            again["confirmed"] = _shown(record_speedups(self.confirmed))
            if self.confirmed.held_out is not None:
                shown = _shown(held_out_speedups(self.confirmed))
                again["held_out"] = {"prompts": self.confirmed.held_out.prompts, "speedup": shown}
        if self.plain is not None:
            again["settings_alone"] = _shown(record_speedups(self.plain))
        if self.by_rate:
            again["by_rate"] = {str(rate): each.to_json() for rate, each in self.by_rate.items()}
        if self.settled.baselines:
            again["baseline_drift"] = _drift(self.settled)
        return {
            "run": str(self.run),
            "baseline": None if self.baseline is None else self.baseline.metrics,
            "best": None if self.best is None else self.best.point,
            "speedup": _shown(self.speedup),
            "not_told_apart": [each.point for each in self.alike],
            "by_concurrency": {str(level): each.to_json() for level, each in self.by_level.items()},
            "by_kind": kinds_json(self.by_kind),
            "launches": self.launches,
            "trials": self.trials,
            "outputs": {level: asdict(each) for level, each in self.outputs.items()},
            "far_outputs": [each.point for each in self.far],
            **({} if self.task is None else {"task": self.task}),
            **self.limits.to_json(),
            **({} if self.worker is None else {"worker": self.worker.model_dump()}),
            **again,
        }


def summarise_run(run: Run, samples: RawSamples | None = None) -> Result:
    """What the run has found so far, from its folder alone.

    `samples`: those of the run, where somebody reads them already.
    """
    sweep, settled = run.sweep(), settle(run, samples)
    ledger, spec = settled.ledger, sweep.search.objective
    ratio = by_samples(settled, spec)
    fastest, _ = fastest_candidate(ledger, spec, ratio)
    best, value = find_answer(ledger, spec, ratio)
    far = _far(ledger, spec)
    plain = None if fastest is None else ledger.plain(fastest)
    plain = plain if plain is not None and plain.outcome == "ok" else None
    limits = LimitsFound.of(ledger, sweep.search)
    worker = read_fleet(run.fleet_file)
    exit_code, verdict = _outcome(ledger, sweep, best, value)
    nothing_left = bool(ledger.baseline or not ledger.records) and not ledger.candidates
    if worker is not None and worker.elsewhere and nothing_left:
        exit_code, verdict = 0, "other workers came first to all candidates"
    if exit_code == 0 and far:
        verdict += f"; {describe_divergent_outputs(ledger, far)}"
    if exit_code == 0 and best is None:
        verdict += limits.why_not(fastest)
    baseline = ledger.baseline
    attached = not sweep.engine.launches_servers
    again = None if best is None or best is plain else ledger.confirmation(best)
    compared = fastest is not None and baseline is not None and not attached
    samples = samples or RawSamples(run)
    return Result(
        run=run.path,
        baseline=baseline,
        fastest=fastest,
        fastest_value=value,
        best=best,
        speedup=record_speedups(best or baseline) if compared else {},
        alike=_alike(ledger, spec, best or baseline, ratio) if compared else (),
        by_level=fastest_by_level(settled, spec) if compared else {},
        by_rate=crossing(settled, spec) if compared else {},
        by_kind=kinds_found(ledger, fastest, samples, spec) if compared else {},
        confirmed=again if again is not None and again.outcome == "ok" else None,
        outputs=compare_outputs(ledger, best),
        far=far,
        limits=limits,
        task=_task(baseline, again),
        plain=plain,
        worker=worker,
        launches=0 if attached else ledger.next_launch,
        trials=len(ledger.candidates),
        exit_code=exit_code,
        verdict=verdict,
        settled=settled,
    )


def _outcome(
    ledger: Ledger, sweep: Sweep, best: TrialRecord | None, value: float | None
) -> tuple[int, str]:
    outcomes = [record.outcome for record in ledger.candidates]
    last = outcomes[-sweep.search.max_failures :]
    if not sweep.engine.launches_servers:
        measured = any(record.outcome == "ok" for record in ledger.records)
        return (0, "the server was measured") if measured else (1, "the server was not measured")
    if ledger.baseline is None:
        return 1, "the baseline was not measured"
    if len(last) == sweep.search.max_failures and set(last) == {"failed"}:
        why = ledger.candidates[-1]
        return 1, f"{len(last)} trials in a row failed, the last one with {why.failure}"
    if not outcomes:
        return 1, f"no answer: no candidate was measured{_within(sweep.search)}"
    if "ok" not in outcomes:
        return 1, "no answer: no candidate could be measured"
    if value is None:
        metric = sweep.search.objective.metric
        return 1, f"no answer: no candidate has {metric} at every concurrency"
    if best is None:
        return 0, "no candidate beats the baseline: serve without speculation"
    return 0, f"{best.label}: {value:.3f} times the baseline"


def _alike(
    ledger: Ledger, spec: ObjectiveSpec, answer: TrialRecord | None, ratio: Ratio
) -> tuple[TrialRecord, ...]:
    return () if answer is None else tuple(not_told_apart(ledger, spec, answer, ratio))


def compare_outputs(ledger: Ledger, best: TrialRecord | None) -> Mapping[str, OutputsLine]:
    """How a candidate's outputs compare, by its own launch where it has one."""
    if best is None:
        return {}
    again = ledger.confirmation(best)
    return again.outputs if again is not None and again.outputs else best.outputs


def _task(baseline: TrialRecord | None, again: TrialRecord | None) -> Mapping[str, Any] | None:
    if baseline is None or baseline.task is None:
        return None
    best = None if again is None or again.task is None else again.task.model_dump()
    return {"baseline": baseline.task.model_dump(), "best": best}


def _far(ledger: Ledger, spec: ObjectiveSpec) -> tuple[TrialRecord, ...]:
    far = [each for each in ledger.candidates if divergent_outputs(ledger, each) is not None]
    return tuple(sorted(far, key=lambda each: -(read_objective(each, spec) or 0.0)))


def describe_divergent_outputs(ledger: Ledger, far: tuple[TrialRecord, ...]) -> str:
    """Which candidates are not recommended for what they answer, and why; one at least."""
    names: dict[str, list[str]] = {}
    for each in far:
        found = divergent_outputs(ledger, each)
        by_score = found is not None and found.divergent_outputs is None
        why = "the task's score is clearly lower" if by_score else _FAR
        names.setdefault(why, []).append(each.label)
    told = []
    for why, labels in names.items():
        more = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
        told.append(f"since {why}: {labels[0]}{more}")
    return f"not recommended, {'; '.join(told)}"


def _within(search: SearchSpec) -> str:
    """Where there is an end, that it was too near: nothing else ends a search so early."""
    if search.time_budget is not None:
        return (
            f", the time budget of {spell_time(search.time_budget)} left no time for the first one"
        )
    return "" if search.deadline is None else ", the deadline left no time for the first one"


def held_out_speedups(record: TrialRecord) -> dict[Level, Interval]:
    """The same on prompts that no candidate was chosen on; {} where that was not measured."""
    return {} if record.held_out is None else speedups_by_level(record.held_out.metrics)


def _shown(ratios: Mapping[Level, Interval]) -> dict[str, dict[str, float | None]]:
    return {str(level): each.to_json() for level, each in ratios.items()}


def _drift(settled: CorrectedLedger) -> dict[str, dict[str, Any]]:
    """The baseline's last launch over its first, by concurrency."""
    return {
        str(level): {
            **({} if known.drift is None else known.drift.to_json()),
            "launches": len(known.launches),
            "corrected": known.drifts,
        }
        for level, known in settled.baselines.items()
    }
