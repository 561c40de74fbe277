"""Columns of compare-report: the heading, the cell and the JSON keys of each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.analysis.cycle_breakdown import DRAFTED, ONCE, PLAIN, TOKENS
from tuner.config.load_level import Level
from tuner.config.load_level import columns as level_columns
from tuner.core.formatting import MISSING, duration, interval, number, ratio
from tuner.metrics.catalogue import entries_in, find_metric
from tuner.metrics.statistics import Interval

NOT_COMPARABLE = "not comparable: "
REFERENCE = "reference"
FASTER, SLOWER, SAME = "faster", "slower", "no difference seen"

RANKS = (50, 90, 99)
_PARTS = {
    PLAIN: "a plain decode step",
    ONCE: "once a cycle besides",
    DRAFTED: "drafted tokens",
    TOKENS: "their verify",
}
"""Short names of a cycle's parts."""


@dataclass(frozen=True)
class Memory:
    """GPU memory of the first rank by the server's log, GiB. None: not in the log."""

    target: float | None
    draft: float | None
    cache: float | None
    tokens: int | None
    """Tokens that fit into the KV cache."""
    free: float | None

    def words(self) -> str:
        """Format `target 7.51, draft 0.44, KV cache 98.0 (1,605,632 tokens), free 13.2`."""
        cache = number(self.cache, 2)
        if self.cache is not None and self.tokens is not None:
            cache += f" ({self.tokens:,} tokens)"
        parts = {"target": number(self.target, 2), "draft": number(self.draft, 2)}
        parts |= {"KV cache": cache, "free": number(self.free, 2)}
        shown = [f"{name} {words}" for name, words in parts.items() if words != MISSING]
        return ", ".join(shown) or MISSING


@dataclass(frozen=True)
class RowFigures:
    """Figures of a server at one concurrency, besides its throughput. None: not measured."""

    metrics: Mapping[str, Any] = field(default_factory=dict)
    """By name (metrics/catalogue.py). A metric that is absent was not measured."""
    cycle_parts: tuple[tuple[str, float], ...] = ()
    """(name, ms) of the parts that the run's measurements determine. Their sum is the cycle by
    the model."""
    launch_s: float | None = None
    memory: Memory | None = None


@dataclass(frozen=True)
class Row:
    """One run's server at one concurrency. None: not measured."""

    run: str
    """A, B, C... in the order given."""
    concurrency: Level
    """The level: a concurrency, or one of several request rates."""
    what: str
    """`no speculation`, `best candidate`, `the server as it is`, or the label of a shared point."""
    configuration: str | None
    tok_s: Interval | None
    ratio: Interval | None
    """To the reference run's row of the same kind; None for that row itself."""
    verdict: str
    """reference, faster, slower, no difference seen, or `not comparable: why`."""
    figures: RowFigures = field(default_factory=RowFigures)

    @property
    def compared(self) -> bool:
        """True if the row has a verdict with an interval."""
        return self.verdict in (FASTER, SLOWER, SAME)

    def to_json(self) -> dict[str, Any]:
        """Return an object with the keys of all columns; intervals are objects."""
        keys = {
            "run": self.run,
            **level_columns(self.concurrency),
            "what": self.what,
        }
        for column in columns():
            keys |= {key: value(self) for key, value in column.json.items()}
        return keys


@dataclass(frozen=True)
class Column:
    """One column of a comparison."""

    heading: str
    """`{metric}`, `{reference}` and `{launch}` are filled in by the view."""
    cell: Callable[[Row], str]
    json: Mapping[str, Callable[[Row], Any]]
    in_table: bool = False
    """True for a column of the table of speeds. The terminal shows other columns as lines below
    that table, a page as a second table."""
    brief: Callable[[Row], str] | None = None
    """The cell for a terminal, if it is shorter."""


def columns() -> Sequence[Column]:
    """Return the columns of a comparison in their order.

    A metric of the view "comparison" (metrics/catalogue.py) has a column of its own.
    """
    return (
        Column(
            "{metric} tok/s",
            lambda row: _interval(row.tok_s),
            {"tok_s": lambda row: _interval_json(row.tok_s)},
            in_table=True,
        ),
        Column(
            "ratio to {reference}",
            lambda row: ratio(row.ratio),
            {"ratio": lambda row: _interval_json(row.ratio)},
            in_table=True,
        ),
        _percentile_column("TTFT", "ttft_ms"),
        _percentile_column("TPOT", "tpot_ms"),
        _metric_column("accept_length", in_table=True),
        Column(
            "{launch}",
            lambda row: duration(row.figures.launch_s),
            {"launch_s": lambda row: row.figures.launch_s},
            in_table=True,
        ),
        Column(
            "verdict",
            lambda row: row.verdict,
            {"verdict": lambda row: row.verdict},
            in_table=True,
            brief=lambda row: row.verdict.partition(":")[0],
        ),
        Column(
            "configuration",
            lambda row: row.configuration or MISSING,
            {"configuration": lambda row: row.configuration},
        ),
        *(_metric_column(entry.name) for entry in entries_in("comparison")),
        Column(
            "cycle",
            lambda row: _cycle(row.figures),
            {
                "cycle_ms": lambda row: row.figures.metrics.get("cycle_ms"),
                "cycle_parts_ms": lambda row: dict(row.figures.cycle_parts),
            },
        ),
        Column(
            "GPU memory, GiB",
            lambda row: MISSING if row.figures.memory is None else row.figures.memory.words(),
            {"gpu_memory_gib": lambda row: row.figures.memory and vars(row.figures.memory)},
        ),
    )


def metric_names() -> list[str]:
    """Return the metrics that the columns show."""
    ranked = [f"{name}_p{rank}" for name in ("ttft_ms", "tpot_ms") for rank in RANKS]
    shown = [entry.name for entry in entries_in("comparison")]
    return [*ranked, "accept_length", "cycle_ms", *shown]


def _metric_column(name: str, in_table: bool = False) -> Column:
    entry = find_metric(name)

    def value(row: Row) -> Any:
        return row.figures.metrics.get(name)

    return Column(entry.label, lambda row: entry.text(value(row)), {name: value}, in_table)


def _percentile_column(heading: str, name: str) -> Column:
    """Return a column with p50, p90 and p99 of a latency in one cell."""
    names = [f"{name}_p{rank}" for rank in RANKS]
    digits = find_metric(names[0]).digits

    def cell(row: Row) -> str:
        values = [row.figures.metrics.get(key) for key in names]
        if not any(value is not None for value in values):
            return MISSING
        return "/".join(number(value, digits) for value in values)

    def value(key: str) -> Callable[[Row], Any]:
        return lambda row: row.figures.metrics.get(key)

    shown = "/".join(f"p{rank}" for rank in RANKS)
    return Column(f"{heading} {shown}", cell, {key: value(key) for key in names}, in_table=True)


def _interval(bounds: Interval | None) -> str:
    return MISSING if bounds is None else interval(bounds.value, bounds.low, bounds.high)


def _cycle(figures: RowFigures) -> str:
    """Format `8.13 ms; by the model 8.24: 3.19 a plain decode step + 4.28 draft steps + ...`."""
    ms = figures.metrics.get("cycle_ms")
    if ms is None:
        return MISSING
    words = f"{number(ms, 2)} ms"
    parts = [(name, ms) for name, ms in figures.cycle_parts if ms > 0]
    if not parts:
        return words
    shown = " + ".join(f"{number(ms, 2)} {_PARTS.get(name, name)}" for name, ms in parts)
    return f"{words}; by the model {number(sum(ms for _, ms in parts), 2)}: {shown}"


def _interval_json(bounds: Interval | None) -> dict[str, float | None] | None:
    return None if bounds is None else bounds.to_json()
