"""When the baseline is launched again: in the middle of the candidates, and after the last one.

Decided from the ledger alone, so a resumed run launches it where an undisturbed one would have.
"""

from collections.abc import Sequence

from tuner.config.schema import Sweep
from tuner.runs.ledger import Ledger
from tuner.runs.records import TrialRecord

FEW = 8
"""Launches of candidates below which one in the middle is not worth its time."""


def launches_again(launches: int, expected: int) -> int:
    """Further launches of the baseline in a run whose candidates take so many."""
    return launches - 1 if expected >= FEW else min(launches, 2) - 1


def is_due_in_the_middle(ledger: Ledger, launches: int, expected: int) -> bool:
    """Before the next candidate: half of the launches that the run expects for candidates are done.

    `launches` is the sweep's `baseline.launches`. A search that ends early has none in its middle.
    """
    if (
        launches_again(launches, expected) < 2
        or len(_attempts(ledger.records)) > _failed_first(ledger) + 1
    ):
        return False
    done = {each.launch_id for each in ledger.candidates}
    return len(done) >= expected // 2


def is_due_at_the_end(ledger: Ledger, launches: int) -> bool:
    """After the last candidate: one has figures that no launch of the baseline came after.

    Where that launch failed it is not tried again before there are further candidates.
    """
    if launches < 2:
        return False
    for record in reversed(ledger.records):
        if record.role == "baseline":
            return False
        if record.role == "candidate" and record.outcome == "ok":
            return True
    return False


def _attempts(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    return [each for each in records if each.role == "baseline"]


def _failed_first(ledger: Ledger) -> int:
    """Baselines that failed before the first one that was measured."""
    attempts = _attempts(ledger.records)
    return next((n for n, each in enumerate(attempts) if each.outcome == "ok"), len(attempts))


def confirms(sweep: Sweep, *, shared: bool, scored: bool) -> bool:
    """Whether a winner is launched once more for what the run is, whatever its figures are.

    `shared`: it was, or winners may be, measured on a server that others shared. `scored`: the run
    puts the questions of a task to its winner.
    """
    return shared or scored or "confirm" in sweep.search.active_stages


def closing_launches(sweep: Sweep, *, shared: bool, scored: bool) -> int:
    """The baseline again, the winner again, its settings without speculation: those that may come;
    `shared` and `scored` as of `confirms`."""
    again = confirms(sweep, shared=shared, scored=scored)
    settings = bool(sweep.space.env or sweep.space.flags)
    return (sweep.baseline.launches > 1) + again + settings
