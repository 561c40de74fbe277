"""A run that goes on: what its steps need, who listens, how far it is."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

from tuner.campaign.racing import Races
from tuner.choice import fastest_candidate, objective_of
from tuner.ledger.raw_samples import RawSamples
from tuner.ledger.record import TrialRecord
from tuner.ledger.settled import Settling
from tuner.search.study import Study
from tuner.trial.bench import Bench
from tuner.trial.block import Blocks, launches_of
from tuner.trial.phase import Phase
from tuner.trial.taken import Windows


@dataclass(frozen=True)
class Standing:
    """How far the run is, after a trial."""

    done: int
    """Candidates recorded."""
    wanted: int
    """Candidates in all: what was asked for, or the whole space where that is smaller."""
    value: float | None
    """This trial's objective, None where it has none."""
    best: TrialRecord | None
    """The fastest candidate so far, also where the baseline is faster."""
    best_value: float | None


class Progress(Protocol):
    """Who listens to a run; a terminal, a log, a test."""

    def phase(self, phase: Phase) -> None:
        """A trial does something else now."""

    def recorded(self, record: TrialRecord, standing: Standing) -> None:
        """A trial ended and is in the ledger."""

    def step(self, message: str) -> None:
        """Something besides a trial goes on; the latest one is what a live line shows."""

    def note(self, message: str) -> None:
        """Something that the user should know; one sentence."""


class Budget:
    """The time in which candidates may be begun, from now on; None: any.

    `stop` is a file that ends it at once, where somebody makes it (`specbench stop`).
    """

    def __init__(self, seconds: float | None, stop: Path | None = None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds
        self._stop = stop

    def is_spent(self) -> bool:
        return self.why is not None

    @property
    def why(self) -> str | None:
        """Why no candidate is begun any more; None while one may be."""
        if self._stop is not None and self._stop.exists():
            return "somebody asked this run to stop"
        if self._end is not None and time.monotonic() >= self._end:
            return "the time budget is spent"
        return None


@dataclass(frozen=True)
class Search:
    """What the search over candidates needs."""

    study: Study
    blocks: Blocks
    bench: Bench
    baseline: Windows
    wanted: int
    budget: Budget
    progress: Progress
    points: int
    """Of the space."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Reason -> points that the stage comm took away, as each decision carries it."""

    @cached_property
    def races(self) -> Races:
        """Whom candidates are raced against."""
        return Races(self.bench.run, self.bench.sweep, self.baseline)

    @cached_property
    def settling(self) -> Settling:
        """Speed-ups over all launches of the baseline, which the answer goes by."""
        run, metric = self.bench.run, self.bench.sweep.search.objective.metric
        return Settling(run, metric, RawSamples(run))

    @property
    def launches(self) -> int:
        """Launches that the candidates are expected to take."""
        return launches_of(self.blocks, self.points, self.wanted)

    @property
    def room(self) -> int:
        """Candidates that are still wanted."""
        return self.wanted - len(self.bench.run.ledger().candidates)


def standing_of(bench: Bench, wanted: int, record: TrialRecord) -> Standing:
    """How far the run is, from its ledger, after `record`."""
    ledger, spec = bench.run.ledger(), bench.sweep.search.objective
    best, best_value = fastest_candidate(ledger, spec)
    return Standing(len(ledger.candidates), wanted, objective_of(record, spec), best, best_value)
