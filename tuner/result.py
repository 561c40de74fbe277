"""What a run has found: read from its folder, for the screen, `--json` and reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.choice import far_outputs, fastest_candidate, is_refuted, objective_of
from tuner.kinds import KindFound, kinds_found, kinds_json
from tuner.ledger.lines import Ledger
from tuner.ledger.raw_samples import RawSamples
from tuner.ledger.record import OutputsLine, TrialRecord
from tuner.ledger.run import Run
from tuner.limits import LimitsFound
from tuner.measure.statistics import Interval
from tuner.sweep.model import ObjectiveSpec, Sweep

RIVALS = 5
"""Configurations after the fastest that are held against it."""


@dataclass(frozen=True)
class LevelBest:
    """What is fastest at one concurrency."""

    record: TrialRecord
    """The baseline's where no speculation is."""
    speedup: Interval
    """Over the baseline; exactly 1 of the baseline itself."""
    alike: tuple[TrialRecord, ...]
    """What the measurements do not tell apart from it, the faster first; the baseline may be
    among them. At most RIVALS candidates are held against it."""

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it; a point that is null is no speculation."""
        return {
            "best": self.record.point,
            "speedup": self.speedup.to_json(),
            "not_told_apart": [each.point for each in self.alike],
        }


@dataclass(frozen=True)
class Result:
    """What a run found; `--json` prints `to_json`."""

    run: Path
    baseline: TrialRecord | None
    """None where it was not measured, and for an endpoint that speculates."""
    fastest: TrialRecord | None
    """The candidate to run (tuner/choice.py), whether or not it beats the baseline."""
    fastest_value: float | None
    best: TrialRecord | None
    """`fastest` where its objective is above 1; None: no speculation is the best, or `fastest` is
    None too and nothing is known."""
    speedup: Mapping[int, Interval]
    """Of `best` by concurrency; exactly 1 where the baseline is the best; {} where nothing was
    compared: no baseline, no candidate with numbers, an endpoint."""
    by_level: Mapping[int, LevelBest]
    """The fastest at each concurrency; {} where nothing was compared."""
    by_kind: Mapping[int, Sequence[KindFound]]
    """Kinds of prompts at each concurrency, of `fastest`; {} where nothing was compared."""
    confirmed: TrialRecord | None
    """`best` measured again on a server of its own, where that was done: it was on a shared one."""
    outputs: Mapping[str, OutputsLine]
    """Of `best` against the baseline's, by concurrency; of its own launch where it has one."""
    far: tuple[TrialRecord, ...]
    """Candidates that are not recommended because their outputs are far from the baseline's, the
    faster first."""
    limits: LimitsFound
    """Who breaks `search.limits`."""
    task: Mapping[str, Any] | None
    """Marks of the task by question, `baseline` and `best`; None without a task."""
    launches: int
    trials: int
    """Candidates recorded."""
    exit_code: int
    """0, or 1 where no candidate could be measured or the last ones all failed."""
    verdict: str
    """The outcome in one sentence."""

    def to_json(self) -> dict[str, Any]:
        """The object that `sweep --json` prints; `confirmed` is there where that was done."""
        again = {} if self.confirmed is None else {"confirmed": _shown(speedups_of(self.confirmed))}
        return {
            "run": str(self.run),
            "baseline": None if self.baseline is None else self.baseline.metrics,
            "best": None if self.best is None else self.best.point,
            "speedup": _shown(self.speedup),
            "by_concurrency": {str(level): each.to_json() for level, each in self.by_level.items()},
            "by_kind": kinds_json(self.by_kind),
            "launches": self.launches,
            "trials": self.trials,
            "outputs": {level: each.model_dump() for level, each in self.outputs.items()},
            "far_outputs": [each.point for each in self.far],
            **({} if self.task is None else {"task": self.task}),
            **self.limits.to_json(),
            **again,
        }


def summarise_run(run: Run, samples: RawSamples | None = None) -> Result:
    """What the run has found so far, from its folder alone.

    `samples`: those of the run, where somebody reads them already.
    """
    sweep, ledger = run.sweep(), run.ledger()
    spec = sweep.search.objective
    fastest, value = fastest_candidate(ledger, spec)
    best = fastest if value is not None and value > 1 else None
    far = _far(ledger, spec)
    limits = LimitsFound.of(ledger, sweep.search)
    exit_code, verdict = _outcome(ledger, sweep, best, value)
    if exit_code == 0 and far:
        verdict += f"; {far_words(far)}"
    if exit_code == 0 and best is None:
        verdict += limits.why_not(fastest)
    baseline = ledger.baseline
    attached = sweep.engine.kind == "endpoint"
    again = None if best is None else ledger.confirmation(best)
    compared = fastest is not None and baseline is not None and not attached
    samples = samples or RawSamples(run)
    return Result(
        run=run.path,
        baseline=baseline,
        fastest=fastest,
        fastest_value=value,
        best=best,
        speedup=speedups_of(best or baseline) if compared else {},
        by_level=_by_level(ledger, samples, spec) if compared else {},
        by_kind=kinds_found(ledger, fastest, samples, spec) if compared else {},
        confirmed=again if again is not None and again.outcome == "ok" else None,
        outputs=outputs_of(ledger, best),
        far=far,
        limits=limits,
        task=_task(baseline, again),
        launches=0 if attached else ledger.next_launch,
        trials=len(ledger.candidates),
        exit_code=exit_code,
        verdict=verdict,
    )


def _outcome(
    ledger: Ledger, sweep: Sweep, best: TrialRecord | None, value: float | None
) -> tuple[int, str]:
    outcomes = [record.outcome for record in ledger.candidates]
    last = outcomes[-sweep.search.max_failures :]
    if sweep.engine.kind == "endpoint":
        measured = any(record.outcome == "ok" for record in ledger.records)
        return (0, "the server was measured") if measured else (1, "the server was not measured")
    if ledger.baseline is None:
        return 1, "the baseline was not measured"
    if len(last) == sweep.search.max_failures and set(last) == {"failed"}:
        why = ledger.candidates[-1]
        return 1, f"{len(last)} trials in a row failed, the last one with {why.failure}"
    if not outcomes:
        return 1, f"no answer: no candidate was measured{_within(sweep.search.time_budget)}"
    if "ok" not in outcomes:
        return 1, "no answer: no candidate could be measured"
    if value is None:
        metric = sweep.search.objective.metric
        return 1, f"no answer: no candidate has {metric} at every concurrency"
    if best is None:
        return 0, "no candidate beats the baseline: serve without speculation"
    name = best.at.label() if best.at else "no speculation"
    return 0, f"{name}: {value:.3f} times the baseline"


def outputs_of(ledger: Ledger, best: TrialRecord | None) -> Mapping[str, OutputsLine]:
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
    far = [each for each in ledger.candidates if far_outputs(ledger, each) is not None]
    return tuple(sorted(far, key=lambda each: -(objective_of(each, spec) or 0.0)))


def far_words(far: tuple[TrialRecord, ...]) -> str:
    """Which candidates are not recommended for what they answer; one at least."""
    names = [each.at.label() if each.at else "no speculation" for each in far]
    more = f" and {len(far) - 1} more" if len(far) > 1 else ""
    return f"not recommended, since outputs are far from the baseline's: {names[0]}{more}"


def _within(time_budget: float | None) -> str:
    """Where there is a time budget, that it was too short: nothing else ends a search so early."""
    if time_budget is None:
        return ""
    return f", the time budget of {time_budget:g} s was spent before the first one"


def speedups_of(record: TrialRecord | None) -> dict[int, Interval]:
    """A record's ratios to the baseline by concurrency; 1 of the baseline itself."""
    found: dict[int, Interval] = {}
    if record is None:
        return found
    for level in sorted(map(int, record.metrics)):
        figures = record.metrics[str(level)]
        if record.role == "baseline":
            found[level] = Interval(1.0, 1.0, 1.0)
        elif (value := figures.get("speedup")) is not None:
            found[level] = Interval(value, figures["speedup_low"], figures["speedup_high"])
    return found


def _shown(ratios: Mapping[int, Interval]) -> dict[str, dict[str, float | None]]:
    return {str(level): each.to_json() for level, each in ratios.items()}


def _by_level(ledger: Ledger, samples: RawSamples, spec: ObjectiveSpec) -> dict[int, LevelBest]:
    """By concurrency, ascending; levels at which no candidate was compared are left out.

    Candidates that their own launches have refuted are not in it.
    """
    found: dict[int, LevelBest] = {}
    base = ledger.baseline
    if base is None:
        return found
    measured = [(each, speedups_of(each)) for each in ledger.candidates if each.outcome == "ok"]
    for level in sorted(map(int, base.metrics)):
        compared = [(each[level], record) for record, each in measured if level in each]
        if not compared:
            continue
        ratios = [pair for pair in compared if not is_refuted(ledger, pair[1], spec)]
        ratios.sort(key=lambda pair: -pair[0].value)
        own, first = ratios[0] if ratios else (Interval(1.0, 1.0, 1.0), base)
        near = [record for each, record in ratios[:RIVALS] if _may_be_one(each)]
        if own.value <= 1:
            found[level] = LevelBest(base, Interval(1.0, 1.0, 1.0), tuple(near))
            continue
        same = [
            record
            for _, record in ratios[1 : RIVALS + 1]
            if _may_be_one(samples.ratio(first, record, level, spec.metric))
        ]
        found[level] = LevelBest(first, own, (*same, *([base] if _may_be_one(own) else [])))
    return found


def _may_be_one(ratio: Interval | None) -> bool:
    """Without an interval nothing is known to be alike."""
    return ratio is not None and ratio.includes_one is True
