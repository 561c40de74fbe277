"""The baseline in all places at once: what servers that stand side by side do to each other."""

from collections.abc import Sequence

from tuner.campaign.flight import Flight
from tuner.campaign.going import Progress, standing_of
from tuner.engine.process import interrupts_deferred
from tuner.ledger.record import TrialRecord
from tuner.ledger.side_by_side import side_words
from tuner.trial.bench import Asked, Bench
from tuner.trial.places import Launches
from tuner.trial.taken import Windows


def measure_abreast(bench: Bench, baseline: Windows, wanted: int, progress: Progress) -> None:
    """Launch the baseline in every place at the same time, once in a run; nothing where there is
    one place. What fails is recorded and ends nothing."""
    count = bench.alone.count
    known = [each for each in bench.run.records() if each.role == "abreast"]
    if count < 2 or len(known) >= count:
        return
    flight: Flight[None] = Flight(bench.alone)
    try:
        for _ in range(count):
            flight.begin(None, _one(bench, baseline))
        while flight.tags:
            for record in flight.land()[1]:
                progress.recorded(record, standing_of(bench, wanted, record))
    except BaseException as error:
        with interrupts_deferred():
            flight.abort(error)
        raise
    for words in side_words(bench.run.ledger()):
        progress.note(words)


def _one(bench: Bench, baseline: Windows) -> Launches[Sequence[TrialRecord]]:
    measured = yield from bench.launches(Asked("abreast", None), baseline)
    return [measured.record]
