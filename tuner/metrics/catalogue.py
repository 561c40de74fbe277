"""Catalogue of metrics: the name, unit, formula, digits, label and views of each.

Every view iterates over `CATALOGUE`, so a new metric is one entry here and one row in
docs/metrics.md. What was not measured is None.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from types import MappingProxyType
from typing import Any, Literal

from tuner.core.formatting import MISSING, number
from tuner.metrics.level_metrics import (
    PERCENTILES,
    REASONS,
    accept_length,
    accept_rate,
    by_kind,
    by_length,
    cached_share,
    cycle_ms,
    engine_figure,
    goodput,
    gpu_figures,
    latencies,
    rates_by_position,
    sum_known,
)
from tuner.metrics.request_rate import overload_figures
from tuner.metrics.samples import RequestSample, Window
from tuner.metrics.statistics import Interval, complete, decode_tok_s, throughput_interval

View = Literal["report", "terminal", "comparison", "dashboard"]
"""The report's results table, the terminal's, compare-report and the dashboard's note.

`tuner.load_run` has a column for every metric.
"""


@dataclass(frozen=True)
class LevelSamples:
    """Raw samples of one concurrency level, and what several formulas take from them."""

    windows: Sequence[Window]
    num_steps: int | None
    """The point's; None without speculation, as is `eagle_topk`."""
    eagle_topk: int | None
    limits: Mapping[str, float]
    """`search.limits`."""

    @cached_property
    def samples(self) -> list[RequestSample]:
        return [sample for window in self.windows for sample in window.samples]

    @cached_property
    def complete(self) -> list[RequestSample]:
        """Requests that have their whole answer."""
        return complete(self.windows)

    @cached_property
    def wall_s(self) -> float:
        return sum(window.wall_s for window in self.windows)

    @cached_property
    def throughput(self) -> Interval | None:
        return throughput_interval(self.windows)

    @cached_property
    def rates(self) -> list[float] | None:
        """Accept rates by position."""
        return rates_by_position(self.samples, self.num_steps)

    @cached_property
    def latencies(self) -> dict[str, float | None]:
        return latencies(self.complete)

    @cached_property
    def overload(self) -> dict[str, float | None]:
        return overload_figures(self.windows)

    @cached_property
    def gpus(self) -> dict[str, float | int | None]:
        return gpu_figures(self.windows)

    def by_wall(self, amount: float) -> float | None:
        """Return `amount` divided by the wall time."""
        return amount / self.wall_s if self.wall_s > 0 else None


@dataclass(frozen=True)
class MetricEntry:
    """One metric."""

    name: str
    """The key in trials.jsonl and the column of `tuner.load_run`."""
    unit: str
    """As docs/metrics.md states it."""
    formula: Callable[[LevelSamples], Any] | None
    """None if the metric needs the baseline too, so that execution/recording.py adds it."""
    digits: int = 1
    label: str = ""
    """Heading of a column, with the unit."""
    views: tuple[View, ...] = ()
    only: Literal["", "measured", "at a rate"] = ""
    """When the report has the column: always, if a value was measured, with a request rate."""
    short: str = ""
    """Heading in the terminal's table."""
    legend: str = ""
    """Explanation of `short`. `{metric}` stands for the metric of the objective."""
    is_number: bool = True

    def text(self, value: Any) -> str:
        """Format a value with the metric's digits; a list with spaces between its numbers."""
        if isinstance(value, list | tuple):
            return " ".join(self.text(entry) for entry in value) or MISSING
        return number(value, self.digits, inf)


def _latency(name: str, unit: str, label: str, digits: int = 1) -> Iterator[MetricEntry]:
    """Yield the percentiles of one latency. TTFT and TPOT have a column for the median."""
    for rank in PERCENTILES:
        key = f"{name}_ms_p{rank}"
        shown = f"{label} p{rank}, ms"
        formula = _take("latencies", key)
        if rank == 50 and name in ("ttft", "tpot"):
            yield MetricEntry(
                *(key, unit, formula, digits, shown),
                views=("report", "terminal", "dashboard"),
                short=label,
                legend="p50 in ms",
            )
        elif rank == 99 and name in ("ttft", "queue"):
            yield MetricEntry(
                key, unit, formula, digits, shown, views=("report",), only="at a rate"
            )
        else:
            yield MetricEntry(key, unit, formula, digits, shown)


def _take(source: str, key: str) -> Callable[[LevelSamples], Any]:
    """Return a formula that takes one figure of a group."""
    return lambda level: getattr(level, source)[key]


CATALOGUE: tuple[MetricEntry, ...] = (
    MetricEntry(
        "output_tok_s",
        "tokens/s",
        lambda level: level.throughput and level.throughput.value,
        label="output tok/s",
        views=("report", "dashboard"),
    ),
    MetricEntry(
        "output_tok_s_low", "tokens/s", lambda level: level.throughput and level.throughput.low
    ),
    MetricEntry(
        "output_tok_s_high", "tokens/s", lambda level: level.throughput and level.throughput.high
    ),
    MetricEntry(
        "decode_tok_s",
        "tokens/s of one stream",
        lambda level: decode_tok_s(level.complete),
        label="decode tok/s",
        views=("report", "dashboard"),
    ),
    MetricEntry(
        "speedup",
        "ratio",
        None,
        digits=3,
        label="speed-up",
        views=("report", "terminal", "dashboard"),
        short="speed-up",
        legend="of {metric} over no speculation",
    ),
    MetricEntry("speedup_low", "ratio", None, digits=3),
    MetricEntry("speedup_high", "ratio", None, digits=3),
    MetricEntry("interference", "ratio", None, digits=3),
    MetricEntry("interference_low", "ratio", None, digits=3),
    MetricEntry("interference_high", "ratio", None, digits=3),
    MetricEntry(
        "accept_length",
        "tokens per verify",
        lambda level: accept_length(level.samples),
        digits=2,
        label="accept length",
        views=("report", "terminal", "dashboard"),
        short="AL",
        legend="accept length, tokens a verify",
    ),
    MetricEntry(
        "accept_rate",
        "share",
        lambda level: accept_rate(level.samples, level.num_steps, level.eagle_topk),
        digits=3,
        label="accept rate",
        views=("comparison",),
    ),
    MetricEntry(
        "accept_rate_first",
        "share",
        lambda level: level.rates[0] if level.rates else None,
        digits=2,
        label="first accepted",
        views=("report", "terminal"),
        short="first",
        legend="accept rate at position 1",
    ),
    MetricEntry(
        "accept_rate_by_position",
        "list of shares",
        lambda level: level.rates,
        digits=2,
        label="by position",
        views=("comparison",),
        is_number=False,
    ),
    *_latency("ttft", "ms", "TTFT"),
    *_latency("tpot", "ms/token", "TPOT", digits=2),
    *_latency("itl", "ms/token", "ITL", digits=2),
    *_latency("e2e", "ms", "end to end"),
    *_latency("queue", "ms", "queue"),
    MetricEntry(
        "cycle_ms",
        "ms",
        lambda level: cycle_ms(level.complete, level.num_steps),
        digits=2,
        label="cycle, ms",
        views=("report", "dashboard"),
    ),
    MetricEntry(
        "prompt_tokens",
        "tokens",
        lambda level: sum_known(sample.prompt_tokens for sample in level.samples),
    ),
    MetricEntry(
        "completion_tokens", "tokens", lambda level: sum(sample.tokens for sample in level.samples)
    ),
    MetricEntry("windows", "windows", lambda level: len(level.windows)),
    MetricEntry("cached_share", "share", lambda level: cached_share(level.samples)),
    MetricEntry("requests", "requests", lambda level: len(level.samples)),
    MetricEntry(
        "failed_requests", "requests", lambda level: len(level.samples) - len(level.complete)
    ),
    MetricEntry("wall_s", "s", lambda level: level.wall_s),
    MetricEntry(
        "request_s",
        "requests/s",
        lambda level: level.by_wall(len(level.complete)) if level.complete else None,
    ),
    MetricEntry(
        "goodput_request_s",
        "requests/s",
        lambda level: goodput(level.complete, level.wall_s, level.limits),
        digits=2,
        label="goodput, requests/s",
        views=("report",),
        only="measured",
    ),
    MetricEntry("arrival_request_s", "arrivals/s", _take("overload", "arrival_request_s")),
    MetricEntry("served_request_s", "arrivals/s", _take("overload", "served_request_s")),
    MetricEntry("wait_growth", "1", _take("overload", "wait_growth")),
    MetricEntry("turns_per_arrival", "requests", _take("overload", "turns_per_arrival")),
    MetricEntry(
        "client_cpu_share",
        "share of a core",
        lambda level: level.by_wall(sum(window.client_cpu_s for window in level.windows)),
    ),
    MetricEntry(
        "engine_accept_length",
        "as the release defines it",
        lambda level: engine_figure(level.samples, "spec_accept_length"),
    ),
    MetricEntry(
        "engine_accept_rate",
        "as the release defines it",
        lambda level: engine_figure(level.samples, "spec_accept_rate"),
    ),
    MetricEntry("gpus", "GPUs", _take("gpus", "gpus")),
    MetricEntry("gpu_clock_mhz", "MHz", _take("gpus", "gpu_clock_mhz")),
    MetricEntry("gpu_clock_mhz_min", "MHz", _take("gpus", "gpu_clock_mhz_min")),
    MetricEntry("gpu_temperature_c_max", "°C", _take("gpus", "gpu_temperature_c_max")),
    MetricEntry("gpu_power_w", "W", _take("gpus", "gpu_power_w")),
    *(MetricEntry(name, "share", _take("gpus", name)) for name in REASONS),
    MetricEntry("gpu_energy_j", "J", _take("gpus", "gpu_energy_j")),
    MetricEntry(
        "energy_j_per_token",
        "J/token",
        _take("gpus", "energy_j_per_token"),
        digits=3,
        label="energy, J/token",
        views=("report", "comparison"),
        only="measured",
    ),
    MetricEntry(
        "by_kind",
        "",
        lambda level: by_kind(level.windows, level.num_steps, level.eagle_topk),
        is_number=False,
    ),
    MetricEntry(
        "by_length",
        "",
        lambda level: by_length(level.windows, level.num_steps, level.eagle_topk),
        is_number=False,
    ),
)


def summarise(
    windows: Sequence[Window],
    num_steps: int | None,
    eagle_topk: int | None,
    limits: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the metrics of a ledger line for one concurrency level.

    `num_steps` and `eagle_topk` are the point's, None without speculation. `limits` are those of
    `search.limits`; `goodput_request_s` is None without any.
    """
    level = LevelSamples(windows, num_steps, eagle_topk, limits)
    return {entry.name: entry.formula(level) for entry in CATALOGUE if entry.formula is not None}


def entries_in(view: View) -> list[MetricEntry]:
    """Return the metrics of a view, in its order."""
    return [entry for entry in CATALOGUE if view in entry.views]


def find_metric(name: str) -> MetricEntry:
    """Return the entry of a metric."""
    return next(entry for entry in CATALOGUE if entry.name == name)


def metric_heading(name: str) -> str:
    """Return the heading of a column of a metric: `output tok/s`, `decode tok/s`."""
    return find_metric(name).label
