"""A candidate's figures in memory: their numbers alone, the rest left where the line is.

A run may have a hundred thousand of them, and a line as a record of Python objects takes twenty
times what its numbers do. So the numbers of a concurrency are an array with a layout that all
lines of one shape share, and what is asked of a handful of candidates only (their outputs, their
command, their figures by kind and length) is read from the line again when it is asked for.
"""

import json
import math
import zlib
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
    check: int
    """CRC-32 of its bytes."""

    @classmethod
    def of(cls, data: bytes, file: Path, start: int) -> "Line":
        """A line with these bytes."""
        return cls(file, start, len(data), zlib.crc32(data))

    def read(self) -> dict[str, Any]:
        """The line's object. Raises UserError where the file has changed."""
        try:
            return _object(self)
        except (OSError, ValueError) as error:  # no other one is read at all
            message = "a line is not where it was, keep the file while it is read"
            raise UserError(message, self.file) from error


@lru_cache(maxsize=64)
def _object(line: Line) -> dict[str, Any]:
    with line.file.open("rb") as file:
        file.seek(line.start)
        data = file.read(line.size)
    if len(data) != line.size or zlib.crc32(data) != line.check:
        raise ValueError("another line")
    return dict(json.loads(data))


_NOTHING = type(None)
_NUMBERS = frozenset({int, float})
_LARGEST = 2.0**53
"""Whole numbers up to here are floats without loss."""
_LISTS = frozenset({"accept_rate_by_position"})
_BY_NAME = frozenset({"by_kind", "by_length"})
"""Metrics that are no single number: a list of numbers, and numbers by name of a part."""
_Getter = Callable[[Mapping[str, Any]], tuple[Any, ...]]


class _Layout:
    """The names of one concurrency's figures and what kind of value each has."""

    __slots__ = ("is_plain", "lists", "numbers", "parts", "places")

    def __init__(self, names: tuple[str, ...], kinds: tuple[type, ...]) -> None:
        self.places: dict[str, tuple[type, int]] = {}
        """Kind and index, by name, in the line's order; `dict` is what is left in the line."""
        numbers, lists = list[str](), list[str]()
        for name, kind in zip(names, kinds, strict=True):
            of_kind = lists if kind is list else numbers
            self.places[name] = (kind, len(of_kind))
            if kind in (int, float, list):
                of_kind.append(name)
        self.numbers = _getter(numbers)
        self.lists = _getter(lists)
        self.parts = tuple(name for name, (kind, _) in self.places.items() if kind is dict)
        self.is_plain = all(map(_is_usual, names, kinds)) and not (
            self.places.get("speedup", (_NOTHING, 0))[0] is not _NOTHING
            and not {"speedup_low", "speedup_high"} <= {*names}
        )
        """Every figure is of the kind that metrics of its name have."""


def _is_usual(name: str, kind: type) -> bool:
    if kind is _NOTHING:
        return True
    return (
        kind is list if name in _LISTS else kind is dict if name in _BY_NAME else kind in _NUMBERS
    )


def _getter(names: list[str]) -> _Getter:
    """The values of these names."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda figures: tuple(figures[name] for name in names)


_layout = lru_cache(maxsize=4096)(_Layout)


def _layout_of(figures: Mapping[str, Any]) -> _Layout:
    return _layout(tuple(figures), tuple(map(type, figures.values())))


def _are_finite(numbers: Sequence[float]) -> bool:
    """All are; False also where that is hard to tell."""
    try:
        return math.isfinite(sum(numbers))
    except OverflowError:  # a whole number beyond all floats
        return False


class Figures(Mapping[str, Any]):
    """The figures of one concurrency, as the ledger line has them."""

    __slots__ = ("_layout", "_level", "_line", "_lists", "_numbers")

    def __init__(self, layout: _Layout, figures: Mapping[str, Any], line: Line, level: str) -> None:
        """Raises OverflowError for a number that is not kept exactly, or is none."""
        self._layout, self._line, self._level = layout, line, level
        numbers = layout.numbers(figures)
        self._numbers = array("d", numbers)
        self._lists = tuple(map(_packed, layout.lists(figures)))
        if numbers and not (
            _are_finite(numbers) and -_LARGEST < min(numbers) <= max(numbers) < _LARGEST
        ):
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

    def get(self, name: str, default: Any = None) -> Any:
        """As a mapping's; asked for with every comparison of two candidates."""
        kind, place = self._layout.places.get(name, (_NOTHING, -1))
        if kind is float:
            return self._numbers[place]
        return default if place < 0 else self[name]

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
    """The same in few bytes; itself where it cannot be kept so. What its parts are by name is not
    looked at."""
    layout = _layout_of(figures)
    try:
        return Figures(layout, figures, line, level) if layout.is_plain else figures
    except OverflowError:
        return figures


def _packed(numbers: Sequence[float]) -> Sequence[float]:
    """An array where that is the same. Raises OverflowError for what is no finite number."""
    kinds = {*map(type, numbers)}
    if not (kinds <= _NUMBERS and _are_finite(numbers)):
        raise OverflowError
    return tuple(numbers) if int in kinds else array("d", numbers)


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


def read_metrics(value: dict[str, dict[str, Any]], line: Line | None) -> dict[str, Any]:
    """Metrics of a ledger's line, made small where it is known where that stands.

    Raises ValueError where they are none.
    """
    found: dict[str, Any] = {}
    for level, figures in value.items():
        level_of(level)
        layout = _layout_of(figures)
        if line is not None and layout.is_plain and _has_plain_parts(layout, figures):
            try:
                found[level] = Figures(layout, figures, line, level)
                continue
            except OverflowError:
                pass
        found[level] = refuse_odd(figures)
    return found


def _has_plain_parts(layout: _Layout, figures: Mapping[str, Any]) -> bool:
    """Each part has numbers by name, finite ones, or None."""
    parts = [part for name in layout.parts for part in figures[name].values()]
    if not {*map(type, parts)} <= {dict}:
        return False
    numbers = [each for part in parts for each in part.values() if each is not None]
    return {*map(type, numbers)} <= _NUMBERS and _are_finite(numbers)


def refuse_odd(figures: dict[str, Any]) -> dict[str, Any]:
    """The figures of one concurrency themselves. Raises ValueError where they are none."""
    for name, figure in figures.items():
        _require_figure(name, figure)
    if figures.get("speedup") is not None and not {"speedup_low", "speedup_high"} <= {*figures}:
        raise ValueError("speedup has no speedup_low and speedup_high")
    return figures


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
