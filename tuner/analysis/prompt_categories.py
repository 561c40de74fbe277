"""What a run found for each kind of prompt: acceptance and speed differ by kind more than by most
settings.

Everything here is the decode speed of one stream: a window mixes its kinds, so no kind has a
throughput of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from operator import itemgetter
from typing import Any

from tuner.analysis.winner import is_refuted_at, objectives
from tuner.config.load_level import Level, level_in
from tuner.config.schema import ObjectiveSpec
from tuner.metrics.level_metrics import by_kind
from tuner.metrics.samples import Window
from tuner.metrics.statistics import Interval, speedup
from tuner.runs.ledger import Ledger
from tuner.runs.raw_samples import RawSamples
from tuner.runs.records import TrialRecord
from tuner.runs.slot_interference import evened


@dataclass(frozen=True)
class KindFound:
    """One kind of prompt at one concurrency."""

    kind: str
    figures: Mapping[str, Any]
    """Of the candidate to run: what `measure.metrics.by_kind` gives."""
    below: Mapping[str, Any]
    """Of the baseline; {} without one."""
    speedup: Interval | None
    """The candidate's decode speed over the baseline's; None where one of them has none."""
    fastest: TrialRecord
    """What decodes this kind fastest, the baseline where no candidate beats it; nobody launched it
    again for this."""
    fastest_speedup: Interval | None
    """Exactly 1 of the baseline itself."""

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            **self.figures,
            "baseline_decode_tok_s": self.below.get("decode_tok_s"),
            "speedup": _shown(self.speedup),
            "fastest": self.fastest.point,
            "fastest_speedup": _shown(self.fastest_speedup),
        }


MOST_RIVALS = 1000
"""Candidates, the best over all kinds, among which the fastest of each kind is looked for."""


def kinds_found(
    ledger: Ledger, best: TrialRecord | None, samples: RawSamples, spec: ObjectiveSpec
) -> dict[Level, list[KindFound]]:
    """By concurrency, the kinds in order of their names; {} without a candidate to run.

    `best` is the candidate to run, `spec` the run's objective. Candidates that are refuted are
    nowhere the fastest, those that break a limit not at the concurrency where they do. Raises
    UserError where a file of samples is broken.
    """
    found: dict[Level, list[KindFound]] = {}
    if best is None:
        return found
    base = ledger.baseline
    pairs = zip(objectives(ledger, spec), ledger.candidates, strict=True)
    valued = (
        (value or 0.0, each) for value, each in pairs if each.outcome == "ok" and each is not best
    )
    rivals = [each for _, each in nlargest(MOST_RIVALS, valued, key=itemgetter(0))]
    for level in sorted(level_in(name, best.metrics) for name in best.metrics):
        own = category_figures(best, level, samples)
        below = {} if base is None else category_figures(base, level, samples)
        others = [
            (each, category_figures(each, level, samples))
            for each in rivals
            if not is_refuted_at(ledger, each, spec, level)
        ]
        found[level] = [
            _found(kind, level, (best, own), (base, below), others, samples) for kind in sorted(own)
        ]
    return found


def kinds_json(found: Mapping[Level, Sequence[KindFound]]) -> dict[str, dict[str, Any]]:
    """As `--json` prints it, by concurrency and kind."""
    return {str(n): {each.kind: each.to_json() for each in kinds} for n, kinds in found.items()}


Told = Mapping[str, Mapping[str, Any]]
"""Figures by kind."""


def category_figures(record: TrialRecord, level: Level, samples: RawSamples) -> Told:
    """A trial's figures by kind at one concurrency, from its samples where its line, written by an
    older specbench, has none; {} where neither is there."""
    told: Told | None = record.metrics.get(str(level), {}).get("by_kind")
    if told is not None:
        return told
    point = record.at
    steps, topk = (point.num_steps, point.eagle_topk) if point else (None, None)
    return by_kind(samples.of(record).get(level, ()), steps, topk)


def _found(
    kind: str,
    level: Level,
    best: tuple[TrialRecord, Told],
    base: tuple[TrialRecord | None, Told],
    others: Sequence[tuple[TrialRecord, Told]],
    samples: RawSamples,
) -> KindFound:
    record, own = best
    below, told = base
    fastest, speed = record, own[kind].get("decode_tok_s") or 0.0
    for other, its in others:
        if (its.get(kind, {}).get("decode_tok_s") or 0.0) > speed:
            fastest, speed = other, its[kind]["decode_tok_s"]
    if below is not None and (told.get(kind, {}).get("decode_tok_s") or 0.0) > speed:
        fastest = below
    ratio = _ratio(below, record, level, kind, samples)
    its_ratio = ratio if fastest is record else _ratio(below, fastest, level, kind, samples)
    return KindFound(
        kind=kind,
        figures=own[kind],
        below=told.get(kind, {}),
        speedup=ratio,
        fastest=fastest,
        fastest_speedup=Interval(1.0, 1.0, 1.0) if fastest is below else its_ratio,
    )


def _ratio(
    below: TrialRecord | None, above: TrialRecord, level: Level, kind: str, samples: RawSamples
) -> Interval | None:
    """`above` over `below` in decode speed on one kind, servers beside them allowed for; None where
    samples are missing."""
    if below is None:
        return None
    first, second = (_only(samples.of(each).get(level, ()), kind) for each in (below, above))
    ratio = speedup(first, second, "decode_tok_s") if first and second else None
    return evened(ratio, below, above, level)


def _only(windows: Sequence[Window], kind: str) -> list[Window]:
    """The windows with the samples of one kind alone; their wall time is still that of all."""
    return [
        replace(window, samples=tuple(s for s in window.samples if s.kind == kind))
        for window in windows
    ]


def _shown(ratio: Interval | None) -> dict[str, float | None] | None:
    return None if ratio is None else ratio.to_json()
