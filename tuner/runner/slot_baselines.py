"""The baseline in all places at once: what servers that stand side by side do to each other."""

from collections.abc import Iterable, Sequence

from tuner.execution.concurrent_trials import TrialPool
from tuner.execution.executor import Launches
from tuner.execution.measurement import Windows
from tuner.execution.trial import TrialRequest, TrialRunner
from tuner.runner.context import SearchContext, sweep_progress
from tuner.runs.records import TrialRecord
from tuner.runs.slot_interference import describe_slots
from tuner.server.process import interrupts_deferred


def measure_abreast(search: SearchContext, ahead: float) -> None:
    """Launch the baseline in every place at the same time, once in a run for each number of slots;
    nothing where there is one place, or where no `ahead` seconds are left after it. What fails is
    recorded and ends nothing."""
    bench, progress, count = search.bench, search.progress, search.bench.alone.count
    if count < 2 or len(_known(bench.run.records(), count)) >= count:
        return
    if (why := search.budget.why_not(search.pace.expected() + ahead)) is not None:
        progress.note(f"{why}: what servers side by side do to each other is not measured")
        return
    flight: TrialPool[None] = TrialPool(bench.alone)
    try:
        for _ in range(count):
            flight.begin(None, _one(bench, search.baseline))
        while flight.tags:
            for record in flight.land()[1]:
                progress.recorded(record, sweep_progress(search, record))
    except BaseException as error:
        with interrupts_deferred():
            flight.abort(error)
        raise
    for words in describe_slots(bench.run.ledger()):
        progress.note(words)


def _known(records: Iterable[TrialRecord], count: int) -> set[tuple[str, int]]:
    """Launches that tell of so many places: of slots the last one of each, once."""
    found = set()
    for each in records:
        if each.role != "abreast" or each.place is None or each.place.slots not in (None, count):
            continue
        found.add((each.place.name, each.trial if each.place.slots is None else 0))
    return found


def _one(bench: TrialRunner, baseline: Windows) -> Launches[Sequence[TrialRecord]]:
    measured = yield from bench.launches(TrialRequest("abreast", None), baseline)
    return [measured.record]
