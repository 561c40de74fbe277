"""Measurements of other benchmarks, in specbench's units and definitions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.config.point import Point
from tuner.metrics.samples import Window

NO_SPECULATION = "no speculation"
UNSAID = "as served (the file does not say whether it speculates)"

Percentiles = tuple[float | None, float | None, float | None]
"""p50, p90 and p99 in ms. None for one that the file lacks."""
NONE: Percentiles = (None, None, None)


@dataclass(frozen=True)
class ForeignRecord:
    """One measurement: a server's configuration at one concurrency.

    A field is None if the file lacks it or defines it differently.
    """

    where: str
    """FILE:LINE."""
    concurrency: int
    workload: str
    """The load, as far as the file describes it."""
    configuration: str
    speculates: bool | None
    """None if the file does not say."""
    output_tok_s: float | None = None
    tokens: int | None = None
    seconds: float | None = None
    """Wall time of the measurement; `output_tok_s` is `tokens` divided by it."""
    ttft_ms: Percentiles = NONE
    tpot_ms: Percentiles = NONE
    accept_length: float | None = None
    accept_rate: float | None = None
    accept_rate_by_position: tuple[float, ...] | None = None
    windows: tuple[Window, ...] = ()
    """The requests one by one, if the file has them."""
    prompts: str | None = None
    """Equal for two records that sent prompts of the same lengths in the same order."""
    model: str | None = None
    version: str | None = None
    simulated: bool = False
    """The server was a simulated one."""

    def metrics(self) -> dict[str, Any]:
        """Return the figures by the names of specbench's metrics."""
        latencies = (("ttft_ms", self.ttft_ms), ("tpot_ms", self.tpot_ms))
        rates = self.accept_rate_by_position
        return {
            **{
                f"{name}_p{rank}": value
                for name, values in latencies
                for rank, value in zip((50, 90, 99), values, strict=True)
            },
            "accept_length": self.accept_length,
            "accept_rate": self.accept_rate,
            "accept_rate_by_position": None if rates is None else list(rates),
        }


@dataclass(frozen=True)
class ForeignRun:
    """The records of one workload in one file: at most one for a configuration and concurrency."""

    path: Path
    tool: str
    workload: str
    records: tuple[ForeignRecord, ...]
    notes: tuple[str, ...]
    """Measurements that are left out, and figures that the tool defines differently."""

    @property
    def levels(self) -> list[int]:
        """Concurrencies that were measured."""
        return sorted({record.concurrency for record in self.records})

    @property
    def model(self) -> str | None:
        """The target as the file names it."""
        return next((record.model for record in self.records if record.model), None)


def name_configuration(steps: int | None, topk: int | None, tokens: int | None) -> str:
    """Return the label of the same point in specbench's own tables."""
    if not steps and not tokens:
        return NO_SPECULATION
    return Point(
        num_steps=steps or None, eagle_topk=topk or None, num_draft_tokens=tokens or None
    ).label()


def pooled(records: Sequence[ForeignRecord]) -> ForeignRecord:
    """Return repeats of one measurement as one record: tokens and seconds are added up.

    Percentiles and rates are dropped, because they cannot be pooled without the requests.
    """
    last = records[-1]
    if len(records) == 1:
        return last
    tokens = [record.tokens for record in records if record.tokens is not None]
    seconds = [record.seconds for record in records if record.seconds is not None]
    whole = len(tokens) == len(seconds) == len(records)
    windows = [record.windows for record in records]
    same = len({record.prompts for record in records}) == 1
    return replace(
        last,
        where=f"{records[0].where} and {len(records) - 1} more",
        output_tok_s=sum(tokens) / sum(seconds) if whole and sum(seconds) > 0 else None,
        tokens=sum(tokens) if whole else None,
        seconds=sum(seconds) if whole else None,
        ttft_ms=NONE,
        tpot_ms=NONE,
        accept_rate=None,
        accept_rate_by_position=None,
        accept_length=None,
        windows=tuple(w for some in windows for w in some) if same and all(windows) else (),
    )
