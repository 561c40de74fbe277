"""JSON and JSON Lines files: values with their lines, and refusals at the line."""

from pathlib import Path

import pytest

from tuner.core.errors import UserError
from tuner.core.json_items import read_items


def read(path: Path, text: str, spread: bool = True) -> list[tuple[object, int, str]]:
    path.write_text(text)
    items = read_items(path, "give another file", spread=spread)
    return [(item.value, item.line, item.name) for item in items]


def test_spread_values_have_the_lines_where_they_begin(tmp_path: Path) -> None:
    """Tools append indented objects to one file."""
    found = read(tmp_path / "x.json", '{\n "a": 1\n}\n{"b": 2} {"c":\n3}\n')
    assert found == [({"a": 1}, 1, "line-1"), ({"b": 2}, 4, "line-4"), ({"c": 3}, 4, "line-4")]


@pytest.mark.parametrize("spread", [True, False])
def test_list_and_lines_are_read_in_both_modes(tmp_path: Path, spread: bool) -> None:
    assert read(tmp_path / "x", '[{"a": 1},\n2]', spread) == [
        ({"a": 1}, 1, "item-1"),
        (2, 2, "item-2"),
    ]
    assert read(tmp_path / "x", "1\n\n2\n", spread) == [(1, 1, "line-1"), (2, 3, "line-3")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}\n{"a":\n', ":3: this is not JSON, or it is cut off here. Restore the file."),
        ('{"a": 1,\n"a": 2}', ":1: key 'a' is there twice"),
        ("[1] 2", ":1: there is more after the list's end"),
        ("[1,\n", ":2: item 2: this is not JSON, or it is cut off here."),
        ("[" * 100_000, ":1: item 1: this is not JSON"),
    ],
)
def test_broken_value_is_refused_at_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        read(tmp_path / "x.json", text)
    assert str(caught.value).startswith(f"{tmp_path}/x.json{message}")


def test_missing_file_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file or directory; give another file"):
        list(read_items(tmp_path / "none", "give another file"))
