"""What the further launches of the baseline say: drift, and how far launches differ."""

import math

from tuner.ledger.side_by_side import side_words
from tuner.measure.drift import Baselines
from tuner.measure.statistics import pooled
from tuner.report.findings import Findings
from tuner.report.text import change, count, escaped, number
from tuner.sweep.level import at


def drift_words(findings: Findings) -> str | None:
    """That the machine drifted and what was done about it; None where it did not."""
    drifting = {n: known for n, known in findings.settled.baselines.items() if known.drifts}
    if not drifting:
        return None
    several = len(findings.levels) > 1
    told = [
        f"{change(known.drift)}{f' {at(level)}' if several else ''}"
        for level, known in drifting.items()
        if known.drift is not None
    ]
    return (
        f"**The baseline drifted**: its last launch was {', '.join(told)} than its first, by more "
        "than noise. There each candidate is held against the baseline as it was at its time, "
        "interpolated between its launches. So few launches cannot tell drift from launches that "
        "differ, so the difference widens the intervals as well."
    )


def baselines_words(findings: Findings) -> str | None:
    """Every launch of the baseline with its figure; None where there was one."""
    known = findings.settled.baselines
    if not known:
        return None
    several = len(findings.levels) > 1
    parts = [_level(each, f" {at(n)}" if several else "") for n, each in known.items()]
    launches = max(len(each.launches) for each in known.values())
    return (
        f"The baseline had {count(launches, 'launch')} ({findings.metric}): {'; '.join(parts)}. "
        "Speed-ups are held against all of them, so they are not the quotients by the first one's "
        "figure, which the tables show."
    )


def _level(known: Baselines, where: str) -> str:
    figures = ", ".join(number(pooled(e.windows, known.metric)) for e in known.launches)
    assert known.between is not None and known.drift is not None
    more = math.sqrt(known.between.variance)
    words = f"{figures}{where}, the last {change(known.drift)} than the first"
    if more < 5e-5:
        return f"{words}; launches differ by no more than their windows explain"
    return f"{words}; launches differ by {more:.2%} beyond what their windows explain"


def beside_words(findings: Findings) -> str | None:
    """What servers side by side did to each other; None where none were."""
    told = list(side_words(findings.ledger))
    if not told:
        return None
    return (
        f"Candidates were measured in {len(told)} places at the same time, baselines and the "
        f"winner's own launches alone. {'. '.join(escaped(each) for each in told)}. Where that is "
        "surely not 1, speed-ups of candidates that had servers beside them are held against the "
        "baseline as it is there (docs/slots.md)."
    )


def interval_words(findings: Findings) -> str:
    """What 95 % intervals are made of."""
    words = "95 % intervals, from the spread between windows and between prompts"
    if findings.settled.baselines:
        return (
            f"{words}; those of speed-ups also from how far the baseline's launches differ, which "
            "may be less than a candidate's do (docs/statistics.md)."
        )
    return f"{words}. They do not cover the spread between launches."
