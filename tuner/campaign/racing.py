"""Whom the next launch is raced against, and how far windows differ, from the run's ledger."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tuner.answer.choice import fastest_candidate
from tuner.ledger.raw_samples import samples_of
from tuner.ledger.record import TrialRecord
from tuner.ledger.run import Run
from tuner.ledger.side_by_side import interference
from tuner.measure.racing import WindowSpread
from tuner.search.decision import Decision
from tuner.sweep.level import Level
from tuner.sweep.model import Sweep
from tuner.sweep.point import Point
from tuner.trial.race import Race
from tuner.trial.taken import Windows

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
            self._incumbent = best.trial, samples_of(self.run, best)
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
        windows = {} if slowest is None else samples_of(self.run, slowest[1])
        if not windows:
            return "no speculation", self.baseline
        return "no speculation with others beside it", windows

    def _of(self, records: Iterable[TrialRecord]) -> list[Mapping[Level, WindowSpread]]:
        metric = self.sweep.search.objective.metric
        for record in records:
            if record.trial not in self._spreads:
                self._spreads[record.trial] = {
                    level: WindowSpread.of(windows, metric)
                    for level, windows in samples_of(self.run, record).items()
                }
        return [self._spreads[record.trial] for record in records]
