"""The objective of each candidate of a ledger."""

from collections.abc import Mapping
from typing import Any

from tuner.ledger.lines import Ledger
from tuner.ledger.record import TrialRecord
from tuner.search.objective import objective
from tuner.sweep.level import level_of
from tuner.sweep.model import ObjectiveSpec


def objective_of(record: TrialRecord, spec: ObjectiveSpec) -> float | None:
    """The objective of a candidate, None where it was not measured."""
    return _objective(record.metrics, spec) if record.outcome == "ok" else None


def held_out_objective(record: TrialRecord, spec: ObjectiveSpec) -> float | None:
    """The same on prompts that no candidate was chosen on."""
    return None if record.held_out is None else _objective(record.held_out.metrics, spec)


def _objective(metrics: Mapping[str, Mapping[str, Any]], spec: ObjectiveSpec) -> float | None:
    known = {}
    for level, figures in metrics.items():
        ratio = figures.get("speedup")
        if ratio is None:
            return None
        known[level_of(level)] = ratio
    if not known or (spec.level is not None and spec.level not in known):
        return None
    return objective(known, spec)


def objectives(ledger: Ledger, spec: ObjectiveSpec) -> list[float | None]:
    """`objective_of` each candidate, in their order."""
    return ledger.once(
        ("objectives", spec), lambda: [objective_of(each, spec) for each in ledger.candidates]
    )


def valued(ledger: Ledger, spec: ObjectiveSpec) -> list[tuple[TrialRecord, float]]:
    """The measured candidates, each with its objective, in the order measured."""
    pairs = zip(ledger.candidates, objectives(ledger, spec), strict=True)
    return [(record, value) for record, value in pairs if value is not None]
