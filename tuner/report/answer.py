"""The first lines of a report: what to run, how much faster it is, and how sure that is."""

from collections.abc import Sequence

from tuner.analysis.baselines import disagreement
from tuner.analysis.request_rates import describe_break_even_rate, describe_overload
from tuner.analysis.summary import NO_SPECULATION, RunSummary, TrialResult
from tuner.analysis.winner import broken_by, divergent_outputs, is_refuted
from tuner.config.load_level import Level, at, axis, listed
from tuner.core.formatting import change, count, interval, number, ratio
from tuner.core.markdown import code, escaped, markdown_table
from tuner.metrics.catalogue import metric_heading
from tuner.metrics.statistics import Interval
from tuner.report.baselines import describe_drift
from tuner.report.cycle import why_it_loses
from tuner.report.outputs import same_output
from tuner.report.winner_evidence import (
    describe_choice,
    describe_confirmation,
    describe_disqualified,
    describe_ties,
)
from tuner.report.winner_files import again_command
from tuner.runs.latency_limits import describe_broken_limits, format_limits, format_required_limits
from tuner.runs.records import BrokenLimit, TrialRecord
from tuner.runs.status import read_ended

NOT_SHOWN = "the interval includes 1, so no difference has been shown"
NAMED = 5
"""Candidates that are named as breaking a limit."""
MANY = 5
"""From this many candidates on, the best one's first measurement is likely a lucky one."""


def answer(summary: RunSummary) -> list[str]:
    """Paragraphs, as Markdown."""
    if not summary.sweep.engine.launches_servers:
        which = "simulated" if summary.simulated else "running"
        first = f"**A measurement of a {which} server.** There is no baseline to compare it with."
        return _told([first, server_limits_line(summary)])
    if summary.no_speculation is None and summary.exit_code:
        return _told([_no_baseline(summary), describe_end(summary)])
    if summary.best_candidate is None or summary.best_candidate.value is None:
        words = "**No answer.** No candidate gave numbers, so there is nothing to compare."
        if not summary.exit_code:
            words = f"**No candidate was measured here.** {summary.verdict.capitalize()}."
        return _told([words, _faster_elsewhere(summary), describe_end(summary)])
    best = summary.best_candidate
    ledger = summary.ledger
    plain = summary.settings_only if summary.winner is summary.settings_only else None
    # What is slower anyway is not refused for anything else.
    gained = (best.value or 0.0) > 1
    refuted = gained and is_refuted(ledger, best.record, summary.sweep.search.objective)
    if (
        summary.winner is summary.no_speculation
        and gained
        and divergent_outputs(ledger, best.record)
    ):
        lines = [
            "**No candidate stands.** Launch the server without speculation. No candidate that "
            "answers as the baseline does beats it."
        ]
    elif (
        summary.winner is summary.no_speculation
        and summary.limits.decided
        and broken_by(ledger, best.record)
    ):
        lines = [
            "**No candidate stands.** Launch the server without speculation. No candidate that "
            "keeps the limits beats it."
        ]
    elif summary.winner is summary.no_speculation and refuted:
        shared = " on a server that switches chain lengths" if best.record.warm_steps else ""
        lines = [
            "**No candidate stands.** Launch the server without speculation. "
            f"{code(best.label)} was {_changes(summary, best)}{shared}, which its own launch does "
            "not bear out."
        ]
    elif summary.winner is summary.no_speculation:
        shown = _is_shown(summary, best, faster=False)
        shown = shown and disagreement(summary.settled.baselines) is None
        first = "No speculation is fastest here" if shown else "No candidate is shown to be faster"
        lines = [
            f"**{first}.** Launch the server without speculation. The best "
            f"candidate, {code(best.label)}, is {_changes(summary, best)}."
        ]
    elif plain is not None:
        lines = [
            f"**Run {code(plain.label)}.** It is {_changes(summary, plain)} than the baseline: "
            f"the settings of the best candidate, {code(best.label)}, are as fast without "
            f"speculation; with it they are {_changes(summary, best)}."
        ]
    elif not _is_shown(summary, best, faster=True):
        lines = [
            f"**No candidate is shown to be faster yet.** The best: {code(best.label)}, "
            f"{_changes(summary, best)} than no speculation."
        ]
    else:
        lines = [
            f"**Run {code(best.label)}.** It is {_changes(summary, best)} than no speculation."
        ]
    told = (
        _faster_elsewhere(summary),
        _disagreement(summary),
        describe_end(summary),
        why_it_loses(summary),
        _certainty(summary, best, refuted=refuted),
        describe_drift(summary),
        describe_confirmation(summary, best),
        describe_choice(summary, best),
        rates_line(summary),
        limits_line(summary, best),
        same_output(summary),
        describe_disqualified(summary, best),
        describe_ties(summary),
        _mixed_gain(summary, best),
    )
    return _told([*lines, *told])


def _told(lines: list[str | None]) -> list[str]:
    return [line for line in lines if line]


def _faster_elsewhere(summary: RunSummary) -> str | None:
    """Of a worker's run: what is above is not the answer of all."""
    worker, own = summary.worker, summary.best_candidate
    value = None if own is None else own.value
    faster = None if worker is None else worker.faster(value)
    return f"**Not the fastest of all workers**: {faster}." if faster else None


def _disagreement(summary: RunSummary) -> str | None:
    words = disagreement(summary.settled.baselines)
    return None if words is None else f"**Doubtful**: {words}."


def answer_table(summary: RunSummary) -> str | None:
    """Baseline and best candidate per concurrency; None where one of them is missing."""
    base, best, metric = summary.no_speculation, summary.best_candidate, summary.metric
    if base is None or best is None:
        return None
    rows = [
        [
            str(level),
            throughput(base, level, metric),
            throughput(best, level, metric),
            ratio(best.speedups.get(level)),
        ]
        for level in summary.levels
    ]
    speed = metric_heading(metric)
    header = [
        axis(summary.levels),
        f"no speculation, {speed}",
        f"best candidate, {speed}",
        "speed-up",
    ]
    return markdown_table(header, rows)


def throughput(configuration: TrialResult, level: Level, metric: str) -> str:
    """A figure with its interval where the ledger has one."""
    value = configuration.metric(level, metric)
    low = configuration.metric(level, f"{metric}_low")
    high = configuration.metric(level, f"{metric}_high")
    return interval(value, low, high)


def _no_baseline(summary: RunSummary) -> str:
    failed = [record for record in summary.failed if record.role == "baseline"]
    if not failed:
        return "**No answer yet.** The server without speculation has not been measured."
    last = failed[-1]
    return (
        "**No answer.** The server without speculation failed, and without it no speed-up can be "
        f"told: {code(last.failure or last.outcome)}: {escaped(last.message or 'no message')}"
    )


def _changes(summary: RunSummary, best: TrialResult) -> str:
    bounds = list(best.speedups.values())
    if len(bounds) == 1:
        return change(bounds[0])
    assert best.value is not None
    levels = [f"{change(each)} {at(level)}" for level, each in best.speedups.items()]
    overall = change(Interval(best.value, None, None))
    return f"{overall} ({summary.describe_objective()}): {', '.join(levels)}"


def _certainty(summary: RunSummary, best: TrialResult, *, refuted: bool) -> str:
    """Of what is to be run, or of the best candidate where that is the baseline. Of a refuted one
    its first interval says nothing."""
    plain = summary.settings_only if summary.winner is summary.settings_only else None
    sentence = "" if refuted else f"How sure: {_sure(plain or best)}. "
    tried, points = len(summary.ranked), len(summary.space.points)
    sentence += f"Measured: {tried} of {count(points, 'point')} of the space."
    if refuted or plain is not None:
        return sentence
    if tried >= MANY and summary.ledger.confirmation(best.record) is None:
        sentence += (
            " The best of many was not measured again, so its figure leans high; "
            f"{again_command(summary.run.best_yaml)} tells by how much."
        )
    return sentence


def _sure(shown: TrialResult) -> str:
    seen: dict[str, list[Level]] = {}
    for level, bounds in shown.speedups.items():
        seen.setdefault(_seen(bounds), []).append(level)
    if len(seen) == 1:
        words = next(iter(seen))
        where = f" at every {axis(list(shown.speedups))}" if len(shown.speedups) > 1 else ""
        return words.replace("the interval", f"the interval{where}", 1)
    return "; ".join(f"at {listed(levels)} {words}" for words, levels in seen.items())


def _mixed_gain(summary: RunSummary, best: TrialResult) -> str | None:
    """That the speed-up may not be speculation's alone."""
    point = best.point
    if summary.winner is summary.no_speculation or point is None or not (point.env or point.flags):
        return None
    if summary.settings_only is not None:
        return _split(summary, summary.settings_only, best)
    names = [f"{name}={value}" for name, value in point.env] + [f"--{n}" for n, _ in point.flags]
    return (
        f"The baseline ran without {', '.join(map(code, names))}. What that gives a server without "
        "speculation was not measured; it is part of the speed-up."
    )


def _split(summary: RunSummary, plain: TrialResult, best: TrialResult) -> str:
    """What of the speed-up is the settings' and what speculation's."""
    parts = []
    for level, whole in best.speedups.items():
        where = f" {at(level)}" if len(best.speedups) > 1 else ""
        alone, rest = plain.speedups.get(level), summary.ratio(plain, best, level)
        parts.append(
            f"of {number(whole.value, 3)} times{where}, {ratio(alone)} comes from the settings "
            f"alone and {ratio(rest)} from speculation on top"
        )
    return (
        f"Split by a launch of {code(plain.label)} (trial {plain.record.trial}): "
        f"{'; '.join(parts)}."
        + (" What that launch says is not the baseline's." if plain.record.is_disqualified else "")
    )


def _is_shown(summary: RunSummary, best: TrialResult, *, faster: bool) -> bool:
    """Whether one of the levels that decide shows that `best` is faster than no speculation, or
    slower: a gain at 6 requests/s shows no loss, and one at a level that was not asked about shows
    nothing, nor does a figure without an interval."""
    only = summary.sweep.search.objective.level
    bounds = [each for level, each in best.speedups.items() if only in (None, level)]
    return any(each.includes_one is False and (each.value > 1) is faster for each in bounds)


def _seen(bounds: Interval) -> str:
    if bounds.low is None or bounds.high is None:
        return "no interval could be computed"
    if bounds.low > 1:
        return "the interval lies above 1, so it is faster by more than noise"
    if bounds.high < 1:
        return "the interval lies below 1, so it is slower by more than noise"
    return NOT_SHOWN


def rates_line(summary: RunSummary) -> str | None:
    """Return up to which request rate speculation pays. Returns None without rates."""
    found = summary.by_rate
    told = [words for words in (describe_break_even_rate(found), describe_overload(found)) if words]
    return f"{'. '.join(told)}." if told else None


def limits_line(summary: RunSummary, best: TrialResult) -> str | None:
    """Return the limits and the candidates that break them. Returns None without limits."""
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
            for each, found in out[:NAMED]
        ]
        more = len(out) - NAMED
        words += [f"{count(more, 'candidate')} more"] if more > 0 else []
        decided = summary.winner is not base or summary.limits.decided
        lead = "Not taken for breaking them" if decided else "Broken by"
        told.append(f"{lead}: {'; '.join(words)}.")
    return " ".join(told)


def server_limits_line(summary: RunSummary) -> str | None:
    """Return how an endpoint keeps the limits. Returns None without limits."""
    limits, shown = summary.sweep.search.limits, summary.no_speculation or summary.best_candidate
    if not limits or shown is None:
        return None
    told = _kept("The server", shown.record, shown.record.broken)
    return f"Limits: {escaped(format_limits(limits))}. {told}"


def _kept(name: str, record: TrialRecord, broken: Sequence[BrokenLimit]) -> str:
    if not broken:
        return f"{name} keeps them."
    return f"{name} breaks them: {escaped(describe_broken_limits(broken, record.metrics))}."


def describe_end(summary: RunSummary) -> str | None:
    """None of a run that finished, of one that another specbench is at work on, and where nothing
    is known."""
    run = summary.run
    ended = read_ended(run)
    if ended is None or ended.finished or (ended.why is None and run.is_being_written):
        return None
    done, points = len(summary.ledger.candidates), len(summary.space.points)
    every = summary.sweep.search.sampler == "grid"
    wanted = points if every else min(points, run.settings.wanted)
    why = "it ended without a word" if ended.why is None else ended.why
    missing = "; closing launches missing" if ended.closing else ""
    where = f" at {done} of {wanted} candidates" if summary.sweep.engine.launches_servers else ""
    return (
        f"**Ended early{where}** ({escaped(why)}){missing}; go on with {code(run.resume_command)}."
    )
