"""What the load client brings home: raw times and counts, from which every number is computed."""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.measure.counters import EngineCounters
from tuner.measure.gpu_trace import GpuTrace


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
