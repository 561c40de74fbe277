"""A line of a comparison: one run's figures at one concurrency."""

from dataclasses import dataclass
from typing import Any

from tuner.measure.statistics import Interval
from tuner.report.text import duration, interval, number, ratio


@dataclass(frozen=True)
class Row:
    """One run's baseline or best candidate at one concurrency. None: not measured."""

    run: str
    """A, B, C... in the order given."""
    concurrency: int
    what: str
    """`no speculation` or `best candidate`."""
    configuration: str | None
    tok_s: Interval | None
    ratio: Interval | None
    """To the reference run's row of the same kind; None for that row itself."""
    ttft_ms: tuple[float | None, float | None]
    """p50 and p99."""
    tpot_ms: tuple[float | None, float | None]
    accept_length: float | None
    launch_s: float | None
    verdict: str
    """reference, faster, slower, no difference seen, or `not comparable: why`."""

    def to_json(self) -> dict[str, Any]:
        """Flat, with intervals as objects."""
        return {
            "run": self.run,
            "concurrency": self.concurrency,
            "what": self.what,
            "configuration": self.configuration,
            "tok_s": _interval_json(self.tok_s),
            "ratio": _interval_json(self.ratio),
            "ttft_ms_p50": self.ttft_ms[0],
            "ttft_ms_p99": self.ttft_ms[1],
            "tpot_ms_p50": self.tpot_ms[0],
            "tpot_ms_p99": self.tpot_ms[1],
            "accept_length": self.accept_length,
            "launch_s": self.launch_s,
            "verdict": self.verdict,
        }


def cells_of(row: Row) -> list[str]:
    """The row as tables show it."""
    tok_s = row.tok_s
    return [
        row.run,
        interval(tok_s.value, tok_s.low, tok_s.high) if tok_s else number(None),
        ratio(row.ratio),
        f"{number(row.ttft_ms[0])}/{number(row.ttft_ms[1])}",
        f"{number(row.tpot_ms[0], 2)}/{number(row.tpot_ms[1], 2)}",
        number(row.accept_length, 2),
        duration(row.launch_s),
        row.verdict,
    ]


def _interval_json(bounds: Interval | None) -> dict[str, float | None] | None:
    if bounds is None:
        return None
    return {"value": bounds.value, "low": bounds.low, "high": bounds.high}
