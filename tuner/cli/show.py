"""What commands print: plans and results, as text for people."""

from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tuner.choice import objective_of
from tuner.crossing import crossing_words, overload_words
from tuner.engine.script import shell_line
from tuner.fastest import speedups_of
from tuner.ledger.output_words import outputs_words, task_words
from tuner.ledger.record import TrialRecord
from tuner.ledger.side_by_side import side_words
from tuner.memory.planned import words
from tuner.plan import Plan
from tuner.result import Result, far_words, held_out_of
from tuner.sweep.level import at, named
from tuner.sweep.model import Sweep

COLUMNS = ("tok/s", "speed-up", "AL", "first", "TTFT", "TPOT")
UNLIMITED = 10_000
"""A width that no table reaches."""
TOP = 10
"""Candidates that the result table shows."""


def show_plan(plan: Plan, limit: int | None) -> None:
    """Print a plan; `limit` cuts the list of points, None shows all."""
    sweep, space = plan.loaded.sweep, plan.loaded.space
    click.echo(f"{sweep.name}: {len(space.points):,} points, engine {sweep.engine.kind}")
    for word, reasons in (("dropped", space.dropped), ("collapsed", space.collapsed)):
        for reason, count in reasons.items():
            click.echo(f"  {count:,} {word}: {reason}")
    for note in plan.notes:
        click.echo(f"  {note}")
    estimate = plan.estimate
    click.echo(f"  {estimate.launches:,} launches, about {estimate.hours:.1f} h ({estimate.basis})")
    if sweep.engine.kind == "endpoint":
        click.echo("  nothing is launched: the server that runs is measured as it is")
        return
    _show_memory(plan)
    click.echo(f"\nbaseline: no speculation\n  {shell_line(plan.baseline)}")
    for block, command in plan.shared[:limit]:
        click.echo(f"\none launch, {block.label()}\n  {shell_line(command)}")
    for number, (point, command) in enumerate(plan.commands[:limit], start=1):
        click.echo(f"\n{number}. {point.label()}\n  {shell_line(command)}")
    left = len(plan.commands) - len(plan.commands[:limit])
    if left:
        click.echo(f"\n... and {left:,} more, --all shows them")


def _show_memory(plan: Plan) -> None:
    if plan.memory is None:
        if plan.loaded.sweep.engine.kind == "sglang":
            click.echo("  memory: --gpu-memory GIB says what a GPU has, and shows who takes it")
        return
    click.echo(f"  memory, GiB on each GPU of {plan.memory.gpu:.1f} ({plan.memory.source}):")
    for each in plan.memory.servers:
        click.echo(f"    {each.label}: {words(each.memory, plan.memory.gpu)}")


def show_result(result: Result, sweep: Sweep, report: Path) -> None:
    """Print what a run found: the best candidates beside the baseline, the answer, the report."""
    records = _ranked(result, sweep)
    console = Console(highlight=False, markup=False, soft_wrap=False)
    simulated = " (simulated)" if any(each.engine == "simulated" for each in records) else ""
    for level in sweep.workload.levels:
        title = f"{sweep.name}{simulated}, {named(level)}"
        table = _table(title, records, str(level))
        unlimited = console.options.update(width=UNLIMITED)
        if console.measure(table, options=unlimited).minimum <= console.width:
            console.print(table)
        else:  # a table that does not fit would lose digits
            click.echo("\n".join(_lines(title, records, str(level))))
    first, *rest = _answer(result).splitlines()
    click.echo("\n".join([f"{first}{simulated}", *rest]))
    click.echo(f"report: {report}")
    if result.best is not None:
        click.echo(f"launch it: {report.parent / 'best.sh'}")


def _ranked(result: Result, sweep: Sweep) -> list[TrialRecord]:
    spec = sweep.search.objective
    candidates = [each for each in result.settled.ledger.candidates if each.metrics]
    if sweep.engine.kind == "endpoint":
        return candidates
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


def _table(title: str, records: list[TrialRecord], level: str) -> Table:
    caption = "AL: accept length; first: accept rate at position 1; TTFT, TPOT: p50 in ms"
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    table.add_column("configuration", overflow="fold", min_width=24)
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for record in records:
        table.add_row(_name(record), *_cells(record, level))
    return table


def _lines(title: str, records: list[TrialRecord], level: str) -> Iterator[str]:
    """The table's figures that decide, a line each, for a terminal that is too narrow for it."""
    yield title
    for record in records:
        yield _name(record)
        for name, cell in list(zip(COLUMNS, _cells(record, level), strict=True))[:3]:
            yield f"  {name}: {cell}"


def _name(record: TrialRecord) -> str:
    return f"{record.label} (baseline)" if record.role == "baseline" else record.label


def _cells(record: TrialRecord, level: str) -> list[str]:
    """The cells of COLUMNS."""
    figures = record.metrics.get(level, {})
    return [
        _number(figures.get("output_tok_s"), 1),
        "1" if record.role == "baseline" else _number(figures.get("speedup"), 3),
        _number(figures.get("accept_length"), 2),
        _number(figures.get("accept_rate_first"), 2),
        _number(figures.get("ttft_ms_p50"), 1),
        _number(figures.get("tpot_ms_p50"), 2),
    ]


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _answer(result: Result) -> str:
    if result.best is None or result.best.at is None:
        return "\n".join([result.verdict, *_elsewhere(result)])  # names those of other outputs
    shown = []
    for level, ratio in result.speedup.items():
        spread = "" if ratio.low is None else f" ({ratio.low:.3f} to {ratio.high:.3f})"
        shown.append(f"{ratio.value:.3f}x{spread} {at(level)}")
    lines = [f"best: {result.best.label}", f"speed-up over the baseline: {'; '.join(shown)}"]
    if result.confirmed is not None:
        again = [f"{ratio.value:.3f}x" for ratio in speedups_of(result.confirmed).values()]
        lines.append(f"with a launch of its own: {'; '.join(again)}")
        if unseen := held_out_of(result.confirmed):
            again = [f"{ratio.value:.3f}x" for ratio in unseen.values()]
            lines.append(f"on prompts that it was not chosen on: {'; '.join(again)}")
    if result.plain is not None and result.best is not result.plain:
        alone = [f"{ratio.value:.3f}x" for ratio in speedups_of(result.plain).values()]
        lines.append(f"its settings alone, without speculation: {'; '.join(alone)}")
    lines += [f"outputs: {line}" for line in outputs_words(result.outputs)]
    if result.baseline is not None and result.confirmed is not None:
        scores = task_words(result.baseline.task, result.confirmed.task)
        lines += [f"task: {scores}"] if scores else []
    lines += [w for w in (crossing_words(result.by_rate), overload_words(result.by_rate)) if w]
    lines += side_words(result.settled.ledger)
    if result.limits.asked or result.limits.broken:
        lines.append(result.limits.words())
    if result.worker is not None:
        lines.append(result.worker.words(result.trials))
    if result.far:
        lines.append(far_words(result.settled.ledger, result.far))
    lines += _elsewhere(result)
    return "\n".join(lines)


def _elsewhere(result: Result) -> Iterator[str]:
    """The levels at which something else than the answer is the fastest."""
    answer = result.best or result.baseline
    for level, found in result.by_level.items():
        if answer is not None and found.record.trial != answer.trial:
            point = found.record.at
            name = found.record.label
            ratio = "" if point is None else f" ({found.speedup.value:.3f}x)"
            yield f"fastest {at(level)}: {name}{ratio}"
