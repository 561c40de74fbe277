"""What a winner's confirming launch says."""

import math
from collections.abc import Iterator

from tuner.analysis.best_per_level import RIVALS
from tuner.analysis.equivalence import by_samples
from tuner.analysis.summary import NO_SPECULATION, RunSummary, TrialResult, held_out_speedups
from tuner.analysis.winner import (
    GIVEN_UP,
    LESS_SURELY,
    broken_by,
    complexity,
    confirmed_choice,
    divergent_outputs,
    falls_short,
    held_out_objective,
    is_refuted,
    launch_objectives,
    pooled_figures,
    read_objective,
)
from tuner.config.load_level import at, listed
from tuner.config.prompts import needed_to_hold_out
from tuner.core.formatting import change, count, number, ratio
from tuner.core.markdown import code, escaped
from tuner.execution.schedule import is_due_at_the_end
from tuner.report.outputs import far_candidates, far_example
from tuner.report.winner_files import again_command


def describe_confirmation(summary: RunSummary, best: TrialResult) -> str | None:
    """How `best` was measured, and again; None where it had a launch of its own from the first."""
    again = summary.ledger.confirmation(best.record)
    it = "It" if summary.winner is not summary.settings_only else code(best.label)
    begin = f"{it} was measured on a server of its own"
    if best.record.warm_steps:
        lengths = ", ".join(map(str, best.record.warm_steps))
        begin = f"{it} was measured on a server that switches between chains of {lengths} steps"
    elif again is None:
        return None
    if again is None and summary.winner is summary.no_speculation:
        return f"{begin}; it has had no launch of its own."
    if again is None:
        return (
            f"{begin}, not on one of its own as `best.sh` starts it: confirm it with "
            f"{again_command(summary.run.best_yaml)}."
        )
    if again.outcome != "ok":
        why = f"{code(again.failure or again.outcome)}: {escaped(again.message or 'no message')}"
        return f"{begin}. **A launch of its own failed** (trial {again.trial}): {why}"
    alone = TrialResult(again, None)
    parts, doubts = [], []
    for level in summary.levels:
        where = f" {at(level)}" if len(summary.levels) > 1 else ""
        own = alone.speedups.get(level)
        both = summary.ratio(best, alone, level)
        parts.append(f"{ratio(own)} times no speculation{where}, {ratio(both)} of the first figure")
        if own is not None and own.value <= 1:
            doubts.append(f"There it is not faster than no speculation{where}.")
        if both is not None and both.includes_one is False:
            doubts.append(f"The two differ by more than noise{where}: trust the second.")
    if best.record.warm_steps:
        told = f"{begin}, and again with a launch of its own"
    else:
        told = f"{it} was launched once more, with all its windows"
    told += f" (trial {again.trial}): {'; '.join(parts)}."
    return " ".join([told, *doubts, *_unseen(summary, alone)])


def _unseen(summary: RunSummary, alone: TrialResult) -> Iterator[str]:
    """What the launch gives on prompts that nothing was chosen on."""
    held = alone.record.held_out
    found = held_out_speedups(alone.record)
    if held is None or not found:
        yield f"Both on the prompts that it was chosen on: {_why_no_others(summary, alone)}."
        return
    several = len(summary.levels) > 1
    parts = [f"{ratio(r)}{f' {at(n)}' if several else ''}" for n, r in found.items()]
    open_yet = [level for level, each in found.items() if each.includes_one]
    expect = "that includes 1, so none is shown there" if open_yet else "expect that figure"
    if 0 < len(open_yet) < len(found):
        expect = f"at {listed(open_yet)} {expect}; elsewhere expect that figure"
    yield (
        f"On {count(held.prompts, 'other prompt')}, which no candidate was measured on, it is "
        f"{'; '.join(parts)} times no speculation: {expect}."
    )


def _why_no_others(summary: RunSummary, alone: TrialResult) -> str:
    """Why there is no ratio on prompts that nothing was chosen on."""
    ledger, there = summary.ledger, summary.run.settings.prompts_there
    needed = needed_to_hold_out(_used(summary))
    last = [each for each in ledger.records if each.role == "baseline"][-1:]
    if any(each.held_out is not None for each in ledger.baselines):
        gone = "the raw samples of others are gone"
        return gone if alone.record.held_out is not None else "this launch was not sent others"
    if there is not None and there < needed:
        return f"there are {there}, and {needed} are needed to hold some out"
    for each in last:
        if each.outcome != "ok":
            return f"the baseline's last launch, on others, failed ({code(each.failure or '')})"
    if is_due_at_the_end(ledger, summary.sweep.baseline.launches):
        return "the baseline, launched once more at the end on others, was not"
    if there is None:  # of a run of an older version nothing else is left
        return f"no others were held out, for which {needed} are needed"
    return "the baseline was not measured on others"


def _used(summary: RunSummary) -> int:
    """Prompts that a window has at most; of `turns: all` the conversations in its samples."""
    workload, base = summary.sweep.workload, summary.no_speculation
    if workload.turns == "all" and base is not None:
        first = [summary.windows(base, level)[:1] for level in summary.levels]
        talks = [sum(s.prompt_id.endswith("#1") for w in each for s in w.samples) for each in first]
        if max(talks, default=0):
            return max(talks)
    return max(map(workload.requests_at, workload.levels))


def describe_choice(summary: RunSummary, best: TrialResult) -> str | None:
    """That another candidate has a higher figure; None where `best` has the highest."""
    if best.value is None:
        return None
    spec = summary.sweep.search.objective
    higher = [
        each
        for each in summary.ranked
        if each.value
        and each.value > best.value
        and not is_refuted(summary.ledger, each.record, spec)
    ]
    if not higher:
        return None
    first = max(higher, key=lambda each: each.value or 0.0)
    told = (
        f"{code(first.label)} has a higher figure ({number(first.value, 3)} against "
        f"{number(best.value, 3)} times no speculation)"
    )
    more = asks_for(first, best)
    asks = "" if more is None else f" and asks for more: {more}"
    chosen = confirmed_choice(summary.ledger)
    if chosen is None or chosen.trial != best.record.trial:
        alike = any(each is first.record for each in summary.alike)
        more_by = 100 * (first.value / best.value - 1) if first.value else 0.0
        by = "by no more than noise" if alike else f"by {more_by:.1f} %"
        return f"{told}, {by},{asks}."
    return f"{told}{asks}. {_why_chosen(summary, first, best)}"


def _why_chosen(summary: RunSummary, first: TrialResult, best: TrialResult) -> str:
    """What speaks for the search's choice against the higher figure, in figures."""
    ledger, spec = summary.ledger, summary.sweep.search.objective
    own, others = (launch_objectives(ledger, each.record, spec) for each in (best, first))
    again = ledger.confirmation(best.record)
    expected = None if again is None or again.decision is None else again.decision.predicted
    tried = count(len(summary.ranked), "configuration")
    words = f"By the measurements of {tried} together this one is the fastest"
    if expected is not None:
        its = pooled_figures(ledger).get(first.record.trial)
        of_first = "" if its is None else f", {number(its, 3)} of the other"
        words += f" ({number(expected, 3)} times no speculation were expected of it{of_first})"
    words += f"; so it was launched once more, and its two launches measured {_figures(own)}"
    return f"{words}, against {_figures(others)} of {code(first.label)}."


def _figures(values: list[float]) -> str:
    told = " and ".join(number(each, 3) for each in values)
    if len(values) < 2:
        return f"{told} in one launch"
    return f"{told} (together {number(math.prod(values) ** (1 / len(values)), 3)})"


def asks_for(more: TrialResult, less: TrialResult) -> str | None:
    """What the one configuration needs that the other does without, the heaviest thing; None where
    it needs no more."""
    if complexity(more.point) <= complexity(less.point):
        return None
    names = ("the draft on a TP size of its own", "more settings", "a tree", "more draft tokens")
    pairs = zip(names, complexity(more.point), complexity(less.point), strict=False)
    return next((name for name, one, other in pairs if one > other), "more draft steps")


def describe_disqualified(summary: RunSummary, best: TrialResult) -> str | None:
    """Faster candidates that their own launches did not bear out, or whose outputs are others;
    None where there are none."""
    spec = summary.sweep.search.objective
    told = far_candidates(summary)
    for each in summary.ranked:
        if each is best or not is_refuted(summary.ledger, each.record, spec):
            continue
        if divergent_outputs(summary.ledger, each.record) is not None:
            continue
        if broken_by(summary.ledger, each.record):
            continue  # the line of the limits has it
        again = summary.ledger.confirmation(each.record)
        assert again is not None
        why = "was not faster than no speculation"
        unseen = held_out_objective(again, spec)
        if unseen is not None and unseen <= 1 < (read_objective(again, spec) or 0):
            why += " on prompts that it was not chosen on"
        if again.outcome != "ok":
            why = f"failed: {code(again.failure or again.outcome)}"
        told.append(f"{code(each.label)}, whose own launch (trial {again.trial}) {why}")
    if not told:
        return None
    shown = far_example(summary)
    return f"Not taken: {'; '.join(told)}." + (f" {shown}" if shown else "")


SHOWN = 5
"""Configurations that are named as not told apart from the answer."""


def describe_ties(summary: RunSummary) -> str | None:
    """What may as well be as fast as what is to be run, by the objective."""
    names = [
        NO_SPECULATION if each.role == "baseline" else code(each.label) for each in summary.alike
    ]
    if not names:
        return None
    if (more := len(names) - SHOWN) > 0:
        names = [*names[:SHOWN], f"{'at least ' if len(names) >= RIVALS else ''}{more} more"]
    it = NO_SPECULATION if summary.winner is summary.no_speculation else "it"
    told = f"Not told apart from {it} by these measurements: {', '.join(names)}."
    return " ".join([told, *_why_not_simpler(summary)])


def _why_not_simpler(summary: RunSummary) -> Iterator[str]:
    """Of what is alike and asks for less, why it is not what to run: of equals that would be."""
    best, alike, spec = summary.winner, summary.alike, summary.sweep.search.objective
    if best is None or best is not summary.best_candidate:
        return
    ratio, pooled = by_samples(summary.settled, spec), pooled_figures(summary.ledger)
    for each in alike:
        if each.role == "baseline" or complexity(each.at) >= complexity(best.point):
            continue
        value = read_objective(each, spec)
        ratios = {level: ratio(best.record, each, level) for level in summary.levels}
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
        elif falls_short(pooled, each, best.record):
            lacks = 100 * (1 - pooled[each.trial] / pooled[best.record.trial])
            yield (
                f"{code(each.label)} would ask for less, but by the measurements of "
                f"{count(len(pooled), 'configuration')} together it is {lacks:.1f} % slower, "
                f"and more than {100 * LESS_SURELY:g} % by these is not given up for that."
            )
