"""What speaks against a candidate: limits that it breaks, other outputs, its own second launch."""

from tuner.answer.objectives import held_out_objective, objective_of
from tuner.ledger.judged import BrokenLimit
from tuner.ledger.lines import Ledger
from tuner.ledger.record import TrialRecord
from tuner.sweep.level import Level
from tuner.sweep.model import ObjectiveSpec


def far_outputs(ledger: Ledger, record: TrialRecord) -> TrialRecord | None:
    """The candidate itself, or its launch of its own, where its outputs speak against it.

    They are far from the baseline's or the task's score is clearly lower; never where
    `measure.outputs` is not `stop`.
    """
    if record.is_another:
        return record
    again = ledger.confirmation(record)
    return again if again is not None and again.is_another else None


def broken_by(ledger: Ledger, record: TrialRecord) -> list[BrokenLimit]:
    """Limits of `search.limits` that a candidate breaks, or its launch of its own where itself it
    keeps them; [] where both keep them."""
    again = ledger.confirmation(record)
    return record.broken or ([] if again is None else again.broken)


def is_refuted(ledger: Ledger, record: TrialRecord, spec: ObjectiveSpec) -> bool:
    """A candidate that breaks a limit, whose outputs are far from the baseline's, or whose launch
    of its own failed or was no faster than no speculation, there or on prompts that it was not
    chosen on."""
    if ledger.confirmation(record) is None:  # nearly all: nothing but the line itself speaks
        return bool(record.broken) or record.is_another
    speaks = far_outputs(ledger, record) is not None or broken_by(ledger, record)
    return bool(speaks) or is_disproved(ledger, record, spec)


def is_refuted_at(ledger: Ledger, record: TrialRecord, spec: ObjectiveSpec, level: Level) -> bool:
    """The same of one level by itself: a limit that is broken at another one says nothing there."""
    if not record.broken and ledger.confirmation(record) is None:
        return record.is_another
    speaks = far_outputs(ledger, record) is not None or broken_at(ledger, record, level)
    return bool(speaks) or is_disproved(ledger, record, spec)


def broken_at(ledger: Ledger, record: TrialRecord, level: Level) -> list[BrokenLimit]:
    """Of `broken_by` what is broken at one level."""
    broken = broken_by(ledger, record)
    return [each for each in broken if str(each.concurrency) == str(level)] if broken else broken


def is_disproved(ledger: Ledger, record: TrialRecord, spec: ObjectiveSpec) -> bool:
    """A candidate whose launch of its own failed or was no faster than no speculation, there or on
    prompts that it was not chosen on."""
    again = ledger.confirmation(record)
    if again is None:
        return False
    values = objective_of(again, spec), held_out_objective(again, spec)
    return again.outcome != "ok" or any(value is not None and value <= 1 for value in values)
