"""JSON files of others: one value, several behind each other, or a list, each with its line."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.core.errors import UserError, printable
from tuner.core.files import read_bytes

SMALLEST, LARGEST = 1e-15, 1e15
"""Of any figure but 0; beyond them sums and ratios would no longer be numbers."""
_MEASURED = f"a measured one is 0 or from {SMALLEST:g} to {LARGEST:g}"


@dataclass(frozen=True)
class JsonDocument:
    """A JSON object of a file. Its readers raise UserError at `where`, FILE:LINE."""

    where: str
    fields: Mapping[str, Any]

    def __contains__(self, name: str) -> bool:
        return name in self.fields

    def has(self, *names: str) -> bool:
        """Whether all of these keys are there."""
        return all(name in self.fields for name in names)

    def number(self, name: str) -> float | None:
        """0, or a number from SMALLEST to LARGEST; None where it is null or not there."""
        value = self.fields.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UserError(f"{name} is {str(value)[:40]!r}, it must be a number", self.where)
        if not _is_measured(value):
            raise UserError(f"{name} is {_short(value)}, {_MEASURED}", self.where)
        return float(value)

    def needed(self, name: str) -> float:
        """A number that must be there."""
        value = self.number(name)
        if value is None:
            raise UserError(f"{name} is missing, the file is cut or of another format", self.where)
        return value

    def whole(self, name: str) -> int | None:
        """A whole number that is not negative; None where it is null or not there."""
        value = self.number(name)
        if value is not None and value != int(value):
            raise UserError(f"{name} is {value}, it must be a whole number", self.where)
        return None if value is None else int(value)

    def text(self, name: str) -> str | None:
        """A text; None where it is null or not there."""
        value = self.fields.get(name)
        if value is not None and not isinstance(value, str):
            raise UserError(f"{name} is {str(value)[:40]!r}, it must be a text", self.where)
        return value

    def inner(self, name: str) -> "JsonDocument":
        """The object under `name`; an empty one where it is null or not there."""
        value = self.fields.get(name)
        if value is not None and not isinstance(value, dict):
            raise UserError(f"{name} is {str(value)[:40]!r}, it must be an object", self.where)
        return JsonDocument(self.where, value or {})

    def objects(self, name: str) -> list["JsonDocument"]:
        """The objects of the list under `name`."""
        value = self.fields.get(name)
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise UserError(f"{name} must be a list of objects", self.where)
        return [JsonDocument(self.where, each) for each in value]

    def numbers(self, name: str) -> list[float]:
        """The numbers of the list under `name`."""
        value = self.fields.get(name)
        if not isinstance(value, list):
            raise UserError(f"{name} must be a list of numbers", self.where)
        return _numbers(value, name, self.where)

    def lists_of_numbers(self, name: str) -> list[list[float]]:
        """A list of lists of numbers."""
        value = self.fields.get(name)
        if not isinstance(value, list) or not all(isinstance(each, list) for each in value):
            raise UserError(f"{name} must be a list of lists of numbers", self.where)
        return [_numbers(each, name, self.where) for each in value]


def _is_measured(value: float) -> bool:
    return value == 0 or SMALLEST <= value <= LARGEST  # no NaN


def _short(value: float) -> str:
    return str(value)[:40]


def _numbers(values: Sequence[Any], name: str, where: str) -> list[float]:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UserError(f"{name} has {str(value)[:40]!r} in it, it must have numbers", where)
        if not _is_measured(value):
            raise UserError(f"{name} has {_short(value)} in it, {_MEASURED}", where)
    return [float(value) for value in values]


def read_documents(path: Path) -> list[JsonDocument]:
    """The objects of a JSON or JSONL file. Raises UserError with FILE:LINE."""
    try:
        text = read_bytes(path).decode("utf-8")
    except OSError as error:
        raise UserError(f"{error.strerror}, give a run folder or a file", path) from error
    except UnicodeDecodeError as error:
        raise UserError("this is not UTF-8 text, give JSON or JSONL", path) from error
    found = []
    for place, value in _values(text, path):
        where = f"{path}:{text.count(chr(10), 0, place) + 1}"
        if not isinstance(value, dict):
            raise UserError(f"{str(value)[:40]!r} is no JSON object, take it out", where)
        found.append(JsonDocument(where, _printable(value)))
    if not found:
        raise UserError("there is nothing in it, give a file with results", path)
    return found


def _printable(value: Any) -> Any:
    """The value with what no terminal and no page may be given in its texts as escapes."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_printable(each) for each in value]
    if isinstance(value, dict):
        return {printable(name): _printable(each) for name, each in value.items()}
    return value


def _values(text: str, path: Path) -> Iterator[tuple[int, Any]]:
    """Each value with where it begins; of a list that is the whole file, its entries."""
    decoder = json.JSONDecoder()
    place = _skip(text, 0)
    listed = text[place : place + 1] == "["
    place = _skip(text, place + listed)
    while place < len(text):
        if listed and text[place] == "]":
            return
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            line = text.count("\n", 0, getattr(error, "pos", place)) + 1
            message = "this is not JSON, or it is cut off: restore the file"
            raise UserError(message, f"{path}:{line}") from error
        yield place, value
        place = _skip(text, end)
        if listed and text[place : place + 1] == ",":
            place = _skip(text, place + 1)
        elif listed and text[place : place + 1] != "]":
            line = text.count("\n", 0, place) + 1
            raise UserError("the list is cut off here: restore the file", f"{path}:{line}")
    if listed:
        line = text.count("\n") + 1
        raise UserError("the list is cut off here: restore the file", f"{path}:{line}")


def _skip(text: str, place: int) -> int:
    while place < len(text) and text[place] in " \t\r\n\ufeff":
        place += 1
    return place
