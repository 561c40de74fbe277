"""Whether a server kept up with requests that came at a rate, whoever else waited.

A server that keeps up is done with the last request about as long after it came as with any other
one. One that does not has a queue by then, and every request waits longer than the one before it.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from tuner.measure.samples import RequestSample, Window

MAX_EXCESS = 1.1
"""Requests that came for one that was answered in the same time, up to which a server keeps up."""
MAX_GROWTH = 1.5
"""Of the median time of a window's last third over its first third: batches fill at first."""
MIN_ARRIVALS = 6
"""In a window; fewer have no thirds to be held against each other."""

NAMES = ("arrival_request_s", "served_request_s", "wait_growth")


def overload_figures(windows: Sequence[Window]) -> dict[str, float | None]:
    """The metrics of a level at which requests came at a rate, all None for a closed loop.

    `arrival_request_s`: arrivals a second, as they were drawn. `served_request_s`: the same
    arrivals over the time until the last one was answered, less the time that a quick one takes
    (the lower quartile); at most the rate at which they came. `wait_growth`: the median time from
    arrival to the last answer of a window's last third of conversations, over that of its first
    third. Windows of fewer than MIN_ARRIVALS arrivals are left out.
    """
    came = came_s = done_s = 0.0
    first, last = list[float](), list[float]()
    for window in windows:
        talks = _conversations(window.samples)
        if len(talks) < MIN_ARRIVALS or talks[-1][0] <= talks[0][0]:
            continue
        waits = [ended - due for due, ended in talks]
        span = talks[-1][0] - talks[0][0]
        whole = max(ended for _, ended in talks) - talks[0][0] - float(np.percentile(waits, 25))
        came, came_s, done_s = came + len(talks) - 1, came_s + span, done_s + max(span, whole)
        third = len(talks) // 3
        first, last = first + waits[:third], last + waits[-third:]
    if not came:
        return dict.fromkeys(NAMES)
    growth = median(last) / median(first) if median(first) > 0 else None
    return dict(zip(NAMES, (came / came_s, came / done_s, growth), strict=True))


def is_overloaded(metrics: Mapping[str, Any]) -> bool:
    """Whether a level's metrics show a queue that grew through its windows."""
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


def _conversations(samples: Sequence[RequestSample]) -> list[tuple[float, float]]:
    """(when it came, when its last answer ended), in the order of coming."""
    talks: list[tuple[float, float]] = []
    for sample in samples:
        if sample.due is not None:
            talks.append((sample.due, sample.ended))
        elif talks:
            talks[-1] = (talks[-1][0], max(talks[-1][1], sample.ended))
    return sorted(talks)
