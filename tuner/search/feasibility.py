"""Which points would not even run, judged by those that did not."""

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np

from tuner.config.point import Point
from tuner.search.encoding import PLACEMENT, EncodedSpace, Floats, Indices, Mask
from tuner.search.observation import Observation

OF_SIZE = frozenset({"OOM", "GRAPH_CAPTURE"})
"""Failures that settings of the communication have no part in."""
OF_SETTINGS = frozenset({"HANG"})
"""Failures that the size of a tree has no part in."""


def chance_of_running(coded: EncodedSpace, told: Mapping[Point, Observation]) -> Floats:
    """For every point, 0 where it shares all that may have been to blame for a failure.

    Suspects of a failed launch are its settings, alone and by two, and its size ("as large or
    larger"), less those with which a point has run. A point's chance is the share of suspects
    that it does not have.
    """
    rows = {
        outcome: [
            coded.index[p] for p, v in told.items() if v.outcome == outcome and p in coded.index
        ]
        for outcome in ("ok", "infeasible")
    }
    ran: Indices = np.array(rows["ok"], dtype=np.int64)
    chance = np.ones(len(coded.points))
    for row in rows["infeasible"]:
        label = (told[coded.points[row]].reason or "").partition(":")[0]
        suspects = [each for each in _suspects(coded, row, label) if not each[0][ran].any()]
        if suspects:
            masks, weights = zip(*suspects, strict=True)
            chance *= 1 - np.average(np.array(masks), axis=0, weights=weights)
    return chance


def _suspects(coded: EncodedSpace, row: int, label: str) -> Iterator[tuple[Mask, float]]:
    """Points that share one thing with a failed one, and the weight of the suspicion."""
    places = range(len(coded.names))
    if label not in OF_SIZE:
        yield from ((coded.like(row, [place]), 1.0) for place in places)
        yield from ((coded.like(row, pair), 0.5) for pair in combinations(places, 2))
    if label not in OF_SETTINGS:
        longer = coded.steps >= coded.steps[row]
        larger = coded.tokens >= coded.tokens[row]
        placed = coded.like(row, [p for p in places if coded.names[p] == PLACEMENT])
        yield longer, 1.0
        yield larger, 1.0
        yield larger & placed, 0.5
        yield larger & longer & placed, 0.5
