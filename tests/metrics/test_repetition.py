"""Loops in answers: any draft guesses them, so their acceptance is nobody's merit."""

from itertools import cycle, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.config.prompts import BUILTIN_KINDS, load_prompts
from tuner.metrics.output_comparison import BLOCK, distinct_pairs, looped_share


def test_a_two_token_loop_has_two_pairs() -> None:
    """The loop that a broken model ends in."""
    assert distinct_pairs([1, 2] * 50) == 2 / 99
    assert distinct_pairs([1]) is None
    assert looped_share([1, 2] * 50) == 1.0


def test_a_loop_that_begins_late_counts_from_there() -> None:
    """Most answers say something before they go round."""
    assert looped_share([*range(BLOCK * 2), *[5, 6] * BLOCK]) == 0.5
    assert looped_share(range(BLOCK - 1)) is None


def test_text_and_code_are_no_loop(tmp_path) -> None:
    """Otherwise every code prompt casts doubt on its speed."""
    for kind in BUILTIN_KINDS:
        for prompt in load_prompts(f"builtin:{kind}", tmp_path):
            assert looped_share(prompt.text.split()) in (0.0, None), prompt.id


def test_a_table_is_no_loop() -> None:
    """JSON and lists repeat their frame, and every row says something else."""
    rows = [token for n in range(100) for token in (-1, n, -2, -3)]
    assert distinct_pairs(rows) == pytest.approx(0.5, abs=0.02)
    assert looped_share(rows) == 0.0


@given(st.lists(st.integers(), min_size=1, max_size=12), st.integers(BLOCK, 5 * BLOCK))
def test_a_short_cycle_is_a_loop_wherever_it_is_cut(once: list[int], length: int) -> None:
    assert looped_share(list(islice(cycle(once), length))) == 1.0
