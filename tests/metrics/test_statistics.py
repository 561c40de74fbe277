"""Intervals against worlds of known truth."""

import tracemalloc

import pytest

from tests.factories import World, make_sample, make_window
from tuner.metrics.samples import Window
from tuner.metrics.statistics import Interval, Metric, output_tok_s, speedup, throughput_interval

RUNS = 200


def holds(interval: Interval | None, truth: float) -> bool:
    assert interval is not None
    assert interval.low is not None and interval.high is not None
    return interval.low <= truth <= interval.high


@pytest.mark.parametrize(
    ("windows", "prompts", "by_window", "noise", "by_prompt"),
    [
        (3, 16, 0.01, 0.005, 0.0),
        (3, 16, 0.01, 0.01, 0.05),
        (2, 8, 0.01, 0.01, 0.0),
        (1, 16, 0.0, 0.01, 0.05),
        (3, 1, 0.01, 0.01, 0.0),
        (5, 4, 0.0, 0.03, 0.0),
    ],
)
@pytest.mark.parametrize("truth", [1.0, 1.05])
def test_speedup_intervals_hold_the_truth(
    windows: int, prompts: int, by_window: float, noise: float, by_prompt: float, truth: float
) -> None:
    """Otherwise users act on differences that are not there: 95 % are promised.

    At truth 1 an interval that leaves it out calls a null difference significant.
    """
    held = 0
    for seed in range(RUNS):
        world = World(seed, prompts, by_window, noise)
        pair = world.windows(windows), world.windows(windows, truth, by_prompt)
        held += holds(speedup(*pair, "decode_tok_s", seed), truth)
    assert held >= 0.92 * RUNS


def test_a_difference_is_found() -> None:
    """Otherwise intervals hold the truth by being too wide to say anything."""
    found = 0
    for seed in range(RUNS):
        world = World(seed, 16, 0.003, 0.005)
        interval = speedup(world.windows(3), world.windows(3, 1.02), "output_tok_s", seed)
        assert interval is not None and interval.low is not None
        found += interval.low > 1
    assert found >= 0.9 * RUNS


def test_throughput_intervals_hold_the_truth() -> None:
    """Otherwise the error bars of the report are decoration."""
    held = 0
    for seed in range(RUNS):
        quiet = output_tok_s(World(seed, 16, 0.0, 0.0).windows(1))
        assert quiet is not None
        held += holds(throughput_interval(World(seed, 16, 0.01, 0.01).windows(3), seed), quiet)
    assert held >= 0.9 * RUNS


@pytest.mark.parametrize("metric", ["output_tok_s", "decode_tok_s"])
def test_the_value_is_the_ratio_of_the_pooled_figures(metric: Metric) -> None:
    """Otherwise the speed-up in the table is not the quotient of the figures beside it."""
    base = [
        make_window(make_sample((1, 3), (1, 4)), wall=3.0),
        make_window(make_sample((1, 2), (1, 4)), wall=5.0),
    ]
    fast = [
        make_window(make_sample((1, 2), (1, 4)), wall=2.0),
        make_window(make_sample((1, 2), (1, 4)), wall=2.0),
    ]
    interval = speedup(base, fast, metric)
    assert interval is not None
    expected = {"output_tok_s": (10 / 4) / (10 / 8), "decode_tok_s": (8 / 2) / (8 / 3)}
    assert interval.value == pytest.approx(expected[metric])
    assert interval == speedup(base, fast, metric)


def test_one_window_of_one_prompt_has_no_interval() -> None:
    """Otherwise a single measurement looks certain."""
    once = [make_window(make_sample())]
    assert speedup(once, once, "decode_tok_s") == Interval(1.0, None, None)
    assert throughput_interval(once) == Interval(2.5, None, None)


def test_sides_without_a_common_prompt_have_no_interval() -> None:
    """Otherwise different workloads are compared as if they were paired."""
    other = [make_window(make_sample(prompt_id="q")), make_window(make_sample(prompt_id="q"))]
    mine = [make_window(make_sample()), make_window(make_sample())]
    assert speedup(mine, other, "decode_tok_s") == Interval(1.0, None, None)


def test_nothing_measured_is_none() -> None:
    """Otherwise a failed level has a speed-up."""
    broken = [make_window(make_sample((), (), error="HTTP 500"))]
    assert speedup([make_window(make_sample())], broken, "output_tok_s") is None
    assert speedup(broken, [make_window(make_sample())], "decode_tok_s") is None
    assert throughput_interval([]) is None


def test_failed_requests_do_not_break_the_interval() -> None:
    """Otherwise one timeout takes the whole level's interval away."""
    world = World(0, 8, 0.01, 0.01)
    base, fast = world.windows(3), world.windows(3, 1.5)
    all_failed = Window(1, 5.0, 0.1, (make_sample((), (), error="HTTP 500", prompt_id="p0"),))
    interval = speedup([*base, all_failed], fast, "decode_tok_s")
    assert interval is not None and interval.low is not None
    assert interval.low > 1.3
    some = World(0, 8, 0.0, 0.0).windows(1)
    failed = make_sample((), (), error="HTTP 500", prompt_id="p0")
    partly = Window(1, some[0].wall_s, 0.1, (failed, *some[0].samples[1:]))
    assert speedup([partly], fast, "decode_tok_s") is not None


def test_equal_sides_are_equal() -> None:
    """Otherwise a run compared with itself shows noise."""
    base = World(0, 8, 0.0, 0.0).windows(1)
    assert speedup(base, base, "decode_tok_s") == Interval(1.0, 1.0, 1.0)


def test_thousands_of_prompts_take_no_more_room_than_a_thousand() -> None:
    """Otherwise large workloads make the analysis heavier than the measurement."""
    peaks = []
    for prompts in (1024, 4096):
        world = World(0, prompts, 0.0, 0.01)
        base, fast = world.windows(1), world.windows(1, 1.1)
        tracemalloc.start()
        interval = speedup(base, fast, "decode_tok_s")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert interval is not None and interval.low is not None and interval.high is not None
        assert 1.09 < interval.low < interval.value < interval.high < 1.11
    assert peaks[1] < 1.5 * peaks[0]
