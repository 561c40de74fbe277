"""The answer of a run and its evidence: what the screen, `--json` and every report show."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from tuner.analysis.baselines import CorrectedLedger, DriftCorrector
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
from tuner.analysis.winner import (
    divergent_outputs,
    fastest_candidate,
    find_answer,
    objectives,
    read_objective,
)
from tuner.config.load_level import Level, Rate, at, level_in, listed
from tuner.config.loader import LoadedSweep
from tuner.config.point import Point
from tuner.config.schema import ObjectiveSpec, SearchSpec, Sweep
from tuner.config.space import Space
from tuner.config.synthetic import artificial
from tuner.core.errors import UserError
from tuner.core.formatting import spell_time
from tuner.engines import make_engine
from tuner.metrics.samples import Window
from tuner.metrics.statistics import Interval, Metric
from tuner.runs.ledger import Ledger, is_simulated
from tuner.runs.raw_samples import RawSamples
from tuner.runs.records import OutputsLine, TrialRecord
from tuner.runs.run import Run
from tuner.runs.settings import FleetLine, read_fleet
from tuner.server.base import Checked
from tuner.server.memory import without_misfits

NO_SPECULATION = "no speculation"
NEIGHBOURS = 4
"""Configurations in the figure of acceptance by position."""

_FAR = "outputs are far from the baseline's"


@dataclass(frozen=True)
class TrialResult:
    """A trial that gave numbers, and its objective."""

    record: TrialRecord
    value: float | None
    """The objective. None for the baseline, and if a level was not measured."""

    @cached_property
    def point(self) -> Point | None:
        """Return the configuration. Returns None for no speculation, or an endpoint as it is."""
        return self.record.at

    @property
    def label(self) -> str:
        """Return the name in tables and figures."""
        return self.record.label

    def metrics(self, level: Level) -> Mapping[str, Any]:
        """Return the figures at one concurrency. Returns {} if there are none."""
        return self.record.metrics.get(str(level), {})

    def metric(self, level: Level, name: str) -> float | None:
        """Return one figure. Returns None if it was not measured."""
        value = self.metrics(level).get(name)
        return None if value is None else float(value)

    @cached_property
    def speedups(self) -> Mapping[Level, Interval]:
        """Return the ratios to the baseline by concurrency. Returns {} for the baseline."""
        return {} if self.record.role == "baseline" else record_speedups(self.record)


@dataclass(frozen=True)
class RunSummary:
    """The answer of a run and its evidence; `--json` prints `to_json`."""

    run: Run = field(repr=False, compare=False)
    sweep: Sweep = field(repr=False, compare=False)
    samples: RawSamples = field(repr=False, compare=False)
    baseline: TrialRecord | None
    """The first launch without speculation. None if not measured, and for an endpoint that
    speculates."""
    fastest: TrialRecord | None
    """The winner among the candidates (tuner/analysis/winner.py), whether or not it beats the
    baseline."""
    fastest_value: float | None
    best: TrialRecord | None
    """What to run: `fastest`, or `plain` if that is as fast. None if no speculation is the best,
    or if nothing is known (`fastest` is None as well)."""
    speedup: Mapping[Level, Interval]
    """Speed-up of `best` by concurrency, exactly 1 for the baseline. {} if nothing was compared:
    no baseline, no candidate with numbers, an endpoint."""
    alike: tuple[TrialRecord, ...]
    """Trials that are indistinguishable from the answer, which may be the baseline
    (`tuner.analysis.best_per_level.not_told_apart`). The baseline may be among them."""
    by_level: Mapping[Level, LevelBest]
    """The fastest at each concurrency. {} if nothing was compared."""
    by_rate: Mapping[Rate, AtRate]
    """The fastest candidate at each request rate. {} for a run at concurrencies."""
    by_kind: Mapping[Level, Sequence[KindFound]]
    """Kinds of prompts at each concurrency, of `fastest`. {} if nothing was compared."""
    confirmed: TrialRecord | None
    """The confirmation of `best`. None if there is none."""
    outputs: Mapping[str, OutputsLine]
    """Outputs of `best` compared with the baseline's, by concurrency. Its confirmation counts, if
    there is one."""
    far: tuple[TrialRecord, ...]
    """Candidates that are not recommended because of divergent outputs or a clearly lower task
    score, the fastest first."""
    limits: LimitsFound
    """The candidates that break `search.limits`."""
    task: Mapping[str, Any] | None
    """Task scores of `baseline` and `best`. None without a task."""
    plain: TrialRecord | None
    """The settings of `fastest` without speculation. None if not measured."""
    worker: FleetLine | None
    """What this run knows of other workers on its search. None for a run alone."""
    launches: int
    trials: int
    """Number of recorded candidates."""
    exit_code: int
    """0, or 1 if no candidate could be measured or the last ones all failed."""
    verdict: str
    """The outcome in one sentence."""
    settled: CorrectedLedger = field(repr=False, compare=False)
    """The drift-corrected ledger that everything else is computed from."""

    def to_json(self) -> dict[str, Any]:
        """Return the object that `sweep --json` prints. Optional keys:

        - `confirmed`: the answer has a confirmation. `held_out`: also on prompts that no candidate
          was chosen on.
        - `settings_alone`: the winner's settings were launched without speculation.
        - `by_rate`: the load levels are request rates.
        - `baseline_drift`: the baseline was launched more than once.
        """
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
            "run": str(self.run.path),
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

    @property
    def ledger(self) -> Ledger:
        """The run's lines with speed-ups over all launches of the baseline."""
        return self.settled.ledger

    @property
    def _spec(self) -> ObjectiveSpec:
        return self.sweep.search.objective

    @property
    def simulated(self) -> bool:
        """Return True if numbers of this run come from a performance model."""
        return is_simulated(self.ledger.records, self.sweep)

    @property
    def metric(self) -> Metric:
        """The throughput that the run maximised."""
        return self.sweep.search.objective.metric

    @cached_property
    def levels(self) -> list[Level]:
        """Concurrency levels that anything was measured at."""
        named: dict[str, Mapping[str, Mapping[str, Any]]] = {}
        for each in self.ledger.records:
            for name in each.metrics:
                named.setdefault(name, each.metrics)
        return sorted(level_in(name, metrics) for name, metrics in named.items())

    @cached_property
    def ranked(self) -> tuple[TrialResult, ...]:
        """Every candidate that gave numbers, the best first.

        Candidates with divergent outputs or broken limits come last but for those without an
        objective.
        """
        pairs = zip(self.ledger.candidates, objectives(self.ledger, self._spec), strict=True)
        found = [TrialResult(record, value) for record, value in pairs if record.metrics]
        first = None if self.fastest is None else self.fastest.trial
        far = {record.trial for record in self.far} | self.limits.trials

        def order(each: TrialResult) -> tuple[bool, bool, bool, float]:
            trial, value = each.record.trial, each.value
            return trial != first, value is None, trial in far, -(value or 0.0)

        return tuple(sorted(found, key=order))

    @cached_property
    def best_candidate(self) -> TrialResult | None:
        """The best candidate, whether or not it beats the baseline."""
        return self.ranked[0] if self.ranked else None

    @cached_property
    def no_speculation(self) -> TrialResult | None:
        """The baseline's first launch. Returns None if it was not measured."""
        return None if self.baseline is None else TrialResult(self.baseline, None)

    @cached_property
    def settings_only(self) -> TrialResult | None:
        """The best candidate's settings without speculation. Returns None if not measured."""
        if self.plain is None:
            return None
        return TrialResult(self.plain, read_objective(self.plain, self._spec))

    @property
    def winner(self) -> TrialResult | None:
        """What to run: the best candidate, its settings without speculation, or the baseline.

        Returns None if no candidate has numbers to compare: a baseline alone beats nothing.
        """
        if self.fastest is None:
            return None
        if self.best is None:
            return self.no_speculation
        return self.settings_only if self.best.role == "plain" else self.best_candidate

    @property
    def failed(self) -> list[TrialRecord]:
        """Trials that gave no numbers."""
        return [record for record in self.ledger.records if record.outcome != "ok"]

    @property
    def space(self) -> Space:
        """The space with what was dropped and collapsed."""
        return self.checked.loaded.space

    @property
    def release(self) -> str | None:
        """The engine's version in the last trial that knows it."""
        versions = [r.engine_version for r in self.ledger.records if r.engine_version]
        known = [version for version in versions if version != "unknown"]
        return known[-1] if known else None

    @cached_property
    def checked(self) -> Checked:
        """The sweep as the engine of that release checks it, with the notes of the check."""
        run = self.run
        loaded = LoadedSweep(
            self.sweep, run.space, (), run.sweep_file, run.sweep_text(), run.document
        )
        if self.release is None:
            return Checked(loaded)
        try:
            engine = make_engine(self.sweep, self.release)
            found = [gpu.get("memory_gib") for gpu in self.run.machine().get("gpus", [])]
            known = [gib for gib in found if isinstance(gib, int | float)]
            memory = engine.estimate_memory(self.sweep, max(known)) if known else None
            return without_misfits(engine.check(loaded), memory)
        except UserError:  # an earlier specbench measured what this one refuses
            return Checked(loaded)

    def artificial(self) -> list[str]:
        """Return what is synthetic: dummy weights, simulated acceptance."""
        return artificial(self.sweep, self.run.machine().get("env", {}))

    def gpus(self) -> str:
        """Return the machine's GPUs: `2 x NVIDIA H200, 139.8 GiB`, or `none`."""
        found = self.run.machine().get("gpus", [])
        names = [f"{gpu.get('name')}, {gpu.get('memory_gib')} GiB" for gpu in found]
        return "; ".join(f"{names.count(n)} x {n}" for n in dict.fromkeys(names)) or "none"

    def versions(self) -> list[str]:
        """Return the engine versions of the trials."""
        return sorted({r.engine_version for r in self.ledger.records if r.engine_version})

    @cached_property
    def kinds(self) -> Mapping[Level, Sequence[KindFound]]:
        """Kinds of prompts at each concurrency, of the best candidate or an endpoint."""
        if self.by_kind or self.best_candidate is None:
            return self.by_kind
        return kinds_found(self.ledger, self.best_candidate.record, self.samples, self._spec)

    def windows(self, measured: TrialResult, level: Level) -> list[Window]:
        """Return the raw samples of a trial at one concurrency. Returns [] if none are on disk."""
        return self.samples.of(measured.record).get(level, [])

    def ratio(self, one: TrialResult, other: TrialResult, level: Level) -> Interval | None:
        """Return the ratio of `other` to `one`. Returns None if samples are missing."""
        return self.settled.ratio(one.record, other.record, level, self.metric)

    def history(self) -> list[tuple[int, float | None]]:
        """Return (trial, objective) of each candidate in the order measured."""
        trials = (record.trial for record in self.ledger.candidates)
        return list(zip(trials, objectives(self.ledger, self._spec), strict=True))

    def describe_objective(self) -> str:
        """Return the objective's name: `output_tok_s, geometric mean of concurrency 1, 8`."""
        spec = self._spec
        only = self.levels[0] if len(self.levels) == 1 else spec.level
        only = next((level for level in self.levels if level == only), only)  # it says of what
        if only is not None:
            return f"{self.metric} {at(only)}"
        mean = "lowest" if spec.over == "min" else "geometric mean"
        return f"{self.metric}, {mean} of {listed(self.levels)}"

    def neighbours(self) -> list[TrialResult]:
        """Return the best candidate, then those nearest to it in num_steps.

        Candidates that differ in other dimensions come after those that do not.
        """
        first = self.best_candidate
        if first is None or first.point is None:
            return []
        best = first.point

        def distance(each: TrialResult) -> tuple[bool, int]:
            assert each.point is not None
            steps = abs((each.point.num_steps or 0) - (best.num_steps or 0))
            return each.point.family != best.family, steps

        return [first, *sorted(self.ranked[1:], key=distance)][:NEIGHBOURS]


def summarise_run(run: Run, config: Sweep | None = None) -> RunSummary:
    """Return what a run has found so far. Raises UserError if its files cannot be read.

    `config`: the run's sweep, if the caller has read it.
    """
    sweep, samples = config or run.sweep(), RawSamples(run)
    spec = sweep.search.objective
    settled = DriftCorrector(run, spec.metric, samples).settled()
    ledger, ratio = settled.ledger, by_samples(settled, spec)
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
    return RunSummary(
        run=run,
        sweep=sweep,
        samples=samples,
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
