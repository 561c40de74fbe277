"""Text that a sweep prints at its end."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from textwrap import fill

import click
from rich.console import Console
from rich.table import Table

from tuner.analysis.baselines import disagreement
from tuner.analysis.best_per_level import record_speedups
from tuner.analysis.request_rates import describe_break_even_rate, describe_overload
from tuner.analysis.summary import RunSummary, describe_divergent_outputs, held_out_speedups
from tuner.config.load_level import at, level_in, named
from tuner.core.formatting import MISSING, times
from tuner.metrics.catalogue import MetricEntry, entries_in, find_metric, metric_heading
from tuner.metrics.statistics import Metric
from tuner.report.outputs import describe_outputs, describe_task_scores
from tuner.runs.ledger import is_simulated
from tuner.runs.records import TrialRecord
from tuner.runs.slot_interference import describe_slots

UNLIMITED = 10_000
"""A width that no table reaches."""
_KEPT = "\xa0"
"""A space that no line ends at."""
TOP = 10
"""Candidates that the result table shows."""


def print_summary(summary: RunSummary, report: Path) -> None:
    """Print what a run found: the best candidates beside the baseline, the answer, the report."""
    sweep, records = summary.sweep, _ranked(summary)
    console = Console(highlight=False, markup=False, soft_wrap=False)
    simulated = " (simulated)" if is_simulated(records, sweep) else ""
    metrics = {} if summary.baseline is None else summary.baseline.metrics
    metric, titles = sweep.search.objective.metric, dict[str, str]()
    for level in sweep.workload.levels:
        shown = level_in(str(level), metrics) if str(level) in metrics else level
        titles[str(level)] = f"{sweep.name}{simulated}, {named(shown)}"
    tables = [_table(title, records, level, metric) for level, title in titles.items()]
    unlimited = console.options.update(width=UNLIMITED)
    if all(console.measure(each, options=unlimited).minimum <= console.width for each in tables):
        for table in tables:
            console.print(table)
        click.echo(_fitted(_legend(metric), console.width))
    else:  # a table that does not fit would lose digits; half of them would be another layout
        for name, title in titles.items():
            click.echo("\n".join(_lines(title, records, name, metric, console.width)))
        click.echo(_fitted(_legend(metric), console.width))
    first, *rest = _answer(summary).splitlines()
    click.echo("\n".join([f"{first}{simulated}", *rest]))
    click.echo(f"report: {report}")
    if summary.best is not None:
        click.echo(f"launch it: {report.parent / 'best.sh'}")


def _ranked(summary: RunSummary) -> list[TrialRecord]:
    if not summary.sweep.engine.launches_servers:
        # A server that does not speculate is recorded as a baseline.
        return [record for record in summary.ledger.records if record.metrics]
    plain = [record for record in (summary.baseline, summary.plain) if record is not None]
    ranked = [each.record for each in summary.ranked if each.value is not None]
    return [*plain, *ranked[:TOP]]


def _columns(metric: Metric) -> list[tuple[str, MetricEntry]]:
    """Return (heading, metric) of the table's columns; the throughput that was maximised first."""
    first = find_metric(metric)
    return [(first.label, first), *((entry.short, entry) for entry in entries_in("terminal"))]


def _table(title: str, records: list[TrialRecord], level: str, metric: Metric) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("configuration", overflow="fold", min_width=24)
    (speed, _), *others = _columns(metric)
    # In one line the first heading would cost a narrow terminal too much.
    for name in (speed.replace(" ", "\n"), *(heading for heading, _ in others)):
        table.add_column(name, justify="right", no_wrap=True)
    for record in records:
        table.add_row(_name(record, records), *_cells(record, level, records, metric))
    return table


def _lines(
    title: str, records: list[TrialRecord], level: str, metric: Metric, width: int
) -> Iterator[str]:
    """Yield the table's figures as lines, for a terminal that is too narrow for the table.

    Figures that were not measured are left out.
    """
    yield _fitted(title, width)
    names = [heading for heading, _ in _columns(metric)]
    for record in records:
        yield _fitted(_name(record, records), width)
        cells = zip(names, _cells(record, level, records, metric), strict=True)
        figures = [f"{n}: {cell}".replace(" ", _KEPT) for n, cell in cells if cell != MISSING]
        yield _fitted("; ".join(figures), width, "  ")


def _legend(metric: Metric) -> str:
    """Explain the columns; neighbours with one explanation share it."""
    entries = entries_in("terminal")
    parts = []
    for legend, group in groupby(entries, key=lambda entry: entry.legend):
        names = ", ".join(entry.short for entry in group)
        parts.append(f"{names}: {legend.format(metric=metric_heading(metric))}")
    return "; ".join(parts)


def _fitted(text: str, width: int, indent: str = "") -> str:
    """Lines that end between words; a word alone may be longer than the terminal is wide."""
    return fill(
        text,
        max(width, len(indent) + 1),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ).replace(_KEPT, " ")


def _name(record: TrialRecord, beside: list[TrialRecord]) -> str:
    """A server that was measured alone is nobody's baseline."""
    compared = record.role == "baseline" and len(beside) > 1
    return f"{record.label} (baseline)" if compared else record.label


def _cells(record: TrialRecord, level: str, beside: list[TrialRecord], metric: Metric) -> list[str]:
    """Return the cells of `_columns`; the baseline's speed-up is 1."""
    compared = record.role == "baseline" and len(beside) > 1
    figures = record.metrics.get(level, {})
    return [
        "1" if compared and entry.name == "speedup" else entry.text(figures.get(entry.name))
        for _, entry in _columns(metric)
    ]


def _answer(summary: RunSummary) -> str:
    apart = disagreement(summary.settled.baselines)
    doubt = [] if apart is None else [f"doubtful: {apart}"]
    if summary.best is None or summary.best.at is None:  # the verdict names those of other outputs
        lines = [
            summary.verdict,
            *doubt,
            *_alike(summary),
            *_workers(summary),
            *_elsewhere(summary),
        ]
        return "\n".join(lines)
    shown = []
    for level, ratio in summary.speedup.items():
        shown.append(f"{times(ratio)} {at(level)}")
    lines = [f"best: {summary.best.label}", f"speed-up over the baseline: {'; '.join(shown)}"]
    lines += doubt
    if summary.confirmed is not None:
        again = [times(ratio) for ratio in record_speedups(summary.confirmed).values()]
        lines.append(f"with a launch of its own: {'; '.join(again)}")
        if unseen := held_out_speedups(summary.confirmed):
            again = [times(ratio) for ratio in unseen.values()]
            lines.append(f"on prompts that it was not chosen on: {'; '.join(again)}")
    if summary.plain is not None and summary.best is not summary.plain:
        alone = [times(ratio) for ratio in record_speedups(summary.plain).values()]
        lines.append(f"its settings alone, without speculation: {'; '.join(alone)}")
    lines += _alike(summary)
    lines += [
        f"outputs: {line}" for line in describe_outputs(summary.outputs, summary.best.metrics)
    ]
    if summary.baseline is not None and summary.confirmed is not None:
        scores = describe_task_scores(summary.baseline.task, summary.confirmed.task)
        lines += [f"task: {scores}"] if scores else []
    lines += [
        w
        for w in (describe_break_even_rate(summary.by_rate), describe_overload(summary.by_rate))
        if w
    ]
    lines += describe_slots(summary.ledger)
    if summary.limits.asked or summary.limits.broken:
        lines.append(summary.limits.words())
    lines += _workers(summary)
    if summary.far:
        lines.append(describe_divergent_outputs(summary.ledger, summary.far))
    lines += _elsewhere(summary)
    return "\n".join(lines)


def _workers(summary: RunSummary) -> list[str]:
    """Of a worker's run: who else measured what, and that the answer is another one's."""
    if summary.worker is None:
        return []
    faster = summary.worker.faster(summary.fastest_value)
    return [*([faster] if faster else []), summary.worker.words(summary.trials)]


def _alike(summary: RunSummary) -> list[str]:
    """What may as well be as fast as the answer, as the report has it."""
    if not summary.alike:
        return []
    it = "no speculation" if summary.best is None else "it"
    return [f"not told apart from {it}: {'; '.join(each.label for each in summary.alike)}"]


def _elsewhere(summary: RunSummary) -> Iterator[str]:
    """The levels at which something else than the answer is the fastest; of a single level that
    is what the answer was chosen from."""
    if len(summary.by_level) < 2:
        return
    answer = summary.best or summary.baseline
    for level, found in summary.by_level.items():
        if answer is not None and found.record.trial != answer.trial:
            point = found.record.at
            name = found.record.label
            ratio = "" if point is None else f" ({found.speedup.value:.3f}x)"
            yield f"fastest {at(level)}: {name}{ratio}"
