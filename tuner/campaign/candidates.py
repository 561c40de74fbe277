"""The search over candidates: which are measured, in which launches, until there are enough."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from tuner.campaign.racing import Races
from tuner.campaign.studied import verdict_of
from tuner.choice import complexity, fastest_candidate, is_tied, objective_of
from tuner.engine.base import plain_config, server_config
from tuner.ledger.raw_samples import RawSamples
from tuner.ledger.record import TrialRecord
from tuner.ledger.settled import Settling
from tuner.search.study import Proposal, Study
from tuner.sweep.model import Sweep
from tuner.sweep.point import Point
from tuner.trial.attempt import Phase
from tuner.trial.baselines import is_due_at_the_end, is_due_in_the_middle
from tuner.trial.bench import Asked, Bench
from tuner.trial.block import Blocks, launches_of
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
    """The time in which candidates may be begun, from now on; None: any."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    def is_spent(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end


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


def confirms(sweep: Sweep) -> bool:
    """Whether a winner is launched once more, whichever it is."""
    return "confirm" in sweep.search.active_stages or sweep.server.step_switch


def search_candidates(search: Search) -> None:
    """Candidates until enough, a launch for each or for each block; then the winner alone."""
    study, progress = search.study, search.progress
    most, failures_in_a_row = search.bench.sweep.search.max_failures, 0
    _finish_cut_off(search)
    while search.room > 0:
        if search.budget.is_spent():
            progress.note("the time budget is spent, no new candidate is begun")
            break
        _baseline_in_the_middle(search)
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
    if study.storage_lost is not None:
        progress.note(
            f"the dashboard's study is not complete ({study.storage_lost}), the ledger is; "
            "a resumed run writes the study anew"
        )
    if failures_in_a_row < most:
        _baseline_at_the_end(search)
        _confirm(search)
        _without_speculation(search)


def _baseline_in_the_middle(search: Search) -> None:
    bench = search.bench
    launches = bench.sweep.baseline.launches
    if is_due_in_the_middle(bench.run.ledger(), launches, search.launches):
        _baseline_again(search, at_the_end=False)


def _baseline_at_the_end(search: Search) -> None:
    if not is_due_at_the_end(search.bench.run.ledger(), search.bench.sweep.baseline.launches):
        return
    if search.budget.is_spent():
        search.progress.note("the time budget is spent, the baseline is not launched again")
        return
    _baseline_again(search, at_the_end=True)


def _baseline_again(search: Search, *, at_the_end: bool) -> None:
    """The baseline once more, alone on the machine as every launch is; a failure ends nothing."""
    unseen = at_the_end and confirms(search.bench.sweep) and bool(search.bench.held_out)
    record = search.bench.measure(Asked("baseline", None, held_out=unseen), None).record
    search.progress.recorded(record, standing_of(search.bench, search.wanted, record))
    if record.outcome != "ok":
        search.progress.note(
            f"the baseline could not be launched again ({record.failure}): whether the machine has "
            "drifted is not known"
        )


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

    It is where the stage `confirm` is on (the best of many is so by luck too; then it is the point
    that the search takes for the fastest, where that is another one), where the winner was measured
    on a shared server, and where a race had left windows of it out because of one that was refuted
    since. It has windows on prompts that no candidate was measured on, where the baseline has.
    """
    bench, ledger = search.bench, search.settling.settled().ledger
    fastest, value = fastest_candidate(ledger, bench.sweep.search.objective)
    if fastest is None or value is None or value <= 1:
        return False
    point, decision = fastest.at, None
    if "confirm" in bench.sweep.search.active_stages and not ledger.recommended:
        recommended = search.study.recommended()
        if recommended is not None and _is_better(recommended[0], fastest, search):
            point, decision = recommended
    always = "confirm" in bench.sweep.search.active_stages
    if decision is None and not (always or fastest.warm_steps or fastest.fell_behind):
        return False
    if any(each.role == "confirm" and each.at == point for each in ledger.records):
        return False
    if search.budget.is_spent():
        search.progress.note("the time budget is spent, the winner has no launch of its own")
        return False
    unseen = any(each.held_out is not None for each in ledger.baselines)
    asked = Asked("confirm", point, decision, held_out=unseen)
    record = bench.measure(asked, search.baseline).record
    search.progress.recorded(record, standing_of(bench, search.wanted, record))
    return True


def _without_speculation(search: Search) -> None:
    """Launch the winner's own settings without speculation once, where it has any: what they give
    is no gain of speculation's."""
    bench, ledger = search.bench, search.settling.settled().ledger
    fastest, value = fastest_candidate(ledger, bench.sweep.search.objective)
    settings = None if fastest is None or fastest.at is None else fastest.at.settings
    if fastest is None or value is None or value <= 1 or settings is None:
        return
    its, baseline = plain_config(bench.sweep, settings), server_config(bench.sweep, None)
    if its == baseline or ledger.plain(fastest) is not None:
        return
    if search.budget.is_spent():
        search.progress.note(
            "the time budget is spent, the winner's settings are not launched without speculation"
        )
        return
    record = bench.measure(Asked("plain", settings), search.baseline).record
    search.progress.recorded(record, standing_of(bench, search.wanted, record))


def _is_better(point: Point, fastest: TrialRecord, search: Search) -> bool:
    """Whether the search's choice would be the answer if its own launch bears it out.

    Not where a race has cut it short, or where the answer so far is a simpler equal of it.
    """
    ledger, spec = search.settling.settled().ledger, search.bench.sweep.search.objective
    record = next((each for each in reversed(ledger.candidates) if each.at == point), None)
    if record is None or record.trial == fastest.trial or record.fell_behind:
        return False
    return not (is_tied(record, fastest, spec) and complexity(fastest.at) <= complexity(point))


def standing_of(bench: Bench, wanted: int, record: TrialRecord) -> Standing:
    """How far the run is, from its ledger, after `record`."""
    ledger, spec = bench.run.ledger(), bench.sweep.search.objective
    best, best_value = fastest_candidate(ledger, spec)
    return Standing(len(ledger.candidates), wanted, objective_of(record, spec), best, best_value)
