"""YAML read strictly: plain values, and the line of each.

Stricter than YAML 1.1, which reads `off` as false, `010` as 8 and `1:30` as 90: such words are
refused with what to write instead, because a sweep file names flags and variables where each of
these means something else. Duplicate keys are refused too; YAML keeps the last one silently. So are
tags, and texts that no process can be given.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.reader import ReaderError

from tuner.core.errors import UserError, printable

Path = tuple[str | int, ...]

MAX_NODES = 100_000
"""Values in one file; more come only from aliases that multiply."""
MAX_DEPTH = 100
MAX_DIGITS = 18
MAX_TEXT_BYTES = 100_000
"""Of one value; Linux gives a process no word or variable of 128 KiB or more."""

_INT = re.compile(r"0|[-+]?[1-9][0-9]*")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)([eE][-+]?[0-9]+)?")
_OTHER_INT = re.compile(r"[-+]?(0[0-7_]+|0b[01_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*_[0-9_]*)")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9_]*)?")
_SWITCH_WORDS = {"yes", "no", "on", "off", "y", "n"}


@dataclass
class Document:
    """A YAML file's value, with the line where each part of it stands."""

    source: str
    """The file's name, as messages show it."""
    value: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    root: yaml.Node | None = field(default=None, repr=False, compare=False)
    """The nodes that `value` was made of."""

    def line(self, path: Path) -> int:
        """The line of the value at `path`, or of the nearest value around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def where(self, path: Path) -> str:
        """FILE:LINE of the value at `path`."""
        return f"{self.source}:{self.line(path)}"

    def error(self, path: Path, message: str) -> UserError:
        """A UserError in the form `FILE:LINE: path: message`."""
        name = spell(path)
        text = f"{name}: {message}" if name else message
        return UserError(printable(text), self.where(path))

    def refused(self, mark: yaml.Mark | None, message: str) -> UserError:
        """A UserError in the form `FILE:LINE: message`, for what has no path yet."""
        line = mark.line + 1 if mark is not None else 1
        return UserError(printable(message), f"{self.source}:{line}")


def spell(path: Path) -> str:
    """A path as people write it: `space.env.NCCL_PROTO[2]`."""
    text = ""
    for part in path:
        key = part if isinstance(part, int) else shortened(part)
        text += f"[{key}]" if isinstance(part, int) else f".{key}" if text else str(key)
    return text


def read_document(text: str, source: str) -> Document:
    """Read one YAML document. Raises UserError with FILE:LINE."""
    document = Document(source)
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
    except _Refused as error:
        raise document.refused(error.problem_mark, str(error.problem)) from error
    except yaml.MarkedYAMLError as error:
        problem = error.problem or "it ends too early"
        mark = error.problem_mark or error.context_mark
        if problem.startswith("expected <block end>"):
            problem += "; is this line indented as the one above it?"
        raise document.refused(mark, f"this is not YAML: {problem}") from error
    except ReaderError as error:
        line = text[: error.position].count("\n") + 1
        problem = f"the control character U+{error.character:04X} stands here, remove it"
        raise UserError(f"this is not YAML: {problem}", f"{source}:{line}") from error
    except (ValueError, OverflowError) as error:
        # PyYAML makes characters and version numbers of digits that it has not checked.
        mark = loader.get_mark() if loader is not None else None
        message = "this is not YAML: a number in an escape or a directive is too large"
        raise document.refused(mark, message) from error
    if node is not None:
        document.root = node
        document.value = _Reader(document).value(node, (), ())
    return document


class _Refused(yaml.MarkedYAMLError):
    """YAML that has a meaning which a sweep file has no use for."""


class _Loader(yaml.SafeLoader):
    """Composes nodes; refuses what nodes no longer show or what would end in a deep recursion."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if self.depth > MAX_DEPTH:
            problem = "this is nested too deeply to be a sweep file"
            raise _Refused(problem=problem, problem_mark=event.start_mark)
        if getattr(event, "tag", None) is not None:
            problem = 'tags (words with !) are not read here, write the value alone, "3" for a text'
            raise _Refused(problem=problem, problem_mark=event.start_mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Reader:
    """Turns nodes into values, noting lines."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.count = 0

    def value(self, node: yaml.Node, path: Path, inside: tuple[int, ...]) -> Any:
        self.document.lines[path] = node.start_mark.line + 1
        self.count += 1
        if self.count > MAX_NODES or id(node) in inside or len(inside) > MAX_DEPTH:
            raise self.document.error(path, "aliases nest or multiply here, write the values out")
        inside = (*inside, id(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, inside)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(v, (*path, i), inside) for i, v in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node, path)

    def _mapping(
        self, node: yaml.MappingNode, path: Path, inside: tuple[int, ...]
    ) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            mark = key_node.start_mark
            if not isinstance(key_node, yaml.ScalarNode):
                message = f"{spell(path) or 'the file'}: a key is one word, not a list or a mapping"
                raise self.document.refused(mark, message)
            key: str = key_node.value
            if (why := unusable_text(key)) is not None:
                raise self.document.refused(mark, f"{spell((*path, key))}: {why}")
            if key in result:
                first = self.document.line((*path, key))
                raise self.document.refused(
                    mark,
                    f"{spell((*path, key))}: this key is there twice (first at line {first}), "
                    "keep one",
                )
            result[key] = self.value(value_node, (*path, key), inside)
            # Messages point at the key: that is where a mapping's mistake is looked for.
            self.document.lines[(*path, key)] = mark.line + 1
        return result

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        if (why := unusable_text(node.value)) is not None:
            raise self.document.error(path, why)
        if node.style is not None:
            return node.value
        try:
            return plain_value(node.value)
        except ValueError as error:
            raise self.document.error(path, str(error)) from error


def unusable_text(text: str) -> str | None:
    """Why no process can be given a text as a word or a variable; None where one can."""
    if len(text) > MAX_TEXT_BYTES:
        return f"a text of {len(text):,} characters is too long, {MAX_TEXT_BYTES:,} bytes fit"
    if (why := no_text(text) or unseen(text)) is not None:
        return why
    if len(text.encode()) > MAX_TEXT_BYTES:
        return f"a text of {len(text.encode()):,} bytes is too long, {MAX_TEXT_BYTES:,} fit"
    return None


def plain_value(text: str) -> Any:
    """What a word without quotes means. Raises ValueError, with a sentence, where that is open."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.lower() in _SWITCH_WORDS:
        meant = "true" if text.lower() in ("yes", "on", "y") else "false"
        raise ValueError(
            f"YAML reads {text} as a boolean, write {meant} for the switch or "
            f'"{text}" in quotes for the word'
        )
    if _INT.fullmatch(text):
        if len(text) > MAX_DIGITS:
            raise ValueError(f"{text[:12]}... is too large a number")
        return int(text)
    if _OTHER_INT.fullmatch(text) or _SEXAGESIMAL.fullmatch(text):
        shown = shortened(text)
        raise ValueError(
            f'{shown} is read differently by each YAML reader, write it in decimal or "{shown}"'
        )
    if _FLOAT.fullmatch(text):
        number = float(text)
        if math.isinf(number):
            raise ValueError(f"{shortened(text)} is too large a number")
        return number
    return text


LONGEST = 60

_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)
"""What steers a terminal, ends a line or turns the direction of what is read after it; not tab and
the usual ends of lines."""


def shortened(text: str) -> str:
    """One line of at most 60 characters."""
    line = printable(text)
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."


def as_text(text: str) -> str:
    """What a model has written, with U+FFFD for what `no_text` refuses: a byte-level tokenizer has
    a token for NUL, and an answer may be cut inside a character."""
    return "".join("\ufffd" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in text)


def no_text(text: str) -> str | None:
    """Why no process, file or request can hold a text, and what would be right; None: it can."""
    if "\0" in text:
        return "a text cannot hold the character NUL (\\0), remove it"
    if any("\ud800" <= c <= "\udfff" for c in text):
        return "half a character (\\ud800 to \\udfff) is no text, write the character itself"
    return None


def unseen(text: str) -> str | None:
    """Why a value that is shown on screens and in reports should not hold a character, and what
    would be right; None where each can be seen."""
    found = _UNSEEN.search(text)
    if found is None:
        return None
    which = f"U+{ord(found[0]):04X}"
    return f"the control character {which} would be hidden where this is shown, remove it"
