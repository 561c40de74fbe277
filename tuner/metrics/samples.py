"""What the load client brings home: raw times and counts, from which every number is computed."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

# What an engine itself counted while a window was measured, to hold the client's figures against.
#
# SGLang folds its counts into /server_info once in some decode steps (`--decode-log-interval`), and
# empties them with the prefix cache, as each window begins.


@dataclass(frozen=True)
class EngineCounters:
    """The server's own figures just after a window. None: a rank does not say."""

    ranks: int
    """Data-parallel ranks that the server was started with."""
    accept_lengths: tuple[float | None, ...]
    """Of each rank that answered, bonus included, since the window began."""
    throughputs: tuple[float | None, ...]
    """Of each rank that answered: tokens per second in its last decode steps."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "EngineCounters":
        """What `to_json` wrote. Raises TypeError, KeyError or ValueError for anything else."""
        ranks = data["ranks"]
        if isinstance(ranks, bool) or not isinstance(ranks, int):
            raise TypeError("ranks is no whole number")
        return cls(ranks, _numbers(data["accept_lengths"]), _numbers(data["throughputs"]))

    def to_json(self) -> dict[str, Any]:
        """As samples files have it."""
        return {
            "ranks": self.ranks,
            "accept_lengths": list(self.accept_lengths),
            "throughputs": list(self.throughputs),
        }


def _numbers(values: Sequence[Any]) -> tuple[float | None, ...]:
    for value in values:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise TypeError(f"{value!r} is no number")
    return tuple(values)


# What NVML said of one GPU while a window was measured.
#
# The first reading comes just before the load and the last just after it, so both may show a GPU at
# rest: they count for energy, which is a difference of two, and not for clocks, reasons and power.


@dataclass(frozen=True)
class GpuTrace:
    """One GPU's readings in the order of time, one entry each. None: NVML does not say."""

    gpu: str
    """Its name in CUDA_VISIBLE_DEVICES: an index or a UUID."""
    at: tuple[float, ...]
    """Seconds since just before the window's first request."""
    sm_mhz: tuple[int | None, ...]
    temperature_c: tuple[int | None, ...]
    power_w: tuple[float | None, ...]
    """Of the board; NVML's mean over the last second on GPUs since Ampere."""
    reasons: tuple[int | None, ...]
    """Bits of nvml.h, nvmlClocksEventReasons: why the clock is not higher."""
    energy_j: tuple[float | None, ...]
    """Of the board, since the driver was loaded."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "GpuTrace":
        """What `to_json` wrote. Raises TypeError, KeyError or ValueError for anything else."""
        columns = {name: tuple(data[name]) for name in _COLUMNS}
        if not isinstance(data["gpu"], str) or set(data) != {"gpu", *_COLUMNS}:
            raise ValueError("a GPU's readings have other keys")
        if len({len(column) for column in columns.values()}) > 1:
            raise ValueError("a GPU's readings differ in length")
        for value in (each for column in columns.values() for each in column if each is not None):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{value!r} is no number")
        if not all(bits is None or isinstance(bits, int) for bits in columns["reasons"]):
            raise TypeError("reasons are no bits")
        return cls(gpu=data["gpu"], **columns)

    def to_json(self) -> dict[str, Any]:
        """As samples files have it."""
        return {"gpu": self.gpu, **{name: list(getattr(self, name)) for name in _COLUMNS}}

    @property
    def energy(self) -> float | None:
        """Joules from the first reading to the last; None where the counter does not tell."""
        if len(self.energy_j) < 2 or self.energy_j[0] is None or self.energy_j[-1] is None:
            return None
        spent = self.energy_j[-1] - self.energy_j[0]
        return spent if spent >= 0 else None  # the driver was loaded anew

    @property
    def loaded(self) -> range:
        """Which readings are of a GPU under load."""
        return range(1, len(self.at) - 1)


_COLUMNS = tuple(field.name for field in fields(GpuTrace) if field.name != "gpu")


@dataclass(frozen=True)
class Request:
    """One prompt as it is sent. Exactly one of `text` and `input_ids` is set."""

    prompt_id: str
    kind: str
    """chat, code, math, summarise, or what the user's own file says."""
    text: str | None = None
    input_ids: tuple[int, ...] | None = None
    follows: bool = False
    """A later turn of the conversation that the request before it is of."""


@dataclass(frozen=True)
class SpecCounts:
    """The engine's counts of one request's speculation.

    `correct_drafts` are accepted draft tokens without the bonus token, `verify_ct` the target's
    verify passes. `histogram[k]` is the number of verifies that accepted k drafts, None where the
    release does not report it.
    """

    verify_ct: int
    correct_drafts: int
    proposed_drafts: int | None = None
    histogram: tuple[int, ...] | None = None


@dataclass(frozen=True)
class RequestSample:
    """One request as the client saw it. Times are seconds since the window began."""

    prompt_id: str
    kind: str
    sent: float
    chunk_times: tuple[float, ...]
    """Arrival of each chunk that brought tokens."""
    chunk_tokens: tuple[int, ...]
    """Tokens that each of those chunks brought; a chunk can hold several."""
    ended: float
    """When the stream ended or broke."""
    finish_reason: str | None
    """`length`, `stop`, `abort`; None where the stream ended without one."""
    error: str | None
    """Why the request failed or was cut short; None for a complete one."""
    timed_out: bool
    prompt_tokens: int | None
    engine_tokens: int | None
    """Completion tokens by the engine's count."""
    requested_tokens: int
    spec: SpecCounts | None
    engine_figures: Mapping[str, Any] = field(default_factory=dict)
    """The engine's own speculative figures (`spec_accept_length`, ...), as it spelled them."""

    due: float | None = None
    """When it came, where requests come at a rate; None in a closed loop, and of later turns."""
    cached_tokens: int | None = None
    """Prompt tokens that the engine's prefix cache had; None where it does not say."""
    output_ids: "array[int] | None" = None
    """The answer's token ids; None where they were not kept, or the server sends none."""
    text: str | None = None
    """The answer itself; None where it was not kept."""

    @property
    def began(self) -> float:
        """When its user began to wait: when it came, or else when it was sent."""
        return self.sent if self.due is None else self.due

    @property
    def tokens(self) -> int:
        """Completion tokens by the client's count."""
        return sum(self.chunk_tokens)


@dataclass(frozen=True)
class Window:
    """One measured stretch of load at one concurrency."""

    concurrency: int
    wall_s: float
    """From the first request's sending to the last stream's end."""
    client_cpu_s: float
    """CPU seconds that the client itself spent in it."""
    samples: tuple[RequestSample, ...]
    stopped: str | None = None
    """Why the rest of the window was not sent, None where all of it was."""
    gpus: tuple[GpuTrace, ...] | None = None
    """What NVML told of the server's GPUs meanwhile; None where it was not asked, or failed."""
    engine: EngineCounters | None = None
    """What the server itself counted; None where it was not asked, or did not say."""
    stood_s: float = 0.0
    """The longest time for which the client itself stood still (Ctrl-Z, a paused container, a
    machine that has no time for it); not kept in files."""
