"""Candidates of a ledger in memory: a few hundred bytes each, the rest left where the line is.

A run may have a hundred thousand of them, and a line as a record of Python objects takes twenty
times what its numbers do. So the numbers of a concurrency are an array with a layout that all
lines of one shape share, and what is asked of a handful of candidates only (their outputs, their
command, their figures by kind and length) is read from the line again when it is asked for.
"""

import json
import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any

from tuner.errors import UserError
from tuner.sweep.level import level_of


@dataclass(frozen=True, slots=True)
class Line:
    """Where a record's line is."""

    file: Path
    start: int
    """Of its first byte, in bytes from the beginning of the file."""
    size: int

    def read(self) -> dict[str, Any]:
        """The line's object. Raises UserError where the file has changed."""
        try:
            return _object(self)
        except (OSError, ValueError) as error:
            message = "a line is not where it was, keep the file while it is read"
            raise UserError(message, self.file) from error


@lru_cache(maxsize=64)
def _object(line: Line) -> dict[str, Any]:
    with line.file.open("rb") as file:
        file.seek(line.start)
        data = file.read(line.size)
    found = json.loads(data)
    if len(data) != line.size or not isinstance(found, dict):
        raise ValueError("another line")
    return found


_NOTHING = type(None)
_NUMBERS = frozenset({int, float})
_LARGEST = 2.0**53
"""Whole numbers up to here are floats without loss."""
_Getter = Callable[[Mapping[str, Any]], tuple[Any, ...]]


class _Layout:
    """The names of one concurrency's figures and what kind of value each has."""

    __slots__ = ("is_known", "lists", "names_of_lists", "numbers", "parts", "places")

    def __init__(self, names: tuple[str, ...], kinds: tuple[type, ...]) -> None:
        self.places: dict[str, tuple[type, int]] = {}
        """Kind and index, by name, in the line's order; `dict` is what is left in the line."""
        numbers, lists = list[str](), list[str]()
        for name, kind in zip(names, kinds, strict=True):
            of_kind = lists if kind is list else numbers
            self.places[name] = (kind, len(of_kind))
            if kind in (int, float, list):
                of_kind.append(name)
        self.is_known = {*kinds} <= {int, float, list, dict, _NOTHING}
        self.numbers = _getter(numbers)
        self.lists = _getter(lists)
        self.names_of_lists = tuple(lists)
        self.parts = tuple(name for name, (kind, _) in self.places.items() if kind is dict)


def _getter(names: list[str]) -> _Getter:
    """The values of these names."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda figures: tuple(figures[name] for name in names)


_layout = lru_cache(maxsize=4096)(_Layout)


def _layout_of(figures: Mapping[str, Any]) -> _Layout:
    return _layout(tuple(figures), tuple(map(type, figures.values())))


def are_figures(figures: Mapping[str, Any], lists: frozenset[str], parts: frozenset[str]) -> bool:
    """Whether all are finite numbers or None: those named in `lists` lists of numbers, those in
    `parts` numbers by name. False also where that is hard to tell."""
    layout = _layout_of(figures)
    if not (layout.is_known and lists.issuperset(layout.names_of_lists)):
        return False
    if not (parts.issuperset(layout.parts) and _finite(layout.numbers(figures))):
        return False
    if not all(
        set(map(type, found)) <= _NUMBERS and _finite(found) for found in layout.lists(figures)
    ):
        return False
    for name in layout.parts:
        for part in figures[name].values():
            if type(part) is not dict:
                return False
            within = _layout_of(part)
            numbers = within.is_known and not within.names_of_lists and not within.parts
            if not (numbers and _finite(within.numbers(part))):
                return False
    return all(layout.places.get(name, (None, 0))[0] not in _NUMBERS for name in (*lists, *parts))


def _finite(numbers: Sequence[float]) -> bool:
    try:
        return math.isfinite(sum(numbers))
    except OverflowError:  # a whole number beyond all floats
        return False


class Figures(Mapping[str, Any]):
    """The figures of one concurrency, as the ledger line has them."""

    __slots__ = ("_layout", "_level", "_line", "_lists", "_numbers")

    def __init__(self, layout: _Layout, figures: Mapping[str, Any], line: Line, level: str) -> None:
        """Raises OverflowError for a number that is not kept exactly."""
        self._layout, self._line, self._level = layout, line, level
        self._numbers = array("d", layout.numbers(figures))
        self._lists = tuple(_packed(each) for each in layout.lists(figures))
        if self._numbers and not -_LARGEST < min(self._numbers) <= max(self._numbers) < _LARGEST:
            raise OverflowError

    def __getitem__(self, name: str) -> Any:
        kind, place = self._layout.places[name]
        if kind is float:
            return self._numbers[place]
        if kind is int:
            return int(self._numbers[place])
        if kind is list:
            return list(self._lists[place])
        return None if kind is _NOTHING else self._line.read()["metrics"][self._level][name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._layout.places)

    def __len__(self) -> int:
        return len(self._layout.places)

    def __contains__(self, name: object) -> bool:
        return name in self._layout.places

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(dict(self))

    def updated(self, changes: Mapping[str, float | None]) -> Mapping[str, Any]:
        """The same with other numbers in the place of some."""
        places = self._layout.places
        kept = {name: {} if kind is dict else self[name] for name, (kind, _) in places.items()}
        found = compact_figures({**kept, **changes}, self._line, self._level)
        return found if isinstance(found, Figures) else {**self, **changes}


def compact_figures(figures: Mapping[str, Any], line: Line, level: str) -> Mapping[str, Any]:
    """The same in few bytes; itself where it cannot be kept so."""
    layout = _layout_of(figures)
    try:
        return Figures(layout, figures, line, level) if layout.is_known else figures
    except OverflowError:
        return figures


def _packed(numbers: Sequence[float]) -> Sequence[float]:
    """An array where that is the same."""
    return array("d", numbers) if {*map(type, numbers)} == {float} else tuple(numbers)


class Later(Mapping[str, Any]):
    """A part of a line that is read from it when it is looked into."""

    __slots__ = ("_line", "_made", "_name", "_size")

    def __init__(self, line: Line, name: str, size: int, made: Callable[[Any], Any]) -> None:
        """`size`: how many entries it has; `made` makes each from the line's."""
        self._line, self._name, self._size, self._made = line, name, size, made

    def __getitem__(self, key: str) -> Any:
        return self._made(self._line.read()[self._name][key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._line.read()[self._name])

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(dict(self))


_LISTS = frozenset({"accept_rate_by_position"})
_BY_NAME = frozenset({"by_kind", "by_length"})
"""Metrics that are no single number: a list of numbers, and numbers by name of a part."""


def refuse_odd(value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Metrics themselves. Raises ValueError where they are none."""
    for level, figures in value.items():
        level_of(level)
        if not are_figures(figures, _LISTS, _BY_NAME):
            for name, figure in figures.items():
                _require_figure(name, figure)
        if figures.get("speedup") is not None and not {"speedup_low", "speedup_high"} <= {*figures}:
            raise ValueError("speedup has no speedup_low and speedup_high")
    return value


def _require_figure(name: str, figure: Any) -> None:
    """Raises ValueError for what is no finite number, or none of them where there are several."""
    if figure is None:
        return
    parts: list[Any] = [figure]
    if name in _LISTS:
        if not isinstance(figure, list):
            raise ValueError(f"{name} is no list")
        parts = figure
    elif name in _BY_NAME:
        if not isinstance(figure, dict) or not all(isinstance(x, dict) for x in figure.values()):
            raise ValueError(f"{name} is no object of objects")
        parts = [each for part in figure.values() for each in part.values() if each is not None]
    for part in parts:
        if not _is_number(part):
            raise ValueError(f"{name} is {str(part)[:40]!r}, not a number")


def _is_number(part: Any) -> bool:
    """Finite, and not larger than a float."""
    if isinstance(part, bool) or not isinstance(part, int | float):
        return False
    try:
        return math.isfinite(part)
    except OverflowError:
        return False
