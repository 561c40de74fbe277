"""How often intervals hold the truth, on the simulated engine's performance model.

docs/statistics.md shows what these find. Seeded: the shares are the same every time.
"""

from tests.metrics.coverage_table import holds, over_launches, within

RUNS = 1000
SOME = 300


def test_the_speedup_of_speculation_is_held_by_95_of_100_intervals() -> None:
    """Otherwise 95 % is a word: 93 to 97 % of 1,000 runs hold the true ratio."""
    held = sum(holds(*within(seed, 3, 1.0)) for seed in range(RUNS))
    assert 0.93 * RUNS <= held <= 0.97 * RUNS


def test_no_change_is_called_one_in_at_most_5_of_100_runs() -> None:
    """Otherwise users deploy what makes no difference."""
    assert sum(not holds(*within(seed, None, 1.0)) for seed in range(RUNS)) <= 0.05 * RUNS


def test_a_change_of_2_percent_is_found() -> None:
    """Otherwise intervals hold the truth by saying nothing."""
    found = [within(seed, None, 1.02)[0] for seed in range(SOME)]
    assert sum(each.low is not None and each.low > 1 for each in found) >= 0.95 * SOME


def test_drift_of_3_percent_is_taken_out() -> None:
    """Otherwise a candidate is called slower for having been measured late."""
    pairs = [over_launches(seed, 2, 0.0, 0.03) for seed in range(SOME)]
    settled, first = (sum(each) / SOME for each in zip(*pairs, strict=True))
    assert settled >= 0.93
    assert first < 0.5, "this world must need it"


def test_launches_that_differ_are_in_the_interval_of_three() -> None:
    """Otherwise one launch's luck is called a gain: of a machine whose launches differ by 1 %."""
    pairs = [over_launches(seed, 3, 0.01, 0.0) for seed in range(SOME)]
    settled, first = (sum(each) / SOME for each in zip(*pairs, strict=True))
    assert settled >= 0.90
    assert first < 0.6, "this world must need it"
