"""Several launches of the baseline: what a candidate is held against, and how surely."""

import math

import numpy as np
import pytest

from tests.factories import World
from tuner.metrics.drift import Baselines, Launched
from tuner.metrics.statistics import speedup


def launches(
    *speeds: tuple[float, float], noise: float = 0.001, world: World | None = None
) -> Baselines:
    """Of (time, speed) pairs, all with the prompts of one world."""
    world = world or World(1, 16, noise, noise)
    found = [Launched(at, world.windows(3, speed)) for at, speed in speeds]
    return Baselines(tuple(found), "decode_tok_s")


def test_a_machine_that_slows_down_is_corrected_for() -> None:
    """Otherwise every late candidate looks slower than it is, and an early one is recommended."""
    world = World(9, 16, 0.001, 0.001)
    known = launches((0, 1.0), (100, 0.9), world=world)
    assert known.drifts and known.drift is not None
    assert known.drift.value == pytest.approx(0.9, rel=0.005)
    for at, speed in ((0, 1.1), (50, 1.1 * math.sqrt(0.9)), (100, 1.1 * 0.9)):
        measured = Launched(at, world.windows(3, speed))
        ratio = known.speedup(measured)
        assert ratio is not None and ratio.low is not None and ratio.high is not None
        assert ratio.value == pytest.approx(1.1, rel=0.005)
        assert ratio.low < 1.1 < ratio.high


def test_two_candidates_are_compared_as_at_one_time() -> None:
    """Otherwise the one that ran before the machine slowed down beats its equal."""
    world = World(7, 16, 0.001, 0.001)
    known = launches((0, 1.0), (100, 0.9), world=world)
    early, late = Launched(0, world.windows(3, 1.1)), Launched(100, world.windows(3, 0.99))
    ratio = known.ratio(early, late)
    assert ratio is not None
    assert ratio.value == pytest.approx(1.0, rel=0.005)
    raw = speedup(early.windows, late.windows, "decode_tok_s")
    assert raw is not None and raw.value == pytest.approx(0.9, rel=0.005)


def test_noise_is_no_drift() -> None:
    """Otherwise each run is corrected by its noise, which makes it worse."""
    found = []
    for seed in range(200):
        world = World(seed, 16, 0.01, 0.01)
        known = launches((0, 1.0), (50, 1.0), (100, 1.0), world=world)
        found.append(known.drifts)
        if not known.drifts:
            assert known.weights(3.0) == pytest.approx((1 / 3,) * 3)
    assert sum(found) <= 0.08 * len(found)


@pytest.mark.parametrize(
    ("at", "weights"),
    [
        (-5, (1, 0, 0)),
        (0, (1, 0, 0)),
        (10, (0.5, 0.5, 0)),
        (20, (0, 1, 0)),
        (60, (0, 0.5, 0.5)),
        (100, (0, 0, 1)),
        (999, (0, 0, 1)),
    ],
)
def test_the_baseline_is_interpolated_between_the_launches_around(
    at: float, weights: tuple[float, ...]
) -> None:
    """Otherwise a candidate is held against a launch that was hours away."""
    known = launches((0, 1.0), (20, 0.95), (100, 0.9))
    assert known.weights(at) == pytest.approx(weights)


def test_launches_in_one_second_are_not_divided_by_zero() -> None:
    """Otherwise a fast machine ends its report with a traceback."""
    assert launches((5, 1.0), (5, 0.9)).weights(5) == (1.0, 0.0)
    assert launches((5, 1.0), (5, 0.9)).weights(6) == (0.0, 1.0)


def test_launches_that_differ_widen_the_interval_of_a_speedup() -> None:
    """Otherwise a gain that another launch of the same server would have taken back is called
    sure."""
    world = World(9, 16, 0.001, 0.001)
    quiet = launches((0, 1.0), (50, 1.0), (99, 1.0), world=world)
    loud = launches((0, 1.0), (50, 1.03), (99, 1.0), world=world)
    measured = Launched(30, world.windows(3, 1.02))
    widths = []
    for known in (quiet, loud):
        ratio = known.speedup(measured)
        assert ratio is not None and ratio.low is not None and ratio.high is not None
        widths.append(ratio.high - ratio.low)
    assert loud.between is not None
    assert math.sqrt(loud.between.variance) == pytest.approx(0.017, rel=0.1)
    assert widths[1] > 10 * widths[0]


def test_the_mean_of_several_baselines_is_nearer_to_the_truth_than_one() -> None:
    """Otherwise the launches were for nothing."""
    errors: list[list[float]] = [[], []]
    for seed in range(100):
        world = World(seed, 16, 0.01, 0.001)
        below = [Launched(n, world.windows(3)) for n in range(3)]
        above = Launched(1, world.windows(3))
        for place, known in enumerate((below[:1], below)):
            ratio = Baselines(tuple(known), "decode_tok_s").speedup(above)
            assert ratio is not None
            errors[place].append(math.log(ratio.value))
    assert np.std(errors[1]) < 0.95 * np.std(errors[0])


def test_one_launch_is_the_plain_ratio() -> None:
    """Otherwise old runs read otherwise than before."""
    world = World(3, 16, 0.01, 0.01)
    known = launches((0, 1.0), world=world)
    above = Launched(5, world.windows(3, 1.1))
    expected = speedup(known.launches[0].windows, above.windows, "decode_tok_s")
    assert known.speedup(above) == expected
    assert (known.drift, known.between, known.drifts) == (None, None, False)
