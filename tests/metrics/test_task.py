"""Whether a score is lower by more than chance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.metrics.output_comparison import LEVEL, mark, worse

marks = st.text(alphabet="01-", min_size=1, max_size=40)


def test_marks():
    assert [mark(42, 42.0, False), mark(42, 41, False), mark(42, None, False)] == ["1", "0", "0"]
    assert mark(42, None, True) == "-"
    assert mark(0.1 + 0.2, 0.3, False) == "1"


@pytest.mark.parametrize(
    ("lost", "won", "clearly"), [(0, 0, False), (6, 0, False), (7, 0, True), (10, 8, False)]
)
def test_some_lost_by_chance_are_no_worse_score(lost: int, won: int, clearly: bool):
    """Near ties change answers both ways; a recommendation must not fall for that."""
    baseline = "1" * lost + "0" * won + "1" * 50
    found = worse(baseline, "0" * lost + "1" * won + "1" * 50)
    assert (found.lost, found.won, found.clearly) == (lost, won, clearly)
    assert 2.0**-6 > LEVEL > 2.0**-7


@given(st.data())
def test_the_test_is_a_probability_and_sees_only_changes(data: st.DataObject):
    one = data.draw(marks)
    other = data.draw(st.text(alphabet="01-", min_size=len(one), max_size=len(one)))
    found = worse(one, other)
    assert 0 < found.p <= 1
    assert worse(one + "1-0", other + "1-0") == found
    assert worse(one, one).p == 1
