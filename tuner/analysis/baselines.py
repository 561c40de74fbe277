"""The ledger with speed-ups over all launches of the baseline.

While a run goes on its candidates are held against the first baseline, and that is what its lines
and its search have. Once the baseline has been launched again, this is what the run has found:
derived from the same lines and samples, so it is the same after a resume. Lines whose samples are
gone keep the speed-ups that they have.
"""

import os
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from tuner.config.load_level import Level, at
from tuner.metrics.catalogue import metric_heading
from tuner.metrics.drift import Baselines, Launched
from tuner.metrics.level_metrics import speedup_figures
from tuner.metrics.samples import Window
from tuner.metrics.statistics import Interval, Metric, pooled
from tuner.runs.ledger import Ledger
from tuner.runs.raw_samples import RawSamples, held_out_samples, recorded_samples
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run
from tuner.runs.slot_interference import beside, evened, held_in


@dataclass(frozen=True)
class CorrectedLedger:
    """A run's lines as they are to be read."""

    ledger: Ledger
    baselines: Mapping[Level, Baselines]
    """By concurrency; {} where the baseline was launched once, or its samples are gone."""
    samples: RawSamples
    time: Callable[[TrialRecord], float]
    """When a trial began, on the clock that `baselines` have."""

    def ratio(
        self, one: TrialRecord, other: TrialRecord, level: Level, metric: Metric
    ) -> Interval | None:
        """`other` over `one` at one concurrency, drift, launches and servers beside them allowed
        for; None where samples are missing."""
        return evened(self._measured(one, other, level, metric), one, other, level)

    def _measured(
        self, one: TrialRecord, other: TrialRecord, level: Level, metric: Metric
    ) -> Interval | None:
        known = self.baselines.get(level)
        if known is None or known.metric != metric:
            return self.samples.ratio(one, other, level, metric)
        first, second = self.samples.of(one).get(level), self.samples.of(other).get(level)
        if not first or not second:
            return None
        return known.ratio(Launched(self.time(one), first), Launched(self.time(other), second))


@dataclass
class DriftCorrector:
    """Settles a run's ledger, each line once for the baselines that it is held against."""

    run: Run
    metric: Metric
    samples: RawSamples
    _done: dict[tuple[int, ...], TrialRecord] = field(default_factory=dict)
    _samples: str = ""
    _there: Set[str] = frozenset()
    """Names of the files of samples: most of a large run's may be gone."""

    def settled(self) -> CorrectedLedger:
        """The run's lines so far. Raises UserError where a file of samples is broken."""
        ledger = self.run.ledger()
        known = ledger.baselines
        time = _clock(known)
        levels = _baselines(known, self.samples.of, self.metric, time) if len(known) > 1 else {}
        levels = {level: found for level, found in levels.items() if len(found.launches) > 1}
        if not levels:
            return CorrectedLedger(ledger, {}, self.samples, time)
        trials = tuple(each.trial for each in known)
        held = _baselines(known, lambda each: held_out_samples(self.run, each), self.metric, time)
        unseen = {n: replace(each, like=levels[n]) for n, each in held.items() if n in levels}
        self._samples, self._there = self.run.samples.name, _names_in(self.run.samples)
        records = tuple(
            self._held_out(self._of(each, levels, trials, time), unseen, time)
            for each in ledger.records
        )
        return CorrectedLedger(Ledger(records, ledger.note), levels, self.samples, time)

    def _of(
        self,
        record: TrialRecord,
        levels: Mapping[Level, Baselines],
        trials: tuple[int, ...],
        time: Callable[[TrialRecord], float],
    ) -> TrialRecord:
        if record.role == "baseline" or not record.metrics or record.samples is None:
            return record
        folder, _, name = record.samples.rpartition("/")
        if folder == self._samples and name not in self._there:
            return record
        key = (record.trial, *trials)
        if key not in self._done:
            windows = recorded_samples(self.run, record)
            self._done[key] = record
            if windows:
                held = _held(record.metrics, windows, levels, time(record))
                self._done[key] = record.model_copy(update={"metrics": held})
        return self._done[key]

    def _held_out(
        self,
        record: TrialRecord,
        levels: Mapping[Level, Baselines],
        time: Callable[[TrialRecord], float],
    ) -> TrialRecord:
        """A handful of lines has them."""
        if record.held_out is None or record.role == "baseline":
            return record
        windows = held_out_samples(self.run, record)
        metrics = _held(record.held_out.metrics, windows, levels, time(record))
        return record.model_copy(
            update={"held_out": record.held_out.model_copy(update={"metrics": metrics})}
        )


def _names_in(folder: Path) -> Set[str]:
    """None where there is no such folder."""
    try:
        return {entry.name for entry in os.scandir(folder)}
    except OSError:
        return frozenset()


def _held(
    metrics: Mapping[str, Mapping[str, Any]],
    windows: Mapping[Level, list[Window]],
    levels: Mapping[Level, Baselines],
    at: float,
) -> dict[str, Mapping[str, Any]]:
    """A line's metrics with its speed-ups over all baselines."""
    found = dict(metrics)
    for level, known in levels.items():
        figures, measured = metrics.get(str(level)), windows.get(level)
        if figures is None or not measured or figures.get("speedup") is None:
            continue
        ratio = beside(known.speedup(Launched(at, measured)), held_in(figures))
        if ratio is not None:
            found[str(level)] = {**figures, **speedup_figures(ratio)}
    return found


def _baselines(
    records: tuple[TrialRecord, ...],
    samples: Callable[[TrialRecord], Mapping[Level, list[Window]]],
    metric: Metric,
    time: Callable[[TrialRecord], float],
) -> dict[Level, Baselines]:
    """By concurrency, those launches that have figures."""
    launches: dict[Level, list[Launched]] = {}
    for record in records:
        for level, windows in samples(record).items():
            if pooled(windows, metric) is not None:
                launches.setdefault(level, []).append(Launched(time(record), windows))
    return {level: Baselines(tuple(found), metric) for level, found in launches.items()}


def _clock(baselines: tuple[TrialRecord, ...]) -> Callable[[TrialRecord], float]:
    """When a trial began: by its time, or by its place in the ledger where the machine's clock was
    set back between two launches of the baseline."""
    times = [_time(each) for each in baselines]
    if all(one < other for one, other in pairwise(times)):
        return _time
    return lambda record: float(record.trial)


def _time(record: TrialRecord) -> float:
    return datetime.fromisoformat(record.started).timestamp()


def settle(run: Run, samples: RawSamples | None = None) -> CorrectedLedger:
    """A run's lines as they are to be read. `samples`: where somebody reads them already."""
    metric = run.sweep().search.objective.metric
    return DriftCorrector(run, metric, samples or RawSamples(run)).settled()


def disagreement(baselines: Mapping[Level, Baselines]) -> str | None:
    """A sentence that names the launches' figures; None where they agree.

    `baselines`: of a run that has launched its baseline more than once, by level.
    """
    apart = {level: known for level, known in baselines.items() if known.disagree}
    if not apart:
        return None
    told = []
    for level, known in apart.items():
        where = f" {at(level)}" if len(baselines) > 1 else ""
        figures = ", ".join(f"{each:.1f}" for each in known.figures)
        told.append(f"{figures} {metric_heading(known.metric)}{where}")
    return (
        f"the baseline's launches disagree ({'; '.join(told)}): something disturbed the machine, "
        "so measure again before you rely on this answer"
    )
