"""What a sweep prints when it is through: its result, as text for people."""

from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tuner.choice import objective_of
from tuner.crossing import crossing_words, overload_words
from tuner.fastest import speedups_of
from tuner.ledger.baseline_words import disagreement
from tuner.ledger.output_words import outputs_words, task_words
from tuner.ledger.record import TrialRecord
from tuner.ledger.side_by_side import side_words
from tuner.measure.spelled import speed_words
from tuner.measure.statistics import Interval, Metric
from tuner.result import Result, far_words, held_out_speedups
from tuner.sweep.level import at, level_in, named
from tuner.sweep.model import Sweep

COLUMNS = ("speed-up", "AL", "first", "TTFT", "TPOT")
"""After the throughput that the run maximised."""
UNLIMITED = 10_000
"""A width that no table reaches."""
TOP = 10
"""Candidates that the result table shows."""


def show_result(result: Result, sweep: Sweep, report: Path) -> None:
    """Print what a run found: the best candidates beside the baseline, the answer, the report."""
    records = _ranked(result, sweep)
    console = Console(highlight=False, markup=False, soft_wrap=False)
    simulated = " (simulated)" if any(each.engine == "simulated" for each in records) else ""
    metrics = {} if result.baseline is None else result.baseline.metrics
    for level in sweep.workload.levels:
        shown = level_in(str(level), metrics) if str(level) in metrics else level
        title = f"{sweep.name}{simulated}, {named(shown)}"
        metric = sweep.search.objective.metric
        table = _table(title, records, str(level), metric)
        unlimited = console.options.update(width=UNLIMITED)
        if console.measure(table, options=unlimited).minimum <= console.width:
            console.print(table)
        else:  # a table that does not fit would lose digits
            click.echo("\n".join(_lines(title, records, str(level), metric)))
    first, *rest = _answer(result).splitlines()
    click.echo("\n".join([f"{first}{simulated}", *rest]))
    click.echo(f"report: {report}")
    if result.best is not None:
        click.echo(f"launch it: {report.parent / 'best.sh'}")


def _ranked(result: Result, sweep: Sweep) -> list[TrialRecord]:
    spec = sweep.search.objective
    candidates = [each for each in result.settled.ledger.candidates if each.metrics]
    if sweep.engine.kind == "endpoint":
        # One that does not speculate is recorded as a baseline.
        return [each for each in result.settled.ledger.records if each.metrics]
    measured = [
        (value, record)
        for record in candidates
        if (value := objective_of(record, spec)) is not None
    ]
    first = result.fastest.trial if result.fastest else None  # a tie's need not be the highest
    far = {record.trial for record in result.far} | result.limits.trials
    measured.sort(key=lambda pair: (pair[1].trial != first, pair[1].trial in far, -pair[0]))
    ranked = [record for _, record in measured]
    plain = [each for each in (result.baseline, result.plain) if each is not None]
    return [*plain, *ranked[:TOP]]


def _table(title: str, records: list[TrialRecord], level: str, metric: Metric) -> Table:
    caption = (
        f"speed-up: of {speed_words(metric)}; AL: accept length; first: accept rate at position 1; "
        "TTFT, TPOT: p50 in ms"
    )
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    table.add_column("configuration", overflow="fold", min_width=24)
    speed = speed_words(metric).replace(" ", "\n")  # in one line it would cost the narrow terminal
    for name in (speed, *COLUMNS):
        table.add_column(name, justify="right", no_wrap=True)
    for record in records:
        table.add_row(_name(record, records), *_cells(record, level, records, metric))
    return table


def _lines(title: str, records: list[TrialRecord], level: str, metric: Metric) -> Iterator[str]:
    """The table's figures that decide, a line each, for a terminal that is too narrow for it."""
    yield title
    for record in records:
        yield _name(record, records)
        names = (speed_words(metric), *COLUMNS)
        cells = _cells(record, level, records, metric)
        for name, cell in list(zip(names, cells, strict=True))[:3]:
            yield f"  {name}: {cell}"


def _name(record: TrialRecord, beside: list[TrialRecord]) -> str:
    """A server that was measured alone is nobody's baseline."""
    compared = record.role == "baseline" and len(beside) > 1
    return f"{record.label} (baseline)" if compared else record.label


def _cells(record: TrialRecord, level: str, beside: list[TrialRecord], metric: Metric) -> list[str]:
    """The throughput, then the cells of COLUMNS."""
    compared = record.role == "baseline" and len(beside) > 1
    figures = record.metrics.get(level, {})
    return [
        _number(figures.get(metric), 1),
        "1" if compared else _number(figures.get("speedup"), 3),
        _number(figures.get("accept_length"), 2),
        _number(figures.get("accept_rate_first"), 2),
        _number(figures.get("ttft_ms_p50"), 1),
        _number(figures.get("tpot_ms_p50"), 2),
    ]


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _answer(result: Result) -> str:
    apart = disagreement(result.settled.baselines)
    doubt = [] if apart is None else [f"doubtful: {apart}"]
    if result.best is None or result.best.at is None:  # the verdict names those of other outputs
        return "\n".join([result.verdict, *doubt, *_elsewhere(result)])
    shown = []
    for level, ratio in result.speedup.items():
        shown.append(f"{_times(ratio)} {at(level)}")
    lines = [f"best: {result.best.label}", f"speed-up over the baseline: {'; '.join(shown)}"]
    lines += doubt
    if result.confirmed is not None:
        again = [_times(ratio) for ratio in speedups_of(result.confirmed).values()]
        lines.append(f"with a launch of its own: {'; '.join(again)}")
        if unseen := held_out_speedups(result.confirmed):
            again = [_times(ratio) for ratio in unseen.values()]
            lines.append(f"on prompts that it was not chosen on: {'; '.join(again)}")
    if result.plain is not None and result.best is not result.plain:
        alone = [_times(ratio) for ratio in speedups_of(result.plain).values()]
        lines.append(f"its settings alone, without speculation: {'; '.join(alone)}")
    lines += [f"outputs: {line}" for line in outputs_words(result.outputs, result.best.metrics)]
    if result.baseline is not None and result.confirmed is not None:
        scores = task_words(result.baseline.task, result.confirmed.task)
        lines += [f"task: {scores}"] if scores else []
    lines += [w for w in (crossing_words(result.by_rate), overload_words(result.by_rate)) if w]
    lines += side_words(result.settled.ledger)
    if result.limits.asked or result.limits.broken:
        lines.append(result.limits.words())
    if result.far:
        lines.append(far_words(result.settled.ledger, result.far))
    lines += _elsewhere(result)
    return "\n".join(lines)


def _times(ratio: Interval) -> str:
    """`1.285x (0.933 to 1.462)`."""
    spread = "" if ratio.low is None else f" ({ratio.low:.3f} to {ratio.high:.3f})"
    return f"{ratio.value:.3f}x{spread}"


def _elsewhere(result: Result) -> Iterator[str]:
    """The levels at which something else than the answer is the fastest; of a single level that
    is what the answer was chosen from."""
    if len(result.by_level) < 2:
        return
    answer = result.best or result.baseline
    for level, found in result.by_level.items():
        if answer is not None and found.record.trial != answer.trial:
            point = found.record.at
            name = found.record.label
            ratio = "" if point is None else f" ({found.speedup.value:.3f}x)"
            yield f"fastest {at(level)}: {name}{ratio}"
