"""What may as well be as fast as the answer, and why the simplest of that is not what to run."""

from collections.abc import Iterator

from tuner.answer.alike import by_samples
from tuner.answer.choice import GIVEN_UP, LESS_SURELY, complexity, falls_short
from tuner.answer.fastest import RIVALS
from tuner.answer.objectives import objective_of
from tuner.report.findings import NO_SPECULATION, Findings
from tuner.report.text import change, code, count
from tuner.sweep.level import at

SHOWN = 5
"""Configurations that are named as not told apart from the answer."""


def alike_words(findings: Findings) -> str | None:
    """What may as well be as fast as what is to be run, by the objective."""
    names = [
        NO_SPECULATION if each.role == "baseline" else code(each.label)
        for each in findings.result.alike
    ]
    if not names:
        return None
    if (more := len(names) - SHOWN) > 0:
        names = [*names[:SHOWN], f"{'at least ' if len(names) >= RIVALS else ''}{more} more"]
    it = NO_SPECULATION if findings.winner is findings.baseline else "it"
    told = f"Not told apart from {it} by these measurements: {', '.join(names)}."
    return " ".join([told, *_why_not_simpler(findings)])


def _why_not_simpler(findings: Findings) -> Iterator[str]:
    """Of what is alike and asks for less, why it is not what to run: of equals that would be."""
    best, alike, spec = findings.winner, findings.result.alike, findings.sweep.search.objective
    if best is None or best is not findings.best:
        return
    ratio = by_samples(findings.settled, spec)
    for each in alike:
        if each.role == "baseline" or complexity(each.at) >= complexity(best.point):
            continue
        value = objective_of(each, spec)
        ratios = {level: ratio(best.record, each, level) for level in findings.levels}
        slower = [
            f"{change(found)} {at(level)}"
            for level, found in ratios.items()
            if found is not None and found.high is not None and found.high < 1
        ]
        if slower:
            yield f"{code(each.label)} would ask for less, but is {', '.join(slower)}."
        elif best.value and value and value < best.value * (1 - GIVEN_UP):
            lacks = 100 * (1 - value / best.value)
            yield (
                f"{code(each.label)} would ask for less, but its figure is {lacks:.1f} % lower, "
                f"and more than {100 * GIVEN_UP:g} % is not given up for that."
            )
        elif falls_short(findings.ledger, each, best.record):
            smoothed = findings.ledger.smoothed
            lacks = 100 * (1 - smoothed[each.trial] / smoothed[best.record.trial])
            yield (
                f"{code(each.label)} would ask for less, but by the measurements of "
                f"{count(len(smoothed), 'configuration')} together it is {lacks:.1f} % slower, "
                f"and more than {100 * LESS_SURELY:g} % by these is not given up for that."
            )
