"""Which configurations keep the user's latency limits, and up to which rate speculation pays."""

from collections.abc import Sequence

from tuner.analysis.request_rates import describe_break_even_rate, describe_overload
from tuner.analysis.summary import NO_SPECULATION, RunSummary, TrialResult
from tuner.analysis.winner import broken_by
from tuner.core.formatting import count
from tuner.core.markdown import code, escaped
from tuner.runs.latency_limits import describe_broken_limits, format_limits, format_required_limits
from tuner.runs.records import BrokenLimit, TrialRecord

SHOWN = 5
"""Candidates whose broken limits are told."""


def rates_line(summary: RunSummary) -> str | None:
    """Up to which request rate speculation pays, and who did not keep up; None without rates."""
    found = summary.by_rate
    told = [words for words in (describe_break_even_rate(found), describe_overload(found)) if words]
    return f"{'. '.join(told)}." if told else None


def limits_line(summary: RunSummary, best: TrialResult) -> str | None:
    """What the limits are, who breaks them and by how much; None without limits."""
    limits = summary.sweep.search.limits
    if not limits and not summary.limits.broken:
        return None
    every = [each for _, found in summary.limits.broken for each in found]
    told = [f"Limits: {escaped(format_required_limits(limits, every))}."]
    base, broken = summary.no_speculation, broken_by(summary.ledger, best.record)
    if not broken and summary.winner is not base:
        told.append(f"{code(best.label)} keeps them.")
    if base is not None:
        recommended = ", which is to be launched," if summary.winner is base else ""
        name = f"The server without speculation{recommended}"
        told.append(_kept(name, base.record, base.record.broken))
    if not broken:
        told += [f"{code(best.label)} keeps them."] if summary.winner is base else []
    elif summary.winner is base and summary.limits.decided:
        told.append(f"No candidate that keeps them is faster than {NO_SPECULATION}.")
    elif summary.winner is base:
        told.append(f"They decide nothing: no candidate is faster than {NO_SPECULATION}.")
    out = [
        (each, found)
        for each in summary.ranked
        if (found := broken_by(summary.ledger, each.record))
    ]
    if out:
        words = [
            f"{code(each.label)} ({escaped(describe_broken_limits(found, each.record.metrics))})"
            for each, found in out[:SHOWN]
        ]
        more = len(out) - SHOWN
        words += [f"{count(more, 'candidate')} more"] if more > 0 else []
        decided = summary.winner is not base or summary.limits.decided
        lead = "Not taken for breaking them" if decided else "Broken by"
        told.append(f"{lead}: {'; '.join(words)}.")
    return " ".join(told)


def server_limits_line(summary: RunSummary) -> str | None:
    """Whether a server that somebody else started keeps the limits; None without limits."""
    limits, shown = summary.sweep.search.limits, summary.no_speculation or summary.best_candidate
    if not limits or shown is None:
        return None
    told = _kept("The server", shown.record, shown.record.broken)
    return f"Limits: {escaped(format_limits(limits))}. {told}"


def _kept(name: str, record: TrialRecord, broken: Sequence[BrokenLimit]) -> str:
    if not broken:
        return f"{name} keeps them."
    return f"{name} breaks them: {escaped(describe_broken_limits(broken, record.metrics))}."
