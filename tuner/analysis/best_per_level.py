"""The fastest at each concurrency, and what is as fast as it or as the answer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import nsmallest
from itertools import islice
from typing import Any

from tuner.analysis.baselines import CorrectedLedger
from tuner.analysis.equivalence import Ratio, by_lines, is_distinguishable, objective_ratio
from tuner.analysis.winner import (
    broken_at,
    divergent_outputs,
    eligible_candidates,
    is_refuted_at,
    read_objective,
)
from tuner.config.load_level import Level, level_in, parse_level
from tuner.config.schema import ObjectiveSpec
from tuner.metrics.statistics import Interval
from tuner.runs.ledger import Ledger
from tuner.runs.records import TrialRecord

RIVALS = 10
"""Configurations that are held against the fastest."""


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


def speedups_by_level(metrics: Mapping[str, Mapping[str, Any]]) -> dict[Level, Interval]:
    """By concurrency, ascending; levels without a ratio are left out."""
    found: dict[Level, Interval] = {}
    for level in _levels(metrics):
        figures = metrics[str(level)]
        if figures.get("speedup") is not None:
            found[level] = _ratio(figures)
    return found


def _ratio(figures: Mapping[str, Any]) -> Interval:
    return Interval(figures["speedup"], figures["speedup_low"], figures["speedup_high"])


def _levels(metrics: Mapping[str, Mapping[str, Any]]) -> Sequence[Level]:
    names = tuple(metrics)
    if all(map(str.isdecimal, names)):  # concurrencies, and many lines have the same ones
        return _ascending(names)
    return sorted(level_in(name, metrics) for name in names)


@lru_cache(maxsize=256)
def _ascending(names: tuple[str, ...]) -> Sequence[Level]:
    return tuple(sorted(map(parse_level, names)))


def record_speedups(record: TrialRecord | None) -> dict[Level, Interval]:
    """A record's ratios to the baseline by concurrency; 1 of the baseline itself."""
    if record is None:
        return {}
    if record.role == "baseline":
        return {level: Interval(1.0, 1.0, 1.0) for level in _levels(record.metrics)}
    return speedups_by_level(record.metrics)


def fastest_by_level(settled: CorrectedLedger, spec: ObjectiveSpec) -> dict[Level, LevelBest]:
    """By concurrency, ascending; levels at which no candidate was compared are left out.

    Settings that were launched without speculation are among them.
    Candidates that their own launches have refuted are not in it; those that break a limit at that
    concurrency are, as what is alike. A limit that is broken at another one does not count.
    """
    found: dict[Level, LevelBest] = {}
    ledger = settled.ledger
    base = ledger.baseline
    if base is None:
        return found
    shown = [each for each in ledger.records if each.role in ("candidate", "plain")]
    measured = [each for each in shown if each.outcome == "ok"]
    for level in _levels(base.metrics):
        compared = _compared(measured, str(level))
        if not compared:
            continue
        kept = (each for each in compared if not is_refuted_at(ledger, each, spec, level))
        ratios = [(_ratio(e.metrics[str(level)]), e) for e in islice(kept, RIVALS)]
        # Whether it is as fast, and whether it may be launched, are two questions.
        limited = islice(_limited(ledger, compared, level), RIVALS)
        rivals = [*ratios, *((_ratio(e.metrics[str(level)]), e) for e in limited)]
        own, first = ratios[0] if ratios else (Interval(1.0, 1.0, 1.0), base)
        near = [record for each, record in rivals if not is_distinguishable(each)]
        if own.value <= 1:
            found[level] = LevelBest(base, Interval(1.0, 1.0, 1.0), tuple(near))
            continue
        same = [
            record
            for _, record in rivals
            if record is not first
            and not is_distinguishable(settled.ratio(first, record, level, spec.metric))
        ]
        found[level] = LevelBest(first, own, (*same, *([] if is_distinguishable(own) else [base])))
    return found


def _compared(measured: Sequence[TrialRecord], level: str) -> list[TrialRecord]:
    """Who has a ratio at a level, the fastest first."""
    found = [
        (value, each)
        for each in measured
        if (value := each.metrics.get(level, {}).get("speedup")) is not None
    ]
    found.sort(key=lambda pair: -pair[0])
    return [each for _, each in found]


def _limited(
    ledger: Ledger, compared: Sequence[TrialRecord], level: Level
) -> Iterator[TrialRecord]:
    """Those that break a limit there, and answer as the baseline does."""
    return (
        each
        for each in compared
        if broken_at(ledger, each, level) and divergent_outputs(ledger, each) is None
    )


def not_told_apart(
    ledger: Ledger, spec: ObjectiveSpec, of: TrialRecord, ratio: Ratio = by_lines
) -> list[TrialRecord]:
    """What may as well be as fast as `of` by the objective, the higher figure first.

    The interval of the ratio of their objectives includes 1. `of` may be the baseline, or the
    baseline may be among them, last. At most `RIVALS` candidates that stand are held against it,
    the nearest ones.
    """
    own = 1.0 if of.role == "baseline" else read_objective(of, spec)
    if own is None or own <= 0:
        return []
    others = (pair for pair in eligible_candidates(ledger, spec) if pair[0] is not of)
    near = [
        pair
        for pair in nsmallest(RIVALS, others, key=lambda pair: abs(pair[1] - own))
        if not is_distinguishable(objective_ratio(of, pair[0], spec, ratio))
    ]
    found = [each for each, _ in sorted(near, key=lambda pair: -pair[1])]
    base = ledger.baseline
    if base is not None and of.role != "baseline":
        found += [] if is_distinguishable(objective_ratio(base, of, spec, ratio)) else [base]
    return found
