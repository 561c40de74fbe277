"""How a run was searched: each launch with its reason, what was expected and what came."""

from tuner.choice import objective_of
from tuner.ledger.record import TrialRecord
from tuner.report.communication import communication_words
from tuner.report.findings import Findings
from tuner.report.text import MISSING, code, count, escaped, interval, markdown_table, number
from tuner.search.staged import CANNOT_WIN

HEADER = ["launch", "configuration", "stage", "expected, times the baseline", "measured", "why"]
MAX_ROWS = 60


def search_table(findings: Findings) -> str | None:
    """What the stage comm found, and the launches that the search decided on, as tables; None
    where neither is recorded."""
    before = communication_words(findings)
    decided = [record for record in findings.records if record.decision is not None]
    if not decided:
        return "\n\n".join(before) or None
    table = markdown_table(HEADER, [_row(findings, each) for each in decided[:MAX_ROWS]], 6)
    if (more := len(decided) - MAX_ROWS) > 0:
        table += f"\n\n{count(more, 'launch')} more; `trials.jsonl` has all."
    return "\n\n".join([*before, table, *_along(findings), *not_launched(findings, decided)])


def _row(findings: Findings, record: TrialRecord) -> list[str]:
    decision, spec = record.decision, findings.sweep.search.objective
    assert decision is not None
    measured = objective_of(record, spec)
    expected = MISSING
    if decision.predicted is not None:
        expected = interval(
            decision.predicted, decision.predicted_low, decision.predicted_high, digits=2
        )
    return [
        str(record.launch_id),
        code(record.at.label()) if record.at else MISSING,
        decision.stage,
        expected,
        number(measured, 3) if measured is not None else code(record.failure or record.outcome),
        escaped(decision.why),
    ]


def _along(findings: Findings) -> list[str]:
    along = sum(not record.proposed for record in findings.ledger.candidates)
    return [f"{count(along, 'configuration')} measured along with these launches."] if along else []


def not_launched(findings: Findings, decided: list[TrialRecord]) -> list[str]:
    """What was not launched, by the reasons of the search's last decision with any. What was
    launched since is not among them: a check launches a point that none should be better than."""
    told = [record.decision for record in decided if record.decision and record.decision.excluded]
    left = len(findings.space.points) - len(findings.ledger.candidates)
    if not told or left <= 0:
        return []
    counts = dict(told[-1].excluded)
    launched = sum(counts.values()) - left
    if launched > 0:
        counts[CANNOT_WIN] = counts.get(CANNOT_WIN, 0) - launched
    parts = [f"{n}: {escaped(why)}" for why, n in counts.items() if n > 0]
    if launched < 0:
        parts.append(f"{-launched}: not ruled out when the last launch was decided")
    return [f"Not launched: {left} of {len(findings.space.points)} points. {'; '.join(parts)}."]
