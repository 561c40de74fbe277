"""The search over candidates: which are measured, in which launches, until there are enough."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from tuner.config.point import Point
from tuner.execution.recording import TrialRequest
from tuner.execution.trial import SharedTrial, SingleTrial, TrialPool
from tuner.runner.closing import (
    baseline_in_the_middle,
    close,
    closing_s,
    has_closing,
    is_baseline_due,
)
from tuner.runner.context import SearchContext, sweep_progress
from tuner.runner.observations import to_observation
from tuner.runner.slot_baselines import measure_concurrent_baselines
from tuner.runs.records import TrialRecord
from tuner.runs.status import Ended, write_ended
from tuner.search.optuna_study import Proposal
from tuner.server.process import interrupts_deferred
from tuner.workers.worker import ELSEWHERE


def search_candidates(search: SearchContext) -> None:
    """Candidates until enough, a launch for each or for each block; then the winner alone. Before
    them, where there are several places, what servers in them do to each other."""
    write_ended(search.bench.run, Ended(False, None, has_closing(search)))
    if search.room > 0:
        ahead = search.pace.expected(search.shared_points) + closing_s(search)
        measure_concurrent_baselines(search, ahead)
    _finish_cut_off(search)
    candidates = _Candidates(search)
    try:
        while candidates.go_on():
            pass
    except BaseException:
        with interrupts_deferred():
            candidates.trials.abort()
            _publish_the_rest(search)
        raise
    if not candidates.has_failed:
        if search.together is not None and not search.undone:
            search.together.conclude(search.wanted)
        close(search)
    _say_how_it_ended(search, has_failed=candidates.has_failed)


def _say_how_it_ended(search: SearchContext, *, has_failed: bool) -> None:
    undone = [*search.undone, *search.unclosed]
    missing = has_closing(search) if has_failed else bool(search.unclosed)
    why = undone[0] if undone else None
    write_ended(search.bench.run, Ended(not undone, why, missing))


@dataclass(frozen=True)
class _Going:
    """A candidate that is being measured, with what its launch measures besides."""

    proposal: Proposal
    points: tuple[Point, ...]
    began: float
    """By the pace's clock."""


@dataclass
class _Candidates:
    """The candidates of a run, as many at a time as there are places."""

    search: SearchContext
    trials: TrialPool[_Going] = field(init=False)
    failures: int = 0
    """In a row, as the ledger has them."""
    has_failed: bool = False
    """Too many did; nothing more is begun."""
    is_over: bool = False
    """Nothing more is proposed."""
    held: list[Proposal] = field(default_factory=list)
    """Proposals that are not begun: a baseline comes first."""

    def __post_init__(self) -> None:
        self.trials = TrialPool(self.search.bench)

    def go_on(self) -> bool:
        """Begin what can be begun, wait for one that ends; False where nothing is left to do."""
        while self._may_begin() and (proposal := self._next()) is not None:
            if is_baseline_due(self.search):
                self.held.insert(0, proposal)
                if self.trials.tags:
                    break  # it is measured alone
                baseline_in_the_middle(self.search)
                continue  # it took time: perhaps there is none left for the candidate
            self._begin(proposal)
        if not self.trials.tags:
            if self.search.together is not None and not self.has_failed:
                self.search.together.tell_failures()  # or two would wait for each other's
            return self._waits_for_others()
        going, records = self.trials.wait()
        self._told(going, records)
        return True

    def _may_begin(self) -> bool:
        search, running = self.search, self.trials.tags
        if self.is_over or self.has_failed or not self.trials.has_room:
            return False
        if search.room <= sum(len(each.points) for each in running):
            return False
        most = search.bench.sweep.search.max_failures
        if self.failures and len(running) >= most - self.failures:
            return False  # the next ones may fail as well
        ahead = search.pace.expected(search.shared_points) + closing_s(search)
        if is_baseline_due(search):
            ahead += search.pace.expected()
        if (why := search.budget.why_not(ahead)) is not None:
            search.progress.note(f"{why}, no new candidate is begun")
            search.undone.append(why)
            self.is_over = True
            return False
        return True

    def _waits_for_others(self) -> bool:
        """Whether other workers may still leave something to this one."""
        search = self.search
        if search.together is None or self.is_over or self.has_failed or search.study.stopped:
            return False
        return search.budget.why_not() is None and search.together.may_change(search.wanted)

    def _next(self) -> Proposal | None:
        """The next proposal; None where there is none, or none before something has ended."""
        if self.held:
            return self.held.pop(0)
        together = self.search.together
        if together is None:
            return self._proposed(())
        wanted, begun = self.search.wanted, sum(len(each.points) for each in self.trials.tags)
        while together.look() and not together.is_full(wanted) and self.search.room > begun:
            proposal = self._proposed(together.elsewhere)
            if proposal is None:
                return None
            claimed = together.claim(proposal.point, wanted)
            if claimed:
                return proposal
            self.search.study.withdraw(proposal, ELSEWHERE)
            if claimed is None:
                return None
        return None

    def _proposed(self, elsewhere: Collection[Point]) -> Proposal | None:
        search, study = self.search, self.search.study
        along = [point for each in self.trials.tags for point in each.points[1:]]
        handed_over, proposal = study.handed_over, study.propose([*along, *elsewhere])
        if study.handed_over != handed_over:
            search.progress.note(
                f"{study.handed_over}; {search.bench.sweep.search.sampler} chooses from here"
            )
        if proposal is None and not self.trials.tags and study.stopped is not None:
            search.progress.note(f"the search ends here: {study.stopped.why}")
        return proposal

    def _begin(self, proposal: Proposal) -> None:
        """Launch for a proposed point, with what its launch can measure besides."""
        search, running = self.search, self.trials.tags
        bench, point, decision = search.bench, proposal.point, proposal.decision
        if decision is not None and search.left_out:
            decision = replace(decision, excluded={**search.left_out, **decision.excluded})
        room = search.room - sum(len(each.points) for each in running)
        taken = {other for each in running for other in each.points}
        taken |= {each.point for each in search.study.pending}
        points = search.blocks.around(point, bench.run.ledger().records, room, taken)
        if search.together is not None:
            claimed = (e for e in points[1:] if search.together.claim(e, search.wanted))
            points = (point, *claimed)
        race = search.races.next(point, decision)
        asked = TrialRequest("candidate", point, decision, along=points[1:], race=race)
        kind = SharedTrial if asked.along else SingleTrial
        going = _Going(proposal, points, search.pace.clock.monotonic())
        self.trials.begin(going, kind(bench, asked, search.baseline))

    def _told(self, going: _Going, records: Sequence[TrialRecord]) -> None:
        """Tell the study and whoever listens."""
        search, bench = self.search, self.search.bench
        spec = bench.sweep.search.objective
        search.pace.took(going.began, records)
        search.study.tell(going.proposal, to_observation(records[0], spec))
        _tell_unasked(search, records[1:])
        _publish(search, records, going.points)
        for record in records:
            search.progress.recorded(record, sweep_progress(search, record))
            self.failures = self.failures + 1 if record.outcome == "failed" else 0
        if (why := records[0].switch_failure) is not None:
            search.progress.note(
                f"a launch for {len(going.points)} chain lengths failed ({why}): those that "
                "it did not measure have one launch each"
            )
        if self.failures >= bench.sweep.search.max_failures and not self.has_failed:
            search.progress.note(f"{self.failures} trials in a row failed, the run stops")
            search.undone.append(f"{self.failures} trials in a row failed")
            self.has_failed = True
        if self.has_failed and search.together is not None:
            search.together.give_up()


def _tell_unasked(search: SearchContext, records: Sequence[TrialRecord]) -> None:
    for record in records:
        assert record.at is not None
        verdict = to_observation(record, search.bench.sweep.search.objective)
        search.study.add(record.at, verdict)


def _publish(
    search: SearchContext, records: Sequence[TrialRecord], claimed: Collection[Point] = ()
) -> None:
    """Tell other workers, where there are some; `claimed` was to be measured."""
    if search.together is not None:
        spec = search.bench.sweep.search.objective
        found = {each.at: to_observation(each, spec) for each in records if each.at is not None}
        search.together.publish(found, claimed)


def _publish_the_rest(search: SearchContext) -> None:
    """Tell other workers what is in the ledger and was not told: an interrupt came in between."""
    if search.together is not None:
        untold = search.together.untold(search.bench.run.ledger().candidates)
        _publish(search, untold)


def _finish_cut_off(search: SearchContext) -> None:
    """Measure what the last shared launch measured in vain: its lines were cut off by a crash."""
    bench = search.bench
    points = search.blocks.cut_off(bench.run.ledger().candidates)[: search.room]
    if not points:
        return
    ahead = search.pace.expected(len(points)) + closing_s(search)
    if search.budget.why_not(ahead) is not None:
        return
    race = search.races.next(points[0], None)
    asked = TrialRequest("candidate", points[0], along=points[1:], is_proposed=False, race=race)
    with search.pace.launching() as records:
        records += bench.measure_block(asked, search.baseline)
    _tell_unasked(search, records)
    _publish(search, records)
    for record in records:
        search.progress.recorded(record, sweep_progress(search, record))
