"""JSON files and JSON Lines files: values with their lines, and refusals that name the line."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.core.errors import UserError, printable
from tuner.core.files import read_bytes

_SPACE = re.compile(r"[ \t\r\n\ufeff]*")
_OTHER_FILES = {
    b"\x1f\x8b": ("compressed by gzip", "unpack it with gunzip"),
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", "unpack it with unzstd"),
    b"\xfd7zXZ\0": ("compressed by xz", "unpack it with unxz"),
    b"BZh": ("compressed by bzip2", "unpack it with bunzip2"),
    b"PK\x03\x04": ("a zip archive", "unpack it and name the file in it"),
    b"PAR1": ("a Parquet file", "save its rows as JSON Lines (pandas: to_json(lines=True))"),
    b"\xff\xfe": ("UTF-16 text", "save it as UTF-8"),
    b"\xfe\xff": ("UTF-16 text", "save it as UTF-8"),
}
"""First bytes of other kinds of files: the kind, and the remedy."""


@dataclass(frozen=True)
class Item:
    """A value of a file and its place."""

    value: Any
    path: Path
    line: int
    number: int | None
    """Counts from 1 in a JSON list. None for a value of JSON Lines."""

    @property
    def name(self) -> str:
        """`line-3` or `item-3`, for an item that has no id of its own."""
        return f"line-{self.line}" if self.number is None else f"item-{self.number}"

    @property
    def where(self) -> str:
        """FILE:LINE."""
        return f"{self.path}:{self.line}"

    def wrong(self, message: str) -> UserError:
        """Return an error at FILE:LINE about the item, with the number of a list's item."""
        return _wrong(message, self.path, self.line, self.number)


def read_items(path: Path, remedy: str, *, spread: bool = False) -> Iterator[Item]:
    """Yield the values of a file in their order. Empty lines are skipped.

    A file that begins with `[` is one JSON list. Every other file has one value a line; with
    `spread`, values follow each other and may cover several lines. Raises UserError: at FILE:LINE
    for a broken value, with `remedy` if the file cannot be read.
    """
    text = _read(path, remedy)
    start = _after_space(text, 0)
    if text[start : start + 1] == "[":
        yield from _from_list(text, path)
    else:
        yield from (_from_stream if spread else _from_lines)(text, path)


def _from_lines(text: str, path: Path) -> Iterator[Item]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line, object_pairs_hook=_unique_keys)
        except UserError as error:
            raise _wrong(error.message, path, number) from error
        except (ValueError, RecursionError) as error:
            raise _wrong(_describe_broken_line(line, error), path, number) from error
        yield Item(value, path, number, None)


def _from_stream(text: str, path: Path) -> Iterator[Item]:
    decoder = json.JSONDecoder(object_pairs_hook=_unique_keys)
    at = _after_space(text, 0)
    while at < len(text):
        line = text.count("\n", 0, at) + 1
        try:
            value, end = decoder.raw_decode(text, at)
        except UserError as error:
            raise _wrong(error.message, path, line) from error
        except (ValueError, RecursionError) as error:
            line = text.count("\n", 0, getattr(error, "pos", at)) + 1
            message = "this is not JSON, or it is cut off here. Restore the file."
            raise _wrong(message, path, line) from error
        yield Item(value, path, line, None)
        at = _after_space(text, end)


def _from_list(text: str, path: Path) -> Iterator[Item]:
    decoder = json.JSONDecoder(object_pairs_hook=_unique_keys)
    at, line, number = text.index("[") + 1, text.count("\n", 0, text.index("[")) + 1, 0
    while True:
        begin = _after_space(text, at)
        line, at = line + text.count("\n", at, begin), begin
        if number == 0 and text[at : at + 1] == "]":
            break
        number += 1
        try:
            value, at = decoder.raw_decode(text, at)
        except UserError as error:
            raise _wrong(error.message, path, line, number) from error
        except (ValueError, RecursionError) as error:
            message = (
                "this is not JSON, or it is cut off here. Write a list of objects, or one object "
                "a line."
            )
            raise _wrong(message, path, line, number) from error
        yield Item(value, path, line, number)
        end = _after_space(text, at)
        line, at = line + text.count("\n", begin, end), end
        if text[at : at + 1] != ",":
            break
        at += 1
    if text[at : at + 1] != "]":
        message = "there is no comma after this item and the list does not end, mend the JSON"
        raise _wrong(message, path, line, number)
    if _after_space(text, at + 1) != len(text):
        line += text.count("\n", at, _after_space(text, at + 1))
        raise _wrong("there is more after the list's end, remove it", path, line)


def _describe_broken_line(line: str, error: Exception) -> str:
    right = "write one object a line, or a JSON list"
    if "\0" in line:
        return f"there is a NUL in this line, so it is no JSON text, {right}"
    if "\r" in line.strip():
        return "lines end in CR alone here, end them in LF (tr '\\r' '\\n')"
    if isinstance(error, RecursionError):
        return f"this is nested too deep, {right}"
    if line.strip() == "{" or (line.lstrip().startswith('{"') and line.rstrip()[-1:] in "{[,"):
        return "this object goes on in the next line, put each on a line of its own (jq -c .)"
    return f"this line is not JSON, {right}"


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object. Raises UserError, without a place, if the object repeats a key."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"key '{printable(twice)[:60]}' is there twice, keep one")
    return found


def _read(path: Path, remedy: str) -> str:
    """Return the text of the file. Raises UserError."""
    try:
        data = read_bytes(path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; {remedy}") from error
    for magic, (what, unpack) in _OTHER_FILES.items():
        if data.startswith(magic):
            raise _wrong(f"this is {what}, {unpack}", path, 1)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise _wrong("this is not UTF-8 text, save it as UTF-8", path, line) from error


def _wrong(message: str, path: Path, line: int, number: int | None = None) -> UserError:
    which = "" if number is None else f"item {number}: "
    return UserError(printable(which + message), f"{path}:{line}")
