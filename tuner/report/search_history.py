"""How a run was searched: each launch with its reason, what was expected and what came."""

from tuner.analysis.summary import NO_SPECULATION, RunSummary
from tuner.analysis.winner import read_objective
from tuner.core.formatting import MISSING, count, interval, number
from tuner.core.markdown import code, escaped, markdown_table
from tuner.report.nccl import describe_screening
from tuner.runs.records import TrialRecord
from tuner.search.staged import CANNOT_WIN

HEADER = [
    "launch",
    "trial",
    "configuration",
    "stage",
    "expected, times the baseline",
    "measured",
    "why",
]
MAX_ROWS = 60
EARLIER = "cannot beat the best so far, optimistically"
"""What `CANNOT_WIN` was in ledgers of an earlier specbench."""
_ROLES = {
    "baseline": "the baseline",
    "confirm": "the winner once more",
    "plain": "the winner's settings without speculation",
    "abreast": "the baseline in all places at once",
}


def search_table(summary: RunSummary) -> str | None:
    """What the stage comm found, and the launches that the search decided on, as tables; None
    where neither is recorded."""
    before = describe_screening(summary)
    decided = [record for record in summary.ledger.records if record.decision is not None]
    if not decided:
        return "\n\n".join(before) or None
    table = markdown_table(HEADER, [_row(summary, each) for each in decided[:MAX_ROWS]], 7)
    if (more := len(decided) - MAX_ROWS) > 0:
        table += f"\n\n{count(more, 'launch')} more; `trials.jsonl` has all."
    besides = [*_along(summary), *other_launches(summary), *not_launched(summary, decided)]
    return "\n\n".join([*before, table, *besides])


def _row(summary: RunSummary, record: TrialRecord) -> list[str]:
    decision, spec = record.decision, summary.sweep.search.objective
    assert decision is not None
    measured = read_objective(record, spec)
    expected = MISSING
    if decision.predicted is not None:
        expected = interval(
            decision.predicted, decision.predicted_low, decision.predicted_high, digits=2
        )
    return [
        str(record.launch_id),
        str(record.trial),
        code(record.at.label()) if record.at else MISSING,
        decision.stage,
        expected,
        number(measured, 3) if measured is not None else code(record.failure or record.outcome),
        escaped(decision.why),
    ]


def _along(summary: RunSummary) -> list[str]:
    along = sum(not record.proposed for record in summary.ledger.candidates)
    return [f"{count(along, 'configuration')} measured along with these launches."] if along else []


def other_launches(summary: RunSummary) -> list[str]:
    """Which launches are no candidates', so that the numbers of the table add up."""
    by_role: dict[str, list[int]] = {}
    for record in summary.ledger.records:
        if record.role in _ROLES:
            by_role.setdefault(_ROLES[record.role], []).append(record.launch_id)
    told = [f"{_listed(sorted(set(numbers)))} ({what})" for what, numbers in by_role.items()]
    if lost := launches_without_trial(summary):
        told.append(f"{_listed(lost)} (ended without a trial: tried again, or cut off)")
    if not told:
        return []
    return [
        f"Launches count servers, trials what was measured. Not of candidates: {', '.join(told)}."
    ]


def launches_without_trial(summary: RunSummary) -> list[int]:
    """Numbers of launches that no ledger line is of."""
    known = {record.launch_id for record in summary.ledger.records}
    return [number for number in range(summary.ledger.next_launch) if number not in known]


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def not_launched(summary: RunSummary, decided: list[TrialRecord]) -> list[str]:
    """What was not launched, by the reasons of the search's last decision with any. What was
    launched since is not among them: a check launches a point that none should be better than."""
    told = [record for record in decided if record.decision and record.decision.excluded]
    left = len(summary.space.points) - len(summary.ledger.candidates)
    if not told or left <= 0:
        return []
    last = told[-1]
    assert last.decision is not None
    counts = {_now(why): n for why, n in last.decision.excluded.items()}
    launched = sum(counts.values()) - left
    if launched > 0:
        counts[CANNOT_WIN] = counts.get(CANNOT_WIN, 0) - launched
    names = {CANNOT_WIN: _cannot_win(summary, last)}
    parts = [f"{n}: {escaped(names.get(why, why))}" for why, n in counts.items() if n > 0]
    if launched < 0:
        parts.append(f"{-launched}: not ruled out when the last launch was decided")
    return [f"Not launched: {left} of {len(summary.space.points)} points. {'; '.join(parts)}."]


def _now(why: str) -> str:
    return CANNOT_WIN if why == EARLIER else why


def _cannot_win(summary: RunSummary, last: TrialRecord) -> str:
    """Whom they cannot beat, as it was when `last` was decided."""
    spec = summary.sweep.search.objective
    before = [each for each in summary.ledger.candidates if each.trial < last.trial]
    known = [(value, each) for each in before if (value := read_objective(each, spec)) is not None]
    value, best = max(known, key=lambda pair: pair[0], default=(0.0, None))
    whom = NO_SPECULATION
    if best is not None and value > 1:
        whom = f"the best until then, {best.label}"
    return f"would not beat {whom}, even at the top of what is expected of them"
