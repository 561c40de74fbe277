"""Which points need no launch: settings of NCCL that do nothing, are alike, lose or do not run."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.comm.carrier import Carrier
from tuner.comm.screening import Screened
from tuner.comm.settings import Setting, without_nccl
from tuner.comm.timed import Timing
from tuner.sweep.point import Point
from tuner.sweep.space import Space

OFF_PATH = "NCCL does not carry their all-reduces, so one NCCL setting is enough"
SAME = "all-reduces cannot be told apart from those under another setting (comm.json)"
SLOWER = "all-reduces are slower at every size than under another setting (comm.json)"
SLOWER_HERE = "all-reduces of their sizes are slower than under another setting (comm.json)"


@dataclass(frozen=True)
class Narrowing:
    """What is not launched; everything else is."""

    reasons: dict[Point, str] = field(default_factory=dict)
    """Points that are not launched, each with the reason."""
    stand_ins: dict[Point, Point] = field(default_factory=dict)
    """Those of them that another point stands for; the rest lost."""

    def of(self, space: Space) -> Space:
        """The space that is left."""
        lost = {p: why for p, why in self.reasons.items() if p not in self.stand_ins}
        return space.merged(self.stand_ins, self.reasons).without(lost)

    @property
    def counts(self) -> Mapping[str, int]:
        """Reason -> points, as decisions carry it."""
        return dict(Counter(self.reasons.values()))


def narrowing(
    points: Sequence[Point], carrier: Callable[[Point], Carrier], timing: Timing | None
) -> Narrowing:
    """What need not be launched of `points`. `timing` is None where nothing was timed.

    A point is only left out where the one that stands for it, or beats it, is in the space and
    differs in NCCL settings alone, or where all-reduces did not run under its setting. Nothing is
    left out where nothing would be left.
    """
    found = Narrowing()
    for family in families(points):
        kind = carrier(family[0])
        if kind == "own kernels":
            _merge(family, timing, found)
        elif kind == "NCCL" and timing is not None:
            _screen(family, timing.screened, found)
            _hold_against([each for each in family if each not in found.reasons], timing, found)
    return Narrowing() if len(found.reasons) == len(points) else found


def families(points: Iterable[Point]) -> list[list[Point]]:
    """Points that differ in NCCL settings alone, together."""
    found: dict[Point, list[Point]] = {}
    for point in points:
        found.setdefault(without_nccl(point), []).append(point)
    return list(found.values())


def undecided(points: Iterable[Point], carrier: Callable[[Point], Carrier]) -> list[Point]:
    """Points whose NCCL setting is for the benchmark to judge: there are others to hold it
    against, and NCCL may carry their all-reduces."""
    told = [f for f in families(points) if len(f) > 1 and carrier(f[0]) == "NCCL"]
    return [point for family in told for point in family]


def _merge(family: Sequence[Point], timing: Timing | None, found: Narrowing) -> None:
    """One of them is enough: the plainest, of those that are not known not to run."""
    failed = {} if timing is None else timing.screened.failed
    running = [point for point in family if Setting.of(point) not in failed]
    chosen = min(running or family, key=lambda point: len(point.env))
    for point in family:
        if point != chosen:
            _leave_out(found, point, OFF_PATH, chosen)


def _screen(family: Sequence[Point], screened: Screened, found: Narrowing) -> None:
    """By what holds at every size."""
    by_setting = {Setting.of(point): point for point in family}
    has_winner = any(kept.setting in by_setting for kept in screened.keep)
    measured = {*screened.ranked()}
    for setting, point in by_setting.items():
        if setting not in measured:
            continue
        chosen = screened.representative(setting)
        if (failure := screened.failed.get(setting)) is not None:
            _leave_out(found, point, f"all-reduces ended in {failure} (comm.json)")
        elif chosen is None and has_winner:
            _leave_out(found, point, SLOWER)
        elif chosen is not None and chosen != setting and chosen in by_setting:
            _leave_out(found, point, SAME, by_setting[chosen])


def _hold_against(left: Sequence[Point], timing: Timing, found: Narrowing) -> None:
    """By what holds at the sizes of these points, which differ in NCCL settings alone."""
    timed = {Setting.of(point): point for point in left if Setting.of(point) in timing.rows}
    for setting, point in timed.items():
        if any(timing.beats(other, setting, point) for other in timed if other != setting):
            _leave_out(found, point, SLOWER_HERE)


def _leave_out(found: Narrowing, point: Point, why: str, chosen: Point | None = None) -> None:
    found.reasons[point] = why
    if chosen is not None:
        found.stand_ins[point] = chosen
