"""Numbers for people: missing values, decimals and intervals."""

from math import inf

import pytest

from tuner.core.formatting import change, count, interval, number, percent, ratio, short, times
from tuner.metrics.statistics import Interval

SPEEDUP = Interval(1.0474, 1.0312, 1.0599)


def test_missing_value_is_a_dash_and_never_zero() -> None:
    assert {number(None), interval(None, 1.0, 2.0), ratio(None), percent(None)} == {"-"}
    assert number(0.0) == "0.0"


def test_number_has_no_decimals_from_a_thousand_on() -> None:
    assert [number(999.94), number(1000.04), number(-1234.5)] == ["999.9", "1000", "-1234"]
    assert number(1234.56, 2, inf) == "1234.56"


def test_interval_without_bounds_is_the_value() -> None:
    assert interval(94.08, 93.24, 95.0) == "94.1 (93.2 to 95.0)"
    assert interval(94.08, None, 95.0) == "94.1"


def test_speedup_is_formatted_with_three_decimals() -> None:
    assert ratio(SPEEDUP) == "1.047 (1.031 to 1.060)"
    assert times(SPEEDUP) == "1.047x (1.031 to 1.060)"
    assert times(Interval(1.5, None, None)) == "1.500x"
    assert change(SPEEDUP) == "4.7 % faster (95 % interval +3.1 % to +6.0 %)"


@pytest.mark.parametrize(("value", "shown"), [(12345.6, "12346"), (1.23456, "1.235")])
def test_short_number_has_no_power_of_ten(value: float, shown: str) -> None:
    assert short(value) == shown


def test_count_has_the_plural_of_its_noun() -> None:
    shown = [count(1, "launch"), count(2, "launch"), count(3, "trial")]
    assert shown == ["1 launch", "2 launches", "3 trials"]
