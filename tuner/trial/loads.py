"""How a level's requests are sent, and which of them warm the server up before."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from tuner.measure.client import Load
from tuner.sweep.level import Level
from tuner.sweep.model import Sweep


class Turn(Protocol):
    """A prompt, or the request that it becomes."""

    @property
    def follows(self) -> bool: ...


_Turn = TypeVar("_Turn", bound=Turn)


def load_at(sweep: Sweep, level: Level) -> Load:
    """How a window's requests are sent at one concurrency."""
    workload = sweep.workload
    return Load(
        concurrency=workload.streams(level),
        output_tokens=workload.output_tokens,
        temperature=workload.temperature,
        ignore_eos=workload.ignore_eos,
        request_timeout_s=sweep.timeouts.request,
        request_rate=workload.rate(level),
        seed=workload.seed,
    )


def warm_up(sweep: Sweep, level: Level, requests: Sequence[_Turn]) -> tuple[_Turn, ...]:
    """What is sent before the level's windows, of `requests`, round and round where they are fewer.

    Every stream gets one: kernels are compiled for the batch that they first see, and with fewer
    requests than streams that would be the first window's.
    """
    asked = sweep.measure.warmup_requests
    if asked and sweep.workload.rate(level) is None:
        asked = max(asked, _filling(requests, sweep.workload.streams(level)))
    return tuple(requests[index % len(requests)] for index in range(asked))


def _filling(requests: Sequence[Turn], streams: int) -> int:
    """The first so many requests have one for every stream: a conversation's turns share one."""
    begin = [at for at, request in enumerate(requests) if not request.follows]
    return begin[min(streams, len(begin)) - 1] + 1
