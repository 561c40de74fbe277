"""What a benchmark of all-reduces says of single points, at the sizes that they send."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tuner.comm.carrier import Carrier
from tuner.comm.messages import token_counts
from tuner.comm.results import CommResults, Measured
from tuner.comm.screening import Screened
from tuner.comm.settings import Setting
from tuner.sweep.point import Point

CLEARLY = 0.05
"""How much slower a setting must be at a point's sizes alone; at every size of the benchmark, 3 %
are enough (`screening.THRESHOLD`)."""
SHARE, MOST = 0.3, 0.3
"""ASSUMED, of all-reduces in a cycle under the best setting; and the most that is expected of a
worse one, as a share of a cycle. Launches soon say more."""


@dataclass(frozen=True)
class Timing:
    """A benchmark beside the points that it was made for."""

    results: CommResults
    levels: Sequence[int]
    """Concurrency."""
    screened: Screened
    """What is worth a server, over all sizes (`screened_apart`)."""
    _ratios: dict[tuple[Setting, Setting, int], bool] = field(default_factory=dict)

    @cached_property
    def rows(self) -> Mapping[Setting, Measured]:
        """Settings that ran."""
        return {each.setting: each for each in self.results.usable}

    def beats(self, one: Setting, other: Setting, point: Point) -> bool:
        """`one` is clearly faster than `other` at every size that the point sends."""
        counts = token_counts([point], self.levels, self.results.tp)
        places = {p for part, sizes in counts.items() for n in sizes for p in self._near(part, n)}
        return bool(places) and all(self._is_faster(one, other, place) for place in places)

    def share(self, point: Point) -> float | None:
        """What the point's verify passes take beside the fastest setting's, as a share of a cycle;
        None where its setting was not timed."""
        row = self.rows.get(Setting.of(point))
        if row is None:
            return None
        counts = token_counts([point], self.levels, self.results.tp)["verify"]
        places = [place for tokens in counts for place in self._near("verify", tokens)]
        logs = [math.log(row.latency(place).value / self._lowest[place]) for place in places]
        return min(MOST, SHARE * (math.exp(math.fsum(logs) / len(logs)) - 1)) if logs else None

    @cached_property
    def _lowest(self) -> list[float]:
        """The lowest latency at each size."""
        count = range(len(self.results.messages))
        return [min(row.latency(place).value for row in self.rows.values()) for place in count]

    def _near(self, part: str, tokens: int) -> set[int]:
        """The messages of that part with so many tokens, or those on both sides of them."""
        sizes = [
            (message.tokens, place)
            for place, message in enumerate(self.results.messages)
            if part in message.parts
        ]
        below = max((each for each in sizes if each[0] <= tokens), default=None)
        above = min((each for each in sizes if each[0] >= tokens), default=None)
        return {each[1] for each in (below, above) if each is not None}

    def _is_faster(self, one: Setting, other: Setting, place: int) -> bool:
        key = one, other, place
        if key not in self._ratios:
            ratio = self.rows[other].ratio(self.rows[one], place)
            self._ratios[key] = (
                ratio.low is not None and ratio.low > 1 and ratio.value >= 1 + CLEARLY
            )
        return self._ratios[key]


def timed_shares(
    points: Iterable[Point], carrier: Callable[[Point], Carrier], timing: Timing | None
) -> Mapping[Point, float]:
    """What points' all-reduces add to their cycles beside the fastest setting's, as a share.

    0 where NCCL carries nothing; without a point that nothing is known of.
    """
    found = {}
    for point in points:
        kind = carrier(point)
        if kind == "own kernels":
            found[point] = 0.0
        elif kind == "NCCL" and timing is not None and (share := timing.share(point)) is not None:
            found[point] = share
    return found
