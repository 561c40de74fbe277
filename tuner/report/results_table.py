"""The best configurations at each concurrency, as a table of report.md."""

from collections.abc import Iterator

from tuner.analysis.run_results import NO_SPECULATION, Result, RunView
from tuner.config.load_level import Level, named
from tuner.core.formatting import MISSING, count, number, percent, ratio
from tuner.core.markdown import code, escaped, markdown_table
from tuner.report.answer import throughput

TOP = 10
ENERGY = "energy_j_per_token"
GOODPUT = "goodput_request_s"

HEADER = [
    "configuration",
    "output tok/s",
    "decode tok/s",
    "speed-up",
    "accept length",
    "first accepted",
    "TTFT p50, ms",
    "TPOT p50, ms",
    "cycle, ms",
    "trial",
]


def top_tables(findings: RunView) -> list[tuple[str, str]]:
    """(heading, table) of the best configurations for each concurrency, the baseline first."""
    several = len(findings.levels) > 1
    return [
        (named(level).capitalize() if several else "", _top_table(findings, level))
        for level in findings.levels
    ]


def _top_table(findings: RunView, level: Level) -> str:
    rows = []
    if findings.baseline is not None:
        rows.append(_row(findings.baseline, level, f"**{NO_SPECULATION}**"))
    reference = findings.sweep.baseline.reference_tok_s
    if reference is not None and level == findings.levels[0]:
        cells = [f"{NO_SPECULATION}, reference (not measured)", *[MISSING] * (len(HEADER) - 1)]
        cells[1 if findings.metric == "output_tok_s" else 2] = number(reference)
        rows.append(cells)
    if findings.plain is not None:
        rows.append(_row(findings.plain, level, f"**{escaped(findings.plain.label)}**"))
    rows += [_row(each, level, code(each.label)) for each in findings.ranked[:TOP]]
    header = HEADER
    for name, by_trial in _further_columns(findings, level):
        header = [*header[:-1], name, header[-1]]
        rows = [[*row[:-1], by_trial.get(row[-1], MISSING), row[-1]] for row in rows]
    table = markdown_table(header, rows)
    if (more := len(findings.ranked) - TOP) > 0:
        table += f"\n\n{count(more, 'slower configuration')} not shown; `trials.jsonl` has all."
    return table


def _further_columns(findings: RunView, level: Level) -> Iterator[tuple[str, dict[str, str]]]:
    """Columns that only some tables have: the heading, and the cells by trial."""
    shown = {str(each.record.trial): each for each in _shown(findings)}
    if has_energy(findings, level):
        spent = {trial: number(each.metric(level, ENERGY), 3) for trial, each in shown.items()}
        yield "energy, J/token", spent
    if findings.sweep.workload.request_rate is not None:
        for heading, name in (("TTFT p99, ms", "ttft_ms_p99"), ("queue p99, ms", "queue_ms_p99")):
            yield (
                heading,
                {trial: number(each.metric(level, name)) for trial, each in shown.items()},
            )
    good = {trial: each.metric(level, GOODPUT) for trial, each in shown.items()}
    if any(value is not None for value in good.values()):
        yield "goodput, requests/s", {trial: number(value, 2) for trial, value in good.items()}
    if is_cut(findings, level):
        counts = {trial: _windows(findings, each, level) for trial, each in shown.items()}
        yield "windows", {trial: str(n or MISSING) for trial, n in counts.items()}


def _shown(findings: RunView) -> list[Result]:
    first = [each for each in (findings.baseline, findings.plain) if each is not None]
    return [*first, *findings.ranked[:TOP]]


def has_energy(findings: RunView, level: Level) -> bool:
    """NVML told the energy of a shown configuration at a level."""
    return any(each.metric(level, ENERGY) is not None for each in _shown(findings))


def is_cut(findings: RunView, level: Level) -> bool:
    """A shown configuration has fewer windows at a level than were asked for."""
    counts = [_windows(findings, each, level) for each in findings.ranked[:TOP]]
    return any(n is not None and n < findings.sweep.measure.windows for n in counts)


def _windows(findings: RunView, each: Result, level: Level) -> int | None:
    """How many the figures of a configuration come from."""
    if (windows := each.metric(level, "windows")) is not None:
        return round(windows)
    requests = each.metric(level, "requests")  # a ledger of an older specbench
    per_window = findings.sweep.workload.requests_at(level)
    return None if requests is None else round(requests / per_window)


def _row(each: Result, level: Level, name: str) -> list[str]:
    return [
        name,
        throughput(each, level, "output_tok_s"),
        number(each.metric(level, "decode_tok_s")),
        ratio(each.speedups.get(level)),
        number(each.metric(level, "accept_length"), 2),
        percent(each.metric(level, "accept_rate_first")),
        number(each.metric(level, "ttft_ms_p50")),
        number(each.metric(level, "tpot_ms_p50"), 2),
        number(each.metric(level, "cycle_ms"), 2),
        str(each.record.trial),
    ]
