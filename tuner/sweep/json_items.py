"""A JSON list or a JSONL file as items, each with the place to name when it is wrong."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import UserError, printable
from tuner.sweep.shown import shortened

_LIST = re.compile(r"[ \t\r\n]*\[")
_SPACE = re.compile(r"[ \t\r\n]*")


_OTHER_FILES = {
    b"\x1f\x8b": ("compressed by gzip", "unpack it with gunzip"),
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", "unpack it with unzstd"),
    b"\xfd7zXZ\0": ("compressed by xz", "unpack it with unxz"),
    b"BZh": ("compressed by bzip2", "unpack it with bunzip2"),
    b"PK\x03\x04": ("a zip archive", "unpack it and name the file in it"),
    b"PAR1": ("a Parquet file", "save its rows as JSON Lines (pandas: to_json(lines=True))"),
    b"\xff\xfe": ("UTF-16 text", "save the prompts as UTF-8"),
    b"\xfe\xff": ("UTF-16 text", "save the prompts as UTF-8"),
}
"""By their first bytes: what people name instead, and what to do with it."""


@dataclass(frozen=True)
class Item:
    """A value of the file and where it stands."""

    value: Any
    path: Path
    line: int
    number: int | None
    """From 1, of a JSON list; None: a line of JSONL."""

    @property
    def name(self) -> str:
        """`line-3` or `item-3`, for an item that has no id of its own."""
        return f"line-{self.line}" if self.number is None else f"item-{self.number}"

    def wrong(self, message: str) -> UserError:
        """A sentence about the item, at FILE:LINE, with its number where it has one."""
        return _wrong(message, self.path, self.line, self.number)


def read_items(path: Path, remedy: str) -> Iterator[Item]:
    """What the file holds, in its order; empty lines are skipped.

    A file that begins with `[` is one JSON list, any other has a JSON value a line. Raises
    UserError: at FILE:LINE for an item, with `remedy` where the file cannot be read.
    """
    text = _read(path, remedy)
    yield from (_of_list if _LIST.match(text) else _of_lines)(text, path)


def _of_lines(text: str, path: Path) -> Iterator[Item]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line, object_pairs_hook=_once)
        except UserError as error:
            raise _wrong(error.message, path, number) from error
        except (ValueError, RecursionError) as error:
            raise _wrong(_why_no_json(line, error), path, number) from error
        yield Item(value, path, number, None)


def _of_list(text: str, path: Path) -> Iterator[Item]:
    decoder = json.JSONDecoder(object_pairs_hook=_once)
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
            message = "this is not JSON, write a list of objects, or one object a line"
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


def _why_no_json(line: str, error: Exception) -> str:
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


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are there once. Raises UserError without a place."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"key '{shortened(twice)}' is there twice, keep one")
    return found


def _read(path: Path, remedy: str) -> str:
    """The file's text. Raises UserError."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise UserError(f"{path}: this is a pipe or a device; {remedy}")
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; {remedy}") from error
    for magic, (what, unpack) in _OTHER_FILES.items():
        if data.startswith(magic):
            raise _wrong(f"this is {what}, {unpack}", path, 1)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise _wrong("this is not UTF-8 text, save the prompts as UTF-8", path, line) from error


def _wrong(message: str, path: Path, line: int, number: int | None = None) -> UserError:
    which = "" if number is None else f"item {number}: "
    return UserError(printable(which + message), f"{path}:{line}")
