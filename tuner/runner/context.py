"""A run that goes on: what its steps need, who listens, how far it is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tuner.analysis.baselines import DriftCorrector
from tuner.analysis.best_per_level import not_told_apart
from tuner.analysis.winner import fastest_candidate, read_objective
from tuner.config.load_level import Level
from tuner.config.point import Point
from tuner.config.schema import Sweep
from tuner.execution.early_stopping import Race
from tuner.execution.measurement import Windows
from tuner.execution.progress import Progress, SweepProgress
from tuner.execution.step_blocks import Blocks, count_launches
from tuner.execution.trial import TrialRunner
from tuner.metrics.early_stopping import WindowSpread
from tuner.runner.budget import Budget, Pace
from tuner.runs.raw_samples import RawSamples, recorded_samples
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run
from tuner.runs.slot_interference import interference
from tuner.search.decision import Decision
from tuner.search.optuna_study import Study
from tuner.workers.worker import Worker

RECENT = 8
"""Launches that the spread between windows is learnt from."""


@dataclass
class Races:
    """The races of a run. The baseline's windows say nothing of the spread: without speculation
    they are quieter, several times on GPUs."""

    run: Run
    sweep: Sweep
    baseline: Windows
    _spreads: dict[int, Mapping[Level, WindowSpread]] = field(default_factory=dict)
    """By trial, then by concurrency."""
    _incumbent: tuple[int, Windows] | None = None

    def next(self, point: Point, decision: Decision | None) -> Race | None:
        """The race of a launch that the search proposed for `point`; None where there is none.

        An anchor is measured whole: what is expected of all other points rests on it.
        """
        measure = self.sweep.measure
        if measure.windows < 2 or not measure.racing:
            return None
        ledger, levels = self.run.ledger(), self.sweep.workload.levels
        measured = [r for r in ledger.records if r.role in ("candidate", "confirm")]
        recent = [each for each in measured if each.outcome == "ok"][-RECENT:]
        spreads = {
            level: WindowSpread.sum(each.get(level, WindowSpread()) for each in self._of(recent))
            for level in levels
        }
        name, rival = self._rival()
        whole = point if decision is not None and decision.stage == "anchors" else None
        return Race(rival, name, self.baseline, spreads, whole)

    def _rival(self) -> tuple[str, Windows]:
        """The best candidate so far, or the baseline where that is faster."""
        best, value = fastest_candidate(self.run.ledger(), self.sweep.search.objective)
        if best is None or value is None or value <= 1:
            return self._no_speculation()
        if self._incumbent is None or self._incumbent[0] != best.trial:
            self._incumbent = best.trial, recorded_samples(self.run, best)
        if not self._incumbent[1]:  # its samples are gone; the baseline's are checked at the start
            return self._no_speculation()
        return f"trial {best.trial}, the best before it", self._incumbent[1]

    def _no_speculation(self) -> tuple[str, Windows]:
        """The baseline; where others beside it slow it down, as it was in the place that they slow
        down most: a candidate has them beside it as well, and a race cannot be taken back."""
        ledger, slowest = self.run.ledger(), None
        for record in ledger.records:
            if record.role != "abreast" or record.place is None or record.outcome != "ok":
                continue
            for level in self.sweep.workload.levels:
                known = interference(ledger, record.place, level)
                if known is not None and known.value < (1.0 if slowest is None else slowest[0]):
                    slowest = known.value, record
        windows = {} if slowest is None else recorded_samples(self.run, slowest[1])
        if not windows:
            return "no speculation", self.baseline
        return "no speculation with others beside it", windows

    def _of(self, records: Iterable[TrialRecord]) -> list[Mapping[Level, WindowSpread]]:
        metric = self.sweep.search.objective.metric
        for record in records:
            if record.trial not in self._spreads:
                self._spreads[record.trial] = {
                    level: WindowSpread.of(windows, metric)
                    for level, windows in recorded_samples(self.run, record).items()
                }
        return [self._spreads[record.trial] for record in records]


@dataclass(frozen=True)
class SearchContext:
    """What the search over candidates needs."""

    study: Study
    blocks: Blocks
    bench: TrialRunner
    baseline: Windows
    wanted: int
    budget: Budget
    pace: Pace
    progress: Progress
    points: int
    """Of the space."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Reason -> points that the stage comm took away, as each decision carries it."""

    together: Worker | None = None
    """The other workers of the search; None of a run alone."""
    undone: list[str] = field(default_factory=list)
    """Why no further candidate is begun, as it comes, where some are still to be."""
    unclosed: list[str] = field(default_factory=list)
    """Why a closing launch that was due is not made."""

    @cached_property
    def races(self) -> Races:
        """Whom candidates are raced against."""
        return Races(self.bench.run, self.bench.sweep, self.baseline)

    @cached_property
    def settling(self) -> DriftCorrector:
        """Speed-ups over all launches of the baseline, which the answer goes by."""
        run, metric = self.bench.run, self.bench.sweep.search.objective.metric
        return DriftCorrector(run, metric, RawSamples(run))

    @property
    def launches(self) -> int:
        """Launches that the candidates are expected to take."""
        return count_launches(self.blocks, self.points, self.wanted)

    @property
    def shared_points(self) -> int:
        """Points of the largest launch that may come."""
        most = max((len(block.points) for block in self.blocks.of_sweep), default=1)
        return max(1, min(most, self.room))

    @property
    def room(self) -> int:
        """Candidates that are still wanted."""
        others = 0 if self.together is None else self.together.of_others
        return self.wanted - others - len(self.bench.run.ledger().candidates)


def sweep_progress(search: SearchContext, record: TrialRecord) -> SweepProgress:
    """How far the run is, from its ledger, after `record`.

    By lines alone: to hold every candidate's samples against the best's after each trial would take
    longer than the search itself.
    """
    spec, ledger = search.bench.sweep.search.objective, search.bench.run.ledger()
    best, best_value = fastest_candidate(ledger, spec)
    alike = [] if best is None else not_told_apart(ledger, spec, best)
    others = sum(each.role != "baseline" for each in alike)
    value = read_objective(record, spec)
    return SweepProgress(len(ledger.candidates), search.wanted, value, best, best_value, others)
