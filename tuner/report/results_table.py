"""The best configurations at each concurrency, as a table of report.md."""

from collections.abc import Callable, Iterator

from tuner.analysis.run_results import NO_SPECULATION, Result, RunView
from tuner.config.load_level import Level, named
from tuner.core.formatting import MISSING, count, interval, number, percent, ratio
from tuner.core.markdown import code, escaped, markdown_table
from tuner.metrics.catalogue import MetricEntry, entries_in

TOP = 10
ENERGY = "energy_j_per_token"


def top_tables(findings: RunView) -> list[tuple[str, str]]:
    """Return (heading, table) of the best configurations at each concurrency."""
    several = len(findings.levels) > 1
    return [
        (named(level).capitalize() if several else "", _top_table(findings, level))
        for level in findings.levels
    ]


def _top_table(findings: RunView, level: Level) -> str:
    metrics = [entry for entry in entries_in("report") if _has_column(findings, level, entry)]
    columns = [(entry.label, _metric_cell(entry, level)) for entry in metrics]
    columns += _further_columns(findings, level)

    def row(result: Result, name: str) -> list[str]:
        return [name, *(cell(result) for _, cell in columns)]

    rows = []
    if findings.baseline is not None:
        rows.append(row(findings.baseline, f"**{NO_SPECULATION}**"))
    reference = findings.sweep.baseline.reference_tok_s
    if reference is not None and level == findings.levels[0]:
        cells = [number(reference) if e.name == findings.metric else MISSING for e in metrics]
        cells += [MISSING] * (len(columns) - len(metrics))
        rows.append([f"{NO_SPECULATION}, reference (not measured)", *cells])
    if findings.plain is not None:
        rows.append(row(findings.plain, f"**{escaped(findings.plain.label)}**"))
    rows += [row(result, code(result.label)) for result in findings.ranked[:TOP]]
    table = markdown_table(["configuration", *(heading for heading, _ in columns)], rows)
    if (more := len(findings.ranked) - TOP) > 0:
        table += f"\n\n{count(more, 'slower configuration')} not shown; `trials.jsonl` has all."
    return table


def _has_column(findings: RunView, level: Level, entry: MetricEntry) -> bool:
    if entry.only == "at a rate":
        return findings.sweep.workload.request_rate is not None
    return not entry.only or _is_measured(findings, level, entry.name)


def _is_measured(findings: RunView, level: Level, metric: str) -> bool:
    return any(result.metric(level, metric) is not None for result in _shown(findings))


def _metric_cell(entry: MetricEntry, level: Level) -> Callable[[Result], str]:
    """Return a function that formats the metric of a result, with its interval if it has one."""

    def cell(result: Result) -> str:
        if entry.name == "speedup":
            return ratio(result.speedups.get(level))
        value = result.metric(level, entry.name)
        if entry.unit == "share":
            return percent(value)
        low, high = (result.metric(level, f"{entry.name}_{end}") for end in ("low", "high"))
        return interval(value, low, high, entry.digits)

    return cell


def _further_columns(
    findings: RunView, level: Level
) -> Iterator[tuple[str, Callable[[Result], str]]]:
    """Yield (heading, cell) of the columns that are not metrics."""
    if is_cut(findings, level):
        yield "windows", lambda result: str(_windows(findings, result, level) or MISSING)
    yield "trial", lambda result: str(result.record.trial)


def _shown(findings: RunView) -> list[Result]:
    first = [result for result in (findings.baseline, findings.plain) if result is not None]
    return [*first, *findings.ranked[:TOP]]


def has_energy(findings: RunView, level: Level) -> bool:
    """Return True if NVML measured the energy of a shown configuration at a level."""
    return _is_measured(findings, level, ENERGY)


def is_cut(findings: RunView, level: Level) -> bool:
    """Return True if a shown configuration has fewer windows than the sweep file asks for."""
    counts = [_windows(findings, result, level) for result in findings.ranked[:TOP]]
    return any(n is not None and n < findings.sweep.measure.windows for n in counts)


def _windows(findings: RunView, result: Result, level: Level) -> int | None:
    """Return how many windows the figures of a configuration come from."""
    if (windows := result.metric(level, "windows")) is not None:
        return round(windows)
    requests = result.metric(level, "requests")  # a ledger of an older specbench
    per_window = findings.sweep.workload.requests_at(level)
    return None if requests is None else round(requests / per_window)
