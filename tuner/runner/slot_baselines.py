"""The baseline in all slots at the same time: how much concurrent servers slow each other down."""

from collections.abc import Iterable

from tuner.execution.recording import TrialRequest
from tuner.execution.trial import SingleTrial, TrialPool
from tuner.runner.context import SearchContext, sweep_progress
from tuner.runs.records import TrialRecord
from tuner.runs.slot_interference import describe_slots


def measure_concurrent_baselines(search: SearchContext, ahead: float) -> None:
    """Launch the baseline in every slot at the same time, once in a run for each number of slots.

    Does nothing if there is one slot, or if no `ahead` seconds are left after it. A failure is
    recorded and ends nothing.
    """
    bench, progress, count = search.bench, search.progress, search.bench.executor.count
    if count < 2 or len(_known(bench.run.records(), count)) >= count:
        return
    if (why := search.budget.why_not(search.pace.expected() + ahead)) is not None:
        progress.note(f"{why}: what servers side by side do to each other is not measured")
        return
    trials: TrialPool[None] = TrialPool(bench)
    try:
        for _ in range(count):
            trials.begin(None, SingleTrial(bench, TrialRequest("abreast", None), search.baseline))
        while trials.tags:
            for record in trials.wait()[1]:
                progress.recorded(record, sweep_progress(search, record))
    except BaseException:
        trials.abort()
        raise
    for words in describe_slots(bench.run.ledger()):
        progress.note(words)


def _known(records: Iterable[TrialRecord], count: int) -> set[tuple[str, int]]:
    """Return the launches that count for so many places: of a slot only one."""
    found = set()
    for record in records:
        place = record.place
        if record.role == "abreast" and place is not None and place.slots in (None, count):
            found.add((place.name, record.trial if place.slots is None else 0))
    return found
