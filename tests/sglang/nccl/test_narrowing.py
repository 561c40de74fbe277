"""Which points are not launched: one too many is a configuration that nobody ever tries."""

from collections.abc import Sequence

import pytest

from tuner.config.point import Point
from tuner.core.errors import Failure
from tuner.server.all_reduce import CommResults, Message, Setting, SettingResult
from tuner.sglang.nccl.screening import screened_apart
from tuner.sglang.nccl.selection import (
    OFF_PATH,
    SAME,
    SLOWER,
    SLOWER_HERE,
    Carrier,
    Narrowing,
    Timing,
    narrowing,
    timed_shares,
)

MESSAGES = (Message(2, 0, 2, ("verify",)), Message(16, 0, 16, ("verify",)))


def point(tokens: int = 2, flags: tuple[tuple[str, bool], ...] = (), **env: str) -> Point:
    return Point(tokens - 1, 1, tokens, 1, tuple(sorted(env.items())), flags)


def timing(**us: Sequence[float] | Failure) -> Timing:
    """`LL=(5.0, 40.0)`: NCCL_PROTO=LL at the two sizes; `unset` is no setting."""
    measured = []
    for name, found in us.items():
        setting = Setting(() if name == "unset" else (("NCCL_PROTO", name),))
        if isinstance(found, Failure):
            measured.append(SettingResult(setting, failure=found, message="as told"))
        else:
            measured.append(SettingResult(setting, tuple((each, each * 1.001) for each in found)))
    results = CommResults(MESSAGES, tuple(measured), "fake", "fake", 4)
    return Timing(results, [1], screened_apart(results))


def through(kind: Carrier, points: Sequence[Point], told: Timing | None = None) -> Narrowing:
    return narrowing(points, lambda _: kind, told)


PLAIN, LL, SIMPLE = point(), point(NCCL_PROTO="LL"), point(NCCL_PROTO="Simple")


def test_where_nccl_carries_nothing_the_plainest_setting_stands_for_all() -> None:
    found = through("own kernels", [LL, PLAIN, point(3, NCCL_PROTO="LL")])
    assert found.reasons == {LL: OFF_PATH}
    assert found.stand_ins == {LL: PLAIN}


def test_the_benchmark_is_followed_where_nccl_may_carry() -> None:
    told = timing(unset=(10, 10), LL=(5, 5), Simple=(10.1, 10.1))
    found = through("NCCL", [PLAIN, LL, SIMPLE], told)
    assert found.reasons == {PLAIN: SLOWER, SIMPLE: SLOWER}
    same = through("NCCL", [PLAIN, SIMPLE], timing(unset=(10, 10), Simple=(10.1, 10.1)))
    assert (same.reasons, same.stand_ins) == ({SIMPLE: SAME}, {SIMPLE: PLAIN})


@pytest.mark.parametrize("kind", ["another", "NCCL"])
def test_nothing_is_left_out_of_what_was_not_timed(kind: Carrier) -> None:
    told = None if kind == "NCCL" else timing(unset=(10, 10), LL=(5, 5))
    assert through(kind, [PLAIN, LL], told) == Narrowing()
    untimed = point(NCCL_ALGO="Ring")
    left = through("NCCL", [PLAIN, LL, untimed], timing(unset=(10, 10), LL=(5, 5)))
    assert left.reasons == {PLAIN: SLOWER}


def test_a_loser_stays_where_the_winner_cannot_be_launched() -> None:
    """Another tree's winner is no reason: it may be out of memory there."""
    told = timing(unset=(10, 10), LL=(5, 5), Simple=(10.1, 10.1))
    assert through("NCCL", [PLAIN, SIMPLE, point(3, NCCL_PROTO="LL")], told).reasons == {}


def test_a_setting_is_judged_by_the_sizes_of_its_tree() -> None:
    """LL wins at two tokens and loses at sixteen: each tree keeps its own winner."""
    told = timing(unset=(10, 20), LL=(5, 40))
    large = [point(16), point(16, NCCL_PROTO="LL")]
    between = [point(6), point(6, NCCL_PROTO="LL")]
    found = through("NCCL", [PLAIN, LL, *large, *between], told)
    assert found.reasons == {PLAIN: SLOWER_HERE, large[1]: SLOWER_HERE}
    shares = timed_shares([LL, *large], lambda _: "NCCL", told)
    assert shares[LL] == shares[large[0]] == 0
    assert shares[large[1]] > 0.2


def test_what_hangs_is_not_launched_but_something_is() -> None:
    told = timing(unset=(10, 10), LL=Failure.HANG)
    assert through("NCCL", [PLAIN, LL], told).reasons == {
        LL: "all-reduces ended in HANG (comm.json)"
    }
    assert through("NCCL", [LL], told) == Narrowing()
    # The plainest that runs stands for the others.
    assert through("own kernels", [LL, SIMPLE], told).stand_ins == {LL: SIMPLE}
