"""The places that a run's launches are performed in."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tuner.campaign.going import Progress
from tuner.engine.process import interrupts_deferred
from tuner.sweep.door import LoadedSweep
from tuner.trial.bench import Bench
from tuner.trial.job import bare
from tuner.trial.places import Places, PlacesMaker
from tuner.trial.slot_rules import slots_of
from tuner.trial.slots import Slots


@contextmanager
def placed(
    bench: Bench, loaded: LoadedSweep, progress: Progress, elsewhere: PlacesMaker | None
) -> Iterator[Bench]:
    """The bench with the places that `slots` asks for, or those elsewhere, until the block is
    through."""
    places: Places
    if elsewhere is not None:
        places = elsewhere(bench, progress.phase)
    else:
        slots = slots_of(loaded, os.environ)
        if len(slots) < 2:
            yield bench
            return
        for slot in slots:
            progress.note(slot.words())
        places = Slots(bare(bench), slots, progress.phase)
    try:
        yield replace(bench, places=places)
    finally:
        with interrupts_deferred():
            places.close()
