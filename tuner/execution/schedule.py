"""When the baseline is launched again: in the middle of the candidates, and after the last one.

The ledger alone decides, so a resumed run launches it where an undisturbed run would have.
"""

from collections.abc import Sequence

from tuner.config.schema import Sweep
from tuner.runs.ledger import Ledger
from tuner.runs.records import TrialRecord

FEW = 8
"""Launches of candidates below which one in the middle is not worth its time."""


def launches_again(launches: int, expected: int) -> int:
    """Return the further launches of the baseline if the candidates take `expected` launches."""
    return launches - 1 if expected >= FEW else min(launches, 2) - 1


def is_due_in_the_middle(ledger: Ledger, launches: int, expected: int) -> bool:
    """Return True if half of the expected launches of candidates are done.

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
    """Return True if no launch of the baseline came after a candidate with figures.

    A launch that failed is repeated only after further candidates.
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
    """Return the number of baselines that failed before the first one that was measured."""
    attempts = _attempts(ledger.records)
    return next((n for n, each in enumerate(attempts) if each.outcome == "ok"), len(attempts))


def confirms(sweep: Sweep, *, shared: bool, scored: bool) -> bool:
    """Return True if the winner is launched once more, whatever its figures are.

    `shared`: winners may be measured on a server that other points share. `scored`: the run sends
    the questions of a task to its winner.
    """
    return shared or scored or "confirm" in sweep.search.active_stages


def closing_launches(sweep: Sweep, *, shared: bool, scored: bool) -> int:
    """Return the launches that may follow the candidates.

    They are the baseline, the winner and its settings without speculation. See `confirms`.
    """
    again = confirms(sweep, shared=shared, scored=scored)
    settings = bool(sweep.space.env or sweep.space.flags)
    return (sweep.baseline.launches > 1) + again + settings
