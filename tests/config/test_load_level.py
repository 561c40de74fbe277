"""Levels of load: their names are keys in ledgers, which must mean one thing for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.config.load_level import Level, Rate, at, axis, columns, listed, named, parse_level


@given(st.integers(1, 512) | st.floats(0.001, 100_000).map(lambda x: Rate(round(x, 6))))
def test_a_level_is_read_as_it_was_written(level: Level) -> None:
    assert parse_level(str(level)) == level


@pytest.mark.parametrize(
    "text", ["", "0", "01", "-1", "1.5", "4 /s", "/s", "0/s", "1e3/s", "nan/s", "٤", "4/s "]
)
def test_anything_else_is_no_level(text: str) -> None:
    with pytest.raises(ValueError, match="is no level, write a concurrency such as 8 or a rate"):
        parse_level(text)


def test_rates_are_told_from_concurrencies_in_words() -> None:
    """`at concurrency 4` for 4 requests a second would be another load."""
    rates = [Rate(0.25), Rate(4.0), Rate(100_000.0)]
    assert list(map(str, rates)) == ["0.25/s", "4/s", "100000/s"]
    assert (at(8), at(Rate(4)), at("4/s"), named("8")) == (
        "at concurrency 8",
        "at 4 requests/s",
        "at 4 requests/s",
        "concurrency 8",
    )
    assert (listed([1, 8]), listed(rates)) == ("concurrency 1, 8", "0.25, 4, 100000 requests/s")
    assert (axis([1]), axis(rates), axis([])) == ("concurrency", "rate", "concurrency")
    assert sorted([Rate(16), Rate(4)]) == [Rate(4), Rate(16)]
    assert columns(8) == {"concurrency": 8, "request_rate": None}
    assert columns(Rate(4)) == {"concurrency": None, "request_rate": 4}
