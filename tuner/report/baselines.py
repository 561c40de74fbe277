"""What the further launches of the baseline say: drift, and how far launches differ."""

import math

from tuner.analysis.summary import RunSummary
from tuner.config.load_level import at, named
from tuner.core.formatting import change, count, number, ratio
from tuner.core.markdown import code, escaped, markdown_table
from tuner.metrics.drift import Baselines
from tuner.metrics.statistics import pooled
from tuner.runs.records import TrialRecord
from tuner.runs.slot_interference import beside_at, no_difference, places_beside, slowed


def describe_drift(summary: RunSummary) -> str | None:
    """That the machine drifted and what was done about it; None where it did not."""
    drifting = {n: known for n, known in summary.settled.baselines.items() if known.drifts}
    if not drifting:
        return None
    several = len(summary.levels) > 1
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


def describe_baselines(summary: RunSummary) -> str | None:
    """Every launch of the baseline with its figure; None where there was one."""
    known = summary.settled.baselines
    if not known:
        return None
    several = len(summary.levels) > 1
    parts = [_level(each, f" {at(n)}" if several else "") for n, each in known.items()]
    launches = max(len(each.launches) for each in known.values())
    return (
        f"The baseline had {count(launches, 'launch')} ({summary.metric}): {'; '.join(parts)}. "
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


def describe_slot_interference(summary: RunSummary) -> str | None:
    """What servers side by side did to each other, with a table where they did something; None
    where none were."""
    places = places_beside(summary.ledger)
    if not places:
        return None
    slots = [each.place.slots for each in places.values() if each.place and each.place.slots]
    many = count(max(slots, default=len(places)), "place")
    words = (
        f"Candidates were measured in {many} at the same time, baselines and the winner's own "
        "launches alone."
    )
    if (nothing := no_difference(places)) is not None:
        return f"{words} {nothing[0].upper()}{nothing[1:]}."
    rows = [
        [escaped(name), *(_beside(record, str(level)) for level in summary.levels)]
        for name, record in places.items()
    ]
    header = ["no speculation, others beside it, over alone", *map(named, summary.levels)]
    return (
        f"{words} Where the ratio is surely not 1, speed-ups of candidates that had servers beside "
        "them are held against the baseline as it is there (specbench's documentation: slots).\n\n"
        f"{markdown_table(header, rows, 1)}"
    )


def _beside(record: TrialRecord, level: str) -> str:
    if record.outcome != "ok":
        return f"not measured ({code(record.failure or record.outcome)})"
    found = beside_at(record).get(level)
    return ratio(found) + (", a doubt" if slowed(found) else "")


def describe_intervals(summary: RunSummary) -> str:
    """What 95 % intervals are made of."""
    words = "95 % intervals, from the spread between windows and between prompts"
    if summary.settled.baselines:
        return (
            f"{words}; those of speed-ups also from how far the baseline's launches differ, which "
            "may be less than a candidate's do (specbench's documentation: statistics)."
        )
    return f"{words}. They do not cover the spread between launches."
