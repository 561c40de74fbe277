"""The search over candidates: which are measured, in which launches, until there are enough."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

from tuner.campaign.racing import Races
from tuner.campaign.studied import verdict_of
from tuner.choice import complexity, fastest_candidate, is_refuted, is_tied, objective_of
from tuner.ledger.record import TrialRecord
from tuner.search.study import Proposal, Study
from tuner.sweep.point import Point
from tuner.trial.attempt import Phase
from tuner.trial.bench import Asked, Bench
from tuner.trial.block import Blocks
from tuner.trial.shared import SharedTrial, measure_together
from tuner.trial.taken import Windows

MAX_CONFIRMED = 3
"""Winners that are launched once more, where each one's own launch refutes it."""


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
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Reason -> points that the stage comm took away, as each decision carries it."""

    @cached_property
    def races(self) -> Races:
        """Whom candidates are raced against."""
        return Races(self.bench.run, self.bench.sweep, self.baseline)

    @property
    def room(self) -> int:
        """Candidates that are still wanted."""
        return self.wanted - len(self.bench.run.ledger().candidates)


def search_candidates(search: Search) -> None:
    """Candidates until enough, a launch for each or for each block; then the winner alone."""
    study, progress = search.study, search.progress
    most, failures_in_a_row = search.bench.sweep.search.max_failures, 0
    _finish_cut_off(search)
    while search.room > 0:
        if (why := search.budget.why) is not None:
            progress.note(f"{why}, no new candidate is begun")
            break
        handed_over, proposal = study.handed_over, study.propose()
        if study.handed_over != handed_over:
            progress.note(
                f"{study.handed_over}; {search.bench.sweep.search.sampler} chooses from here"
            )
        if proposal is None:
            if study.stopped is not None:
                progress.note(f"the search ends here: {study.stopped.why}")
            break
        for record in _measure(search, proposal):
            failures_in_a_row = failures_in_a_row + 1 if record.outcome == "failed" else 0
        if failures_in_a_row >= most:
            progress.note(f"{failures_in_a_row} trials in a row failed, the run stops")
            break
    if failures_in_a_row < most:
        _confirm(search)


def _measure(search: Search, proposal: Proposal) -> list[TrialRecord]:
    """Measure a proposed point with what its launch can measure besides, and tell the study."""
    bench, point, decision = search.bench, proposal.point, proposal.decision
    if decision is not None and search.left_out:
        decision = replace(decision, excluded={**search.left_out, **decision.excluded})
    points = search.blocks.around(point, bench.run.ledger().records, search.room)
    race = search.races.next(point, decision)
    if len(points) > 1:
        shared = SharedTrial(points, search.baseline, decision=decision, race=race)
        records = measure_together(bench, shared)
    else:
        asked = Asked("candidate", point, decision, race=race)
        records = [bench.measure(asked, search.baseline).record]
    spec = bench.sweep.search.objective
    search.study.tell(proposal, verdict_of(records[0], spec))
    _tell_unasked(search, records[1:])
    for record in records:
        search.progress.recorded(record, standing_of(bench, search.wanted, record))
    if (why := records[0].switch_failure) is not None:
        search.progress.note(f"a launch for {len(points)} chain lengths failed ({why}): those that "
                             "it did not measure have one launch each")  # fmt: skip
    return records


def _tell_unasked(search: Search, records: list[TrialRecord]) -> None:
    for record in records:
        assert record.at is not None
        verdict = verdict_of(record, search.bench.sweep.search.objective)
        search.study.tell_unasked(record.at, verdict)


def _finish_cut_off(search: Search) -> None:
    """Measure what the last shared launch measured in vain: its lines were cut off by a crash."""
    bench = search.bench
    points = search.blocks.cut_off(bench.run.ledger().candidates)[: search.room]
    if not points or search.budget.is_spent():
        return
    race = search.races.next(points[0], None)
    shared = SharedTrial(points, search.baseline, is_proposed=False, race=race)
    records = measure_together(bench, shared)
    _tell_unasked(search, records)
    for record in records:
        search.progress.recorded(record, standing_of(bench, search.wanted, record))


def _confirm(search: Search) -> None:
    """Measure the winner once more, on a server of its own; the next one where that refutes it."""
    for _ in range(MAX_CONFIRMED):
        if not _confirm_one(search):
            return


def _confirm_one(search: Search) -> bool:
    """Whether a launch was made.

    It is where the winner was measured on a shared server, where the search takes another point
    for the fastest than the one with the highest figure (that may be one launch's luck), where
    a race had left windows of it out because of one that was refuted since, and where it has a task
    to be scored by.
    """
    bench, ledger = search.bench, search.bench.run.ledger()
    fastest, value = fastest_candidate(ledger, bench.sweep.search.objective)
    if fastest is None or value is None or value <= 1:
        return False
    point, decision = fastest.at, None
    if "confirm" in bench.sweep.search.active_stages and not ledger.recommended:
        recommended = search.study.recommended()
        if recommended is not None and _is_better(recommended[0], fastest, search):
            point, decision = recommended
    alone = not fastest.warm_steps and not fastest.fell_behind
    if decision is None and alone and not bench.task:
        return False
    if any(each.role == "confirm" and each.at == point for each in ledger.records):
        return False
    if (why := search.budget.why) is not None:
        search.progress.note(f"{why}, the winner has no launch of its own")
        return False
    record = bench.measure(Asked("confirm", point, decision), search.baseline).record
    search.progress.recorded(record, standing_of(bench, search.wanted, record))
    return True


def _is_better(point: Point, fastest: TrialRecord, search: Search) -> bool:
    """Whether the search's choice would be the answer if its own launch bears it out.

    Not where a race has cut it short, or where the answer so far is a simpler equal of it.
    """
    ledger, spec = search.bench.run.ledger(), search.bench.sweep.search.objective
    record = next((each for each in reversed(ledger.candidates) if each.at == point), None)
    if record is None or record is fastest or record.fell_behind:
        return False
    if is_refuted(ledger, record, spec):
        return False
    return not (is_tied(record, fastest, spec) and complexity(fastest.at) <= complexity(point))


def standing_of(bench: Bench, wanted: int, record: TrialRecord) -> Standing:
    """How far the run is, from its ledger, after `record`."""
    ledger, spec = bench.run.ledger(), bench.sweep.search.objective
    best, best_value = fastest_candidate(ledger, spec)
    return Standing(len(ledger.candidates), wanted, objective_of(record, spec), best, best_value)
