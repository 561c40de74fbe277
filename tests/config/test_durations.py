"""Durations that a person reads: `0.0 h` of a sweep of two minutes says nothing."""

import ast
import re
from pathlib import Path

import pytest

from tuner.core.formatting import spell_time


@pytest.mark.parametrize(
    ("seconds", "about", "measured"),
    [
        (0.0012, "0.0012 s", "0.0012 s"),
        (0, "0 s", "0.0 s"),
        (0.4, "0.4 s", "0.4 s"),
        (9, "9 s", "9.0 s"),
        (95, "95 s", "95 s"),
        (150, "2.5 min", "2.5 min"),
        (750, "12 min", "12.5 min"),
        (7000, "117 min", "116.7 min"),
        (8000, "2.2 h", "2.2 h"),
        (36e5, "1,000.0 h", "1,000.0 h"),
    ],
)
def test_a_duration_has_the_unit_of_its_size(seconds: float, about: str, measured: str) -> None:
    assert (spell_time(seconds), spell_time(seconds, measured=True)) == (about, measured)


def words_of_units(path: Path) -> list[str]:
    """Where an f-string writes minutes or hours after a number, by its file and line."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            for value, after in zip(node.values, node.values[1:], strict=False):
                text = after.value if isinstance(after, ast.Constant) else ""
                if isinstance(value, ast.FormattedValue) and re.match(r" ?(h|min)\b", str(text)):
                    found.append(f"{path}:{node.lineno}")
    return found


def test_one_place_writes_minutes_and_hours() -> None:
    """The next one would write hours of a minute again."""
    places = [each for path in Path("tuner").rglob("*.py") for each in words_of_units(path)]
    assert {place.rpartition(":")[0] for place in places} == {"tuner/core/formatting.py"}, places
