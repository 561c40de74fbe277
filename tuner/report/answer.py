"""The first lines of a report: what to run, how much faster it is, and how sure that is."""

from tuner.measure.statistics import Interval
from tuner.report.findings import Findings, Measured
from tuner.report.text import change, code, count, escaped, interval, markdown_table, ratio

MANY = 5
"""From this many candidates on, the best one's first measurement is likely a lucky one."""


def answer(findings: Findings) -> list[str]:
    """Paragraphs, as Markdown."""
    if findings.sweep.engine.kind == "endpoint":
        return ["**A measurement of a running server.** There is no baseline to compare it with."]
    if findings.baseline is None:
        return [_no_baseline(findings)]
    if findings.best is None or findings.best.value is None:
        return ["**No answer.** No candidate gave numbers, so there is nothing to compare."]
    best = findings.best
    if findings.winner is findings.baseline:
        lines = [
            "**No speculation is fastest here.** Launch the server without it. The best "
            f"candidate, {code(best.label)}, is {_changes(findings, best)}."
        ]
    else:
        lines = [
            f"**Run {code(best.label)}.** It is {_changes(findings, best)} than no speculation."
        ]
    return [*lines, _certainty(findings, best)]


def answer_table(findings: Findings) -> str | None:
    """Baseline and best candidate per concurrency; None where one of them is missing."""
    base, best, metric = findings.baseline, findings.best, findings.metric
    if base is None or best is None:
        return None
    rows = [
        [
            str(level),
            throughput(base, level, metric),
            throughput(best, level, metric),
            ratio(best.speedups.get(level)),
        ]
        for level in findings.levels
    ]
    header = ["concurrency", "no speculation, tok/s", "best candidate, tok/s", "speed-up"]
    return markdown_table(header, rows)


def throughput(configuration: Measured, level: int, metric: str) -> str:
    """A figure with its interval where the ledger has one."""
    value = configuration.metric(level, metric)
    low = configuration.metric(level, f"{metric}_low")
    high = configuration.metric(level, f"{metric}_high")
    return interval(value, low, high)


def _no_baseline(findings: Findings) -> str:
    failed = [record for record in findings.failed if record.role == "baseline"]
    if not failed:
        return "**No answer yet.** The server without speculation has not been measured."
    last = failed[-1]
    return (
        "**No answer.** The server without speculation failed, and without it no speed-up can be "
        f"told: {code(last.failure or last.outcome)}: {escaped(last.message or 'no message')}"
    )


def _changes(findings: Findings, best: Measured) -> str:
    bounds = list(best.speedups.values())
    if len(bounds) == 1:
        return change(bounds[0])
    assert best.value is not None
    return f"{change(Interval(best.value, None, None))} ({findings.objective_words()})"


def _certainty(findings: Findings, best: Measured) -> str:
    seen: dict[str, list[str]] = {}
    for level, bounds in best.speedups.items():
        seen.setdefault(_seen(bounds), []).append(str(level))
    if len(seen) == 1:
        words = next(iter(seen))
        where = " at every concurrency" if len(best.speedups) > 1 else ""
        told = [words.replace("the interval", f"the interval{where}", 1)]
    else:
        told = [f"at concurrency {', '.join(levels)} {words}" for words, levels in seen.items()]
    sentence = "How sure: " + "; ".join(told) + "."
    if (tried := len(findings.ranked)) >= MANY:
        sentence += (
            f" It is the best of {count(tried, 'candidate')} and was not measured again, so its "
            "figure leans high; `specbench sweep best.yaml` tells by how much."
        )
    return sentence


def _seen(bounds: Interval) -> str:
    if bounds.low is None or bounds.high is None:
        return "no interval could be computed"
    if bounds.low > 1 or bounds.high < 1:
        return "the interval excludes 1, so the difference is more than noise"
    return "the interval includes 1, so no difference has been shown"
