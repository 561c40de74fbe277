"""The search over candidates: which are measured, in which launches, until there are enough."""

from dataclasses import replace

from tuner.campaign.closing import baseline_in_the_middle, close, closing_s
from tuner.campaign.going import Search, standing_of
from tuner.campaign.studied import verdict_of
from tuner.ledger.record import TrialRecord
from tuner.search.study import Proposal
from tuner.trial.bench import Asked
from tuner.trial.shared import SharedTrial, measure_together


def search_candidates(search: Search) -> None:
    """Candidates until enough, a launch for each or for each block; then the winner alone."""
    study, progress = search.study, search.progress
    most, failures_in_a_row = search.bench.sweep.search.max_failures, 0
    _finish_cut_off(search)
    while search.room > 0:
        ahead = search.pace.expected(search.shared_points) + closing_s(search)
        if (why := search.budget.why_not(ahead)) is not None:
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
        baseline_in_the_middle(search)  # not before a search that ends here: then it is the end
        for record in _measure(search, proposal):
            failures_in_a_row = failures_in_a_row + 1 if record.outcome == "failed" else 0
        if failures_in_a_row >= most:
            progress.note(f"{failures_in_a_row} trials in a row failed, the run stops")
            break
    if failures_in_a_row < most:
        close(search)


def _measure(search: Search, proposal: Proposal) -> list[TrialRecord]:
    """Measure a proposed point with what its launch can measure besides, and tell the study."""
    bench, point, decision = search.bench, proposal.point, proposal.decision
    if decision is not None and search.left_out:
        decision = replace(decision, excluded={**search.left_out, **decision.excluded})
    points = search.blocks.around(point, bench.run.ledger().records, search.room)
    race = search.races.next(point, decision)
    with search.pace.launching() as records:
        if len(points) > 1:
            shared = SharedTrial(points, search.baseline, decision=decision, race=race)
            records += measure_together(bench, shared)
        else:
            asked = Asked("candidate", point, decision, race=race)
            records.append(bench.measure(asked, search.baseline).record)
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
    if not points:
        return
    ahead = search.pace.expected(len(points)) + closing_s(search)
    if search.budget.why_not(ahead) is not None:
        return
    race = search.races.next(points[0], None)
    shared = SharedTrial(points, search.baseline, is_proposed=False, race=race)
    with search.pace.launching() as records:
        records += measure_together(bench, shared)
    _tell_unasked(search, records)
    for record in records:
        search.progress.recorded(record, standing_of(bench, search.wanted, record))
