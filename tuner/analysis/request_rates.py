"""At which of several request rates speculation pays."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tuner.analysis.baselines import CorrectedLedger
from tuner.analysis.best_per_level import speedups_by_level
from tuner.analysis.winner import broken_at, divergent_outputs, is_disproved
from tuner.config.load_level import Level, Rate, level_in, listed, named, parse_level
from tuner.config.schema import ObjectiveSpec
from tuner.metrics.request_rate import overloaded_at, reached_cap
from tuner.metrics.statistics import Interval
from tuner.runs.ledger import Ledger
from tuner.runs.records import TrialRecord

Says = Literal["pays", "unclear", "loses"]


@dataclass(frozen=True)
class AtRate:
    """The fastest candidate at one rate, beside no speculation there."""

    record: TrialRecord
    ratio: Interval
    overloaded: bool
    """It did not keep up with the rate."""
    plain_overloaded: bool
    """No speculation did not keep up with it."""
    breaks_limits: bool = False
    """It breaks a limit there that no speculation keeps."""
    capped: bool = False
    """Of those that did not keep up one had requests wait for a stream, not for the server."""

    @property
    def says(self) -> Says:
        """By the 95 % interval; one that does not keep up, or breaks a limit, where no speculation
        does not, loses."""
        if self.breaks_limits or (self.overloaded and not self.plain_overloaded):
            return "loses"
        if self.ratio.low is None or self.ratio.high is None:
            return "unclear"
        if self.ratio.low > 1:
            return "pays"
        return "loses" if self.ratio.high < 1 else "unclear"

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "point": self.record.point,
            "speculation": self.says,
            "speedup": self.ratio.to_json(),
            "overloaded": self.overloaded,
            "baseline_overloaded": self.plain_overloaded,
            "breaks_limits": self.breaks_limits,
        }


def crossing(settled: CorrectedLedger, spec: ObjectiveSpec) -> dict[Rate, AtRate]:
    """By rate, ascending; {} of a run at concurrencies, and where nothing was compared.

    Of the candidates that keep up and keep the limits at a rate, or of all where none does, the one
    with the highest ratio; those whose outputs are far from the baseline's, and those that their
    own launches have refuted, are left out.
    """
    ledger = settled.ledger
    if ledger.baseline is None or not any(
        isinstance(parse_level(name), Rate) for name in ledger.baseline.metrics
    ):
        return {}
    measured = [
        (record, speedups_by_level(record.metrics))
        for record in ledger.candidates
        if record.outcome == "ok"
        and divergent_outputs(ledger, record) is None
        and not is_disproved(ledger, record, spec)
    ]
    found: dict[Rate, AtRate] = {}
    for name, plain in ledger.baseline.metrics.items():
        level = level_in(name, ledger.baseline.metrics)
        there = [(record, ratios[level]) for record, ratios in measured if level in ratios]
        if not isinstance(level, Rate) or not there:
            continue

        def fit(pair: tuple[TrialRecord, Interval], level: Level = level) -> tuple[bool, float]:
            late = overloaded_at(pair[0].metrics, str(level))
            return not late and not _breaks(ledger, pair[0], level), pair[1].value

        record, ratio = max(there, key=fit)
        late = overloaded_at(record.metrics, name)
        plain_late = overloaded_at(ledger.baseline.metrics, name)
        slow = [*([record.metrics[name]] if late else []), *([plain] if plain_late else [])]
        capped = any(map(reached_cap, slow))
        breaks = _breaks(ledger, record, level)
        found[level] = AtRate(record, ratio, late, plain_late, breaks, capped)
    return dict(sorted(found.items()))


def _breaks(ledger: Ledger, record: TrialRecord, level: Level) -> bool:
    """Whether a candidate breaks a latency limit at a level that no speculation keeps there."""
    plain = [] if ledger.baseline is None else broken_at(ledger, ledger.baseline, level)
    known = {each.metric for each in plain}
    own = broken_at(ledger, record, level)
    return any(each.metric not in known for each in own if not each.is_floor)


def describe_break_even_rate(found: Mapping[Rate, AtRate]) -> str | None:
    """Up to which rate speculation pays, in one sentence; None with fewer than two rates."""
    if len(found) < 2:
        return None
    by_says: dict[Says, list[Rate]] = {"pays": [], "unclear": [], "loses": []}
    for rate, each in found.items():
        by_says[each.says].append(rate)
    pays, loses, unclear = by_says["pays"], by_says["loses"], by_says["unclear"]
    first, last = min(found), max(found)
    if pays and loses and max(pays) > min(loses):
        return (
            f"Speculation pays at {listed(pays)} and loses at {_listed(loses)}, which "
            "is no order of load: measure again with more requests"
        )
    if not pays and not loses:
        return f"Whether speculation pays is unclear at every rate, {listed(unclear)}"
    told = []
    if pays:
        told.append(
            f"Speculation pays at every rate measured, up to {named(last)}"
            if len(pays) == len(found)
            else f"Speculation pays up to {named(max(pays))}"
        )
    if loses:
        words = "loses" if told else "Speculation loses"
        told.append(
            f"{words} at every rate measured, from {named(first)} on"
            if len(loses) == len(found)
            else f"{words} from {named(min(loses))} on"
        )
    if unclear:
        told.append(f"at {_listed(unclear)} it is unclear, the interval has 1 in it")
    return "; ".join(told)


def describe_overload(found: Mapping[Rate, AtRate]) -> str | None:
    """Who did not keep up with which rate, and where the cap hides it; None where both always
    did."""
    late = {rate: each for rate, each in found.items() if each.plain_overloaded or each.overloaded}
    capped = [rate for rate, each in late.items() if each.capped]
    plain = [rate for rate, each in late.items() if each.plain_overloaded and not each.capped]
    best = [rate for rate, each in late.items() if each.overloaded and not each.capped]
    told = []
    if plain:
        told.append(f"Without speculation the server did not keep up with {listed(plain)}")
    if best:
        told.append(f"{'with' if told else 'With'} it nobody kept up with {listed(best)}")
    told = [", ".join(told)] if told else []
    if capped:
        told.append(
            f"At {listed(capped)} as many were open as workload.concurrency allows, and most of "
            "the waiting was for one of them to end: whether a server keeps up there is not known, "
            "raise it"
        )
    return ". ".join(told) or None


def _listed(rates: list[Rate]) -> str:
    return ", ".join(str(rate).removesuffix("/s") for rate in rates)
