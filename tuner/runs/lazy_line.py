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
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from tuner.core.errors import UserError
from tuner.core.files import opened


class Line(NamedTuple):
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
    with opened(line.file) as file:
        file.seek(line.start)
        data = file.read(line.size)
    if len(data) != line.size or zlib.crc32(data) != line.check:
        raise ValueError("another line")
    return dict(json.loads(data))


_NOTHING = type(None)
_NUMBERS = frozenset({int, float})
LARGEST = 2**53 - 1
"""Whole numbers up to here are floats without loss, each a float of its own."""
LISTS = frozenset({"accept_rate_by_position"})
BY_NAME = frozenset({"by_kind", "by_length"})
"""Metrics that are no single number: a list of numbers, and numbers by name of a part."""
_Getter = Callable[[Mapping[str, Any]], tuple[Any, ...]]


class LineLayout:
    """The names of one concurrency's figures and what kind of value each has."""

    __slots__ = ("is_plain", "lists", "numbers", "places")

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
        self.is_plain = all(map(_is_usual, names, kinds)) and not (
            self.places.get("speedup", (_NOTHING, 0))[0] is not _NOTHING
            and not {"speedup_low", "speedup_high"} <= {*names}
        )
        """Every figure is of the kind that metrics of its name have."""


def _is_usual(name: str, kind: type) -> bool:
    if kind is _NOTHING:
        return True
    return kind is list if name in LISTS else kind is dict if name in BY_NAME else kind in _NUMBERS


def _getter(names: list[str]) -> _Getter:
    """The values of these names."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda figures: tuple(figures[name] for name in names)


_layout = lru_cache(maxsize=4096)(LineLayout)


def shared_layout(figures: Mapping[str, Any]) -> LineLayout:
    """Of figures as they were read; one for all that are alike."""
    return _layout(tuple(figures), tuple(map(type, figures.values())))


def _are_finite(numbers: Sequence[float]) -> bool:
    """All are; False also where that is hard to tell."""
    try:
        return math.isfinite(sum(numbers))
    except OverflowError:  # a whole number beyond all floats
        return False


class LazyFigures(Mapping[str, Any]):
    """The figures of one concurrency, as the ledger line has them."""

    __slots__ = ("_layout", "_level", "_line", "_lists", "_numbers")

    def __init__(
        self, layout: LineLayout, figures: Mapping[str, Any], line: Line, level: str
    ) -> None:
        """`layout` is theirs and plain, and every number is a float without loss, which is not
        looked at. Raises OverflowError for a list that is none of finite numbers."""
        self._layout, self._line, self._level = layout, line, level
        self._numbers = array("d", layout.numbers(figures))
        self._lists = tuple(map(_packed, layout.lists(figures)))

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
        return found if isinstance(found, LazyFigures) else {**self, **changes}


def compact_figures(figures: Mapping[str, Any], line: Line, level: str) -> Mapping[str, Any]:
    """The same in few bytes; itself where it cannot be kept so. What its parts are by name is not
    looked at."""
    layout = shared_layout(figures)
    try:
        if layout.is_plain and _are_kept(layout.numbers(figures)):
            return LazyFigures(layout, figures, line, level)
    except OverflowError:
        pass
    return figures


def _are_kept(numbers: Sequence[float]) -> bool:
    """Each is finite, and the same as a float. Raises OverflowError for one beyond all floats."""
    return not numbers or (_are_finite(numbers) and max(map(abs, numbers)) <= LARGEST)


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
