"""Whether a server kept up with requests that came at a rate, whoever else waited.

A server that keeps up is done with the last request about as long after it came as with any other
one. One that does not has a queue by then, and every request waits longer than the one before it.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from tuner.config.load_level import Rate, parse_level
from tuner.metrics.samples import RequestSample, Window

MAX_EXCESS = 1.1
"""Requests that came for one that was answered in the same time, up to which a server keeps up."""
MAX_GROWTH = 1.5
"""Of the median time of a window's last third over its first third: batches fill at first."""
MIN_ARRIVALS = 12
"""In a window; of fewer a third is no more than its luck (tests/metrics/test_request_rate.py)."""

CAME, SERVED = "arrival_request_s", "served_request_s"
NAMES = (CAME, SERVED, "wait_growth")
TURNS = "turns_per_arrival"


def overload_figures(windows: Sequence[Window]) -> dict[str, float | None]:
    """The metrics of a level at which requests came at a rate, all None for a closed loop.

    `arrival_request_s`: arrivals a second, as they were drawn. `served_request_s`: the same
    arrivals over the time until the last one was answered, less the time that a quick one takes
    (the lower quartile); at most the rate at which they came. `wait_growth`: the median time from
    arrival to the last answer of a window's last third of conversations, over that of its first
    third. Of conversations all times are by turn, since a long one takes longer on any server. An
    arrival is a conversation, of `turns_per_arrival` requests. Windows of fewer than MIN_ARRIVALS
    arrivals are left out of the others.
    """
    came = came_s = done_s = 0.0
    first, last = list[float](), list[float]()
    every = [_conversations(window.samples) for window in windows]
    for talks in every:
        if len(talks) < MIN_ARRIVALS or talks[-1].due <= talks[0].due:
            continue
        waits = [(talk.ended - talk.due) / talk.turns for talk in talks]
        span, quick = talks[-1].due - talks[0].due, float(np.percentile(waits, 25))
        whole = max(talk.ended - quick * talk.turns for talk in talks) - talks[0].due
        came, came_s, done_s = came + len(talks) - 1, came_s + span, done_s + max(span, whole)
        third = len(talks) // 3
        first, last = first + waits[:third], last + waits[-third:]
    turns = [talk.turns for talks in every for talk in talks]
    found = {TURNS: sum(turns) / len(turns) if turns else None}
    if not came:
        return {**dict.fromkeys(NAMES), **found}
    growth = median(last) / median(first) if median(first) > 0 else None
    return {**dict(zip(NAMES, (came / came_s, came / done_s, growth), strict=True)), **found}


def overloaded_at(metrics: Mapping[str, Mapping[str, Any]], level: str) -> bool:
    """Whether a ledger line's metrics, by level, show an overload at that one.

    Not at a rate where the same server served a higher one: then it was a window's luck.
    """
    figures = metrics[level]
    return is_overloaded(figures) and served_elsewhere(metrics, level) < figures[CAME]


def served_elsewhere(metrics: Mapping[str, Mapping[str, Any]], level: str) -> float:
    """Conversations or requests a second that the same server answered at another rate, the most;
    0 without one: at another concurrency the cap is another."""
    if not isinstance(parse_level(level), Rate):
        return 0.0
    return max((each.get(SERVED) or 0.0 for at, each in metrics.items() if at != level), default=0)


def reached_cap(metrics: Mapping[str, Any]) -> bool:
    """Whether most of the waiting for a first token was for a stream to be free."""
    return (metrics.get("queue_ms_p90") or 0.0) > 0.5 * (metrics.get("ttft_ms_p90") or 0.0)


def is_overloaded(metrics: Mapping[str, Any]) -> bool:
    """Whether a level's metrics by themselves show a queue that grew through its windows."""
    came, served, growth = (metrics.get(name) for name in NAMES)
    return (
        came is not None
        and served is not None
        and growth is not None
        and came > MAX_EXCESS * served
        and growth > MAX_GROWTH
    )


def client_lateness(windows: Sequence[Window]) -> list[float]:
    """Seconds from coming to sending of those for whom a stream was free: the client's own."""
    late: list[float] = []
    for window in windows:
        due = np.array([each.due for each in window.samples if each.due is not None])
        sent = np.array([each.sent for each in window.samples if each.due is not None])
        began = np.sort([each.sent for each in window.samples])
        ended = np.sort([each.ended for each in window.samples])
        streams = np.searchsorted(began, due) - np.searchsorted(ended, due)
        in_line = np.searchsorted(np.sort(due), due) - np.searchsorted(np.sort(sent), due)
        free = (streams < window.concurrency) & (in_line <= 0)
        late += (sent - due)[free].tolist()
    return late


class _Talk(NamedTuple):
    due: float
    ended: float
    """When its last answer did."""
    turns: int


def _conversations(samples: Sequence[RequestSample]) -> list[_Talk]:
    """In the order of coming; a request that nothing follows is one too."""
    talks: list[_Talk] = []
    for sample in samples:
        if sample.due is not None:
            talks.append(_Talk(sample.due, sample.ended, 1))
        elif talks:
            last = talks[-1]
            talks[-1] = _Talk(last.due, max(last.ended, sample.ended), last.turns + 1)
    return sorted(talks)
