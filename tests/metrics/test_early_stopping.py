"""A race against worlds of known truth: a wrong early stop costs the answer."""

import pytest

from tests.factories import World, make_sample, make_window
from tuner.metrics.early_stopping import WindowSpread, clearly_slower, half_width
from tuner.metrics.samples import Window
from tuner.metrics.statistics import Metric

REPEATS = 3


def stopped(
    seed: int,
    faster: float,
    by_window: float,
    by_prompt: float = 0.0,
    earlier: int = 3,
    metric: Metric = "output_tok_s",
) -> bool:
    """Whether a candidate is stopped before its last window, judged after each as in a run.

    `earlier` launches have shown how far windows differ; the last of them is the incumbent.
    """
    world = World(seed, 16, by_window, 0.005)
    before = [world.windows(REPEATS) for _ in range(earlier)]
    own = world.windows(REPEATS, faster, by_prompt)
    for count in range(1, REPEATS):
        told = [WindowSpread.of(each, metric) for each in (*before, own[:count])]
        if clearly_slower(own[:count], before[-1], metric, WindowSpread.sum(told)):
            return True
    return False


@pytest.mark.parametrize("by_window", [0.001, 0.01, 0.04])
@pytest.mark.parametrize("earlier", [1, 4])
def test_of_a_thousand_equally_fast_pairs_hardly_one_is_stopped(by_window, earlier) -> None:
    """Otherwise the best configuration is given up on a slow minute of the machine."""
    wrong = sum(stopped(seed, 1.0, by_window, earlier=earlier) for seed in range(1000))
    assert wrong < 20


def test_prompts_that_differ_in_their_ratio_are_no_reason_either() -> None:
    """Otherwise a tree that suits other prompts loses to a chain that it equals."""
    pairs = [stopped(seed, 1.0, 0.01, 0.05, metric="decode_tok_s") for seed in range(400)]
    assert sum(pairs) < 8


@pytest.mark.parametrize(
    ("faster", "by_window", "share"), [(0.9, 0.003, 0.95), (0.9, 0.01, 0.8), (0.75, 0.04, 0.8)]
)
def test_what_is_clearly_slower_is_mostly_stopped(faster, by_window, share) -> None:
    """Otherwise the race saves nothing."""
    assert sum(stopped(seed, faster, by_window) for seed in range(200)) >= share * 200


def test_a_little_slower_is_never_clearly_slower() -> None:
    """Otherwise a race decides between the best two, which is what all windows are for."""
    assert not any(stopped(seed, 0.98, 0.0005) for seed in range(200))


def test_a_cold_first_window_is_held_against_the_others_first_one() -> None:
    """Otherwise every candidate loses to an incumbent whose later windows were warm."""
    world = World(0, 16, 0.0, 0.002)
    cold, warm = world.windows(1, 0.8), world.windows(2)
    spread = WindowSpread.of(world.windows(3), "output_tok_s")
    assert clearly_slower(cold, [*cold, *warm], "output_tok_s", spread) is None
    assert clearly_slower(cold, warm, "output_tok_s", spread) is not None


def test_nothing_is_said_without_the_spread_or_with_few_prompts() -> None:
    few, many = World(0, 6, 0.001, 0.001), World(0, 16, 0.001, 0.001)
    spread = WindowSpread.of(many.windows(3), "output_tok_s")
    slow = many.windows(1, 0.5)
    assert clearly_slower(slow, many.windows(3), "output_tok_s", WindowSpread()) is None
    assert clearly_slower(slow, many.windows(3), "output_tok_s", spread) is not None
    assert clearly_slower(few.windows(1, 0.5), few.windows(3), "output_tok_s", spread) is None
    assert clearly_slower([], many.windows(3), "output_tok_s", spread) is None
    broken = [make_window(make_sample((), (), error="HTTP 500"))]
    assert clearly_slower(broken, many.windows(3), "output_tok_s", spread) is None


def test_the_half_width_is_that_of_whole_windows() -> None:
    """12.7 standard errors to either side with two windows: two that agree are no proof."""
    two = [Window(1, wall, 0.1, (make_sample(),)) for wall in (1.0, 1.02)]
    assert half_width(two, "output_tok_s") == pytest.approx(12.71 * 0.0198 / 2, rel=0.01)
    assert half_width(two[:1], "output_tok_s") is None
    assert half_width([two[0]] * 3, "output_tok_s") == 0
