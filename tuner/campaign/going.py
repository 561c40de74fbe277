"""A run that goes on: what its steps need, who listens, how far it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from tuner.answer.choice import fastest_candidate
from tuner.answer.fastest import not_told_apart
from tuner.answer.objectives import objective_of
from tuner.campaign.budget import Budget, Pace
from tuner.campaign.racing import Races
from tuner.campaign.together import Together
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
    alike: int = 0
    """Other candidates that the measurements do not tell apart from `best`."""


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


@dataclass(frozen=True)
class Search:
    """What the search over candidates needs."""

    study: Study
    blocks: Blocks
    bench: Bench
    baseline: Windows
    wanted: int
    budget: Budget
    pace: Pace
    progress: Progress
    points: int
    """Of the space."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Reason -> points that the stage comm took away, as each decision carries it."""

    together: Together | None = None
    """The other workers of the search; None of a run alone."""
    undone: list[str] = field(default_factory=list)
    """Why no further candidate is begun, as it comes, where some are still to be."""
    unclosed: list[str] = field(default_factory=list)
    """Why a closing launch that was due is not made."""

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
    def shared_points(self) -> int:
        """Points of the largest launch that may come."""
        most = max((len(block.points) for block in self.blocks.of_sweep), default=1)
        return max(1, min(most, self.room))

    @property
    def room(self) -> int:
        """Candidates that are still wanted."""
        others = 0 if self.together is None else self.together.of_others
        return self.wanted - others - len(self.bench.run.ledger().candidates)


def standing_of(search: Search, record: TrialRecord) -> Standing:
    """How far the run is, from its ledger, after `record`.

    By lines alone: to hold every candidate's samples against the best's after each trial would take
    longer than the search itself.
    """
    spec, ledger = search.bench.sweep.search.objective, search.bench.run.ledger()
    best, best_value = fastest_candidate(ledger, spec)
    alike = [] if best is None else not_told_apart(ledger, spec, best)
    others = sum(each.role != "baseline" for each in alike)
    value = objective_of(record, spec)
    return Standing(len(ledger.candidates), search.wanted, value, best, best_value, others)
