"""Which configurations keep the user's latency limits, and up to which rate speculation pays."""

from tuner.choice import broken_by
from tuner.crossing import crossing_words, overload_words
from tuner.ledger.limits import broken_words, limits_words
from tuner.report.findings import NO_SPECULATION, Findings, Measured
from tuner.report.text import code, count, escaped

SHOWN = 5
"""Candidates whose broken limits are told."""


def rates_line(findings: Findings) -> str | None:
    """Up to which request rate speculation pays, and who did not keep up; None without rates."""
    found = findings.result.by_rate
    told = [words for words in (crossing_words(found), overload_words(found)) if words]
    return f"{'. '.join(told)}." if told else None


def limits_line(findings: Findings, best: Measured) -> str | None:
    """What the limits are, who breaks them and by how much; None without limits."""
    limits = findings.sweep.search.limits
    if not limits and not findings.result.limits.broken:
        return None
    told = [f"Limits: {escaped(limits_words(limits) or 'to keep up with the rate')}."]
    base = findings.baseline
    if base is not None and base.record.broken:
        told.append(f"No speculation breaks them: {escaped(broken_words(base.record.broken))}.")
    broken = broken_by(findings.ledger, best.record)
    if not broken:
        told.append(f"{code(best.label)} keeps them.")
    elif findings.winner is base:
        told.append(f"No candidate that keeps them is faster than {NO_SPECULATION}.")
    out = [
        (each, found)
        for each in findings.ranked
        if (found := broken_by(findings.ledger, each.record))
    ]
    if out:
        words = [
            f"{code(each.label)} ({escaped(broken_words(found))})" for each, found in out[:SHOWN]
        ]
        more = len(out) - SHOWN
        words += [f"{count(more, 'candidate')} more"] if more > 0 else []
        told.append(f"Not taken for breaking them: {'; '.join(words)}.")
    return " ".join(told)
