"""The best configurations at each concurrency, as a table of report.md."""

from collections.abc import Callable, Iterator

from tuner.analysis.summary import NO_SPECULATION, RunSummary, TrialResult
from tuner.config.load_level import Level, named
from tuner.core.formatting import MISSING, count, interval, number, percent, ratio
from tuner.core.markdown import code, escaped, markdown_table
from tuner.metrics.catalogue import MetricEntry, entries_in

TOP = 10
ENERGY = "energy_j_per_token"


def top_tables(summary: RunSummary) -> list[tuple[str, str]]:
    """Return (heading, table) of the best configurations at each concurrency."""
    several = len(summary.levels) > 1
    return [
        (named(level).capitalize() if several else "", _top_table(summary, level))
        for level in summary.levels
    ]


def _top_table(summary: RunSummary, level: Level) -> str:
    metrics = [entry for entry in entries_in("report") if _has_column(summary, level, entry)]
    columns = [(entry.label, _metric_cell(entry, level)) for entry in metrics]
    columns += _further_columns(summary, level)

    def row(result: TrialResult, name: str) -> list[str]:
        return [name, *(cell(result) for _, cell in columns)]

    rows = []
    if summary.no_speculation is not None:
        rows.append(row(summary.no_speculation, f"**{NO_SPECULATION}**"))
    reference = summary.sweep.baseline.reference_tok_s
    if reference is not None and level == summary.levels[0]:
        cells = [number(reference) if e.name == summary.metric else MISSING for e in metrics]
        cells += [MISSING] * (len(columns) - len(metrics))
        rows.append([f"{NO_SPECULATION}, reference (not measured)", *cells])
    if summary.settings_only is not None:
        rows.append(row(summary.settings_only, f"**{escaped(summary.settings_only.label)}**"))
    rows += [row(result, code(result.label)) for result in summary.ranked[:TOP]]
    table = markdown_table(["configuration", *(heading for heading, _ in columns)], rows)
    if (more := len(summary.ranked) - TOP) > 0:
        table += f"\n\n{count(more, 'slower configuration')} not shown; `trials.jsonl` has all."
    return table


def _has_column(summary: RunSummary, level: Level, entry: MetricEntry) -> bool:
    if entry.only == "at a rate":
        return summary.sweep.workload.request_rate is not None
    return not entry.only or _is_measured(summary, level, entry.name)


def _is_measured(summary: RunSummary, level: Level, metric: str) -> bool:
    return any(result.metric(level, metric) is not None for result in _shown(summary))


def _metric_cell(entry: MetricEntry, level: Level) -> Callable[[TrialResult], str]:
    """Return a function that formats the metric of a result, with its interval if it has one."""

    def cell(result: TrialResult) -> str:
        if entry.name == "speedup":
            return ratio(result.speedups.get(level))
        value = result.metric(level, entry.name)
        if entry.unit == "share":
            return percent(value)
        low, high = (result.metric(level, f"{entry.name}_{end}") for end in ("low", "high"))
        return interval(value, low, high, entry.digits)

    return cell


def _further_columns(
    summary: RunSummary, level: Level
) -> Iterator[tuple[str, Callable[[TrialResult], str]]]:
    """Yield (heading, cell) of the columns that are not metrics."""
    if is_cut(summary, level):
        yield "windows", lambda result: str(_windows(summary, result, level) or MISSING)
    yield "trial", lambda result: str(result.record.trial)


def _shown(summary: RunSummary) -> list[TrialResult]:
    first = [
        result for result in (summary.no_speculation, summary.settings_only) if result is not None
    ]
    return [*first, *summary.ranked[:TOP]]


def has_energy(summary: RunSummary, level: Level) -> bool:
    """Return True if NVML measured the energy of a shown configuration at a level."""
    return _is_measured(summary, level, ENERGY)


def is_cut(summary: RunSummary, level: Level) -> bool:
    """Return True if a shown configuration has fewer windows than the sweep file asks for."""
    counts = [_windows(summary, result, level) for result in summary.ranked[:TOP]]
    return any(n is not None and n < summary.sweep.measure.windows for n in counts)


def _windows(summary: RunSummary, result: TrialResult, level: Level) -> int | None:
    """Return how many windows the figures of a configuration come from."""
    if (windows := result.metric(level, "windows")) is not None:
        return round(windows)
    requests = result.metric(level, "requests")  # a ledger of an older specbench
    per_window = summary.sweep.workload.requests_at(level)
    return None if requests is None else round(requests / per_window)
