"""A line of a comparison: one run's figures at one concurrency."""

from dataclasses import dataclass, field
from typing import Any

from tuner.analysis.cycle_breakdown import DRAFTED, ONCE, PLAIN, TOKENS
from tuner.compare.external.record import NONE, Percentiles
from tuner.config.load_level import Level, columns
from tuner.core.formatting import MISSING, duration, interval, number, ratio
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
"""Parts of a cycle in a line, where the figure has longer names."""


@dataclass(frozen=True)
class Memory:
    """What a server's log says that the first rank holds of its GPU, GiB. None: not said."""

    target: float | None
    draft: float | None
    cache: float | None
    tokens: int | None
    """That the KV cache has room for."""
    free: float | None

    def words(self) -> str:
        """`target 7.51, draft 0.44, KV cache 98.0 (1,605,632 tokens), free 13.2`."""
        cache = number(self.cache, 2)
        if self.cache is not None and self.tokens is not None:
            cache += f" ({self.tokens:,} tokens)"
        parts = {"target": number(self.target, 2), "draft": number(self.draft, 2)}
        parts |= {"KV cache": cache, "free": number(self.free, 2)}
        return ", ".join(f"{name} {told}" for name, told in parts.items() if told != MISSING)


@dataclass(frozen=True)
class RowFigures:
    """What a server did at one concurrency, beside its throughput. None: not measured."""

    ttft_ms: Percentiles = NONE
    tpot_ms: Percentiles = NONE
    accept_length: float | None = None
    accept_rate: float | None = None
    accept_rate_by_position: tuple[float, ...] | None = None
    cycle_ms: float | None = None
    """Of a token, without speculation."""
    cycle_parts: tuple[tuple[str, float], ...] = ()
    """(name, ms) of what the run's measurements tell apart; they sum up to the model's cycle."""
    energy_j_per_token: float | None = None
    """Of all GPUs of the server together, by NVML."""
    launch_s: float | None = None
    memory: Memory | None = None

    def to_json(self) -> dict[str, Any]:
        """Flat but for lists and the memory."""
        ranks = {
            f"{name}_ms_p{rank}": value
            for name, values in (("ttft", self.ttft_ms), ("tpot", self.tpot_ms))
            for rank, value in zip(RANKS, values, strict=True)
        }
        positions = self.accept_rate_by_position
        return {
            **ranks,
            "accept_length": self.accept_length,
            "accept_rate": self.accept_rate,
            "accept_rate_by_position": None if positions is None else list(positions),
            "cycle_ms": self.cycle_ms,
            "cycle_parts_ms": dict(self.cycle_parts),
            "energy_j_per_token": self.energy_j_per_token,
            "launch_s": self.launch_s,
            "gpu_memory_gib": None if self.memory is None else vars(self.memory),
        }


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
        """Held against the reference with an interval."""
        return self.verdict in (FASTER, SLOWER, SAME)

    def to_json(self) -> dict[str, Any]:
        """Flat, with intervals as objects."""
        return {
            "run": self.run,
            **columns(self.concurrency),
            "what": self.what,
            "configuration": self.configuration,
            "tok_s": _interval_json(self.tok_s),
            "ratio": _interval_json(self.ratio),
            "verdict": self.verdict,
            **self.figures.to_json(),
        }


def speed_cells(row: Row) -> list[str]:
    """The row in the table of speeds."""
    tok_s, figures = row.tok_s, row.figures
    return [
        row.run,
        interval(tok_s.value, tok_s.low, tok_s.high) if tok_s else number(None),
        ratio(row.ratio),
        _ranks(figures.ttft_ms, 1),
        _ranks(figures.tpot_ms, 2),
        number(figures.accept_length, 2),
        duration(figures.launch_s),
        row.verdict,
    ]


def list_reasons(row: Row) -> list[tuple[str, str]]:
    """(name, words) of what lies behind the speed, as far as it is known."""
    figures = row.figures
    told = []
    if figures.accept_rate is not None:
        told.append(("accept rate", number(figures.accept_rate, 3)))
    if figures.accept_rate_by_position:
        rates = " ".join(number(rate, 2) for rate in figures.accept_rate_by_position)
        told.append(("by position", rates))
    if figures.cycle_ms is not None:
        told.append(("cycle", _cycle(figures)))
    if figures.energy_j_per_token is not None:
        told.append(("energy per token", f"{number(figures.energy_j_per_token, 3)} J"))
    if figures.memory is not None and (words := figures.memory.words()):
        told.append(("GPU memory, GiB", words))
    return told


def _cycle(figures: RowFigures) -> str:
    """`8.13 ms; by the model 8.24: 3.19 a plain decode step + 4.28 draft steps + ...`."""
    words = f"{number(figures.cycle_ms, 2)} ms"
    parts = [(name, ms) for name, ms in figures.cycle_parts if ms > 0]
    if not parts:
        return words
    told = " + ".join(f"{number(ms, 2)} {_PARTS.get(name, name)}" for name, ms in parts)
    return f"{words}; by the model {number(sum(ms for _, ms in parts), 2)}: {told}"


def _ranks(values: Percentiles, digits: int) -> str:
    if values == NONE:
        return MISSING
    return "/".join(number(value, digits) for value in values)


def _interval_json(bounds: Interval | None) -> dict[str, float | None] | None:
    return None if bounds is None else bounds.to_json()
