"""YAML read strictly: plain values, and the line of each.

Stricter than YAML 1.1, which reads `off` as false, `010` as 8 and `1:30` as 90: such words are
refused with what to write instead, because a sweep file names flags and variables where each of
these means something else. Duplicate keys are refused too; YAML keeps the last one silently.
"""

import re
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import yaml

from tuner.errors import UserError

Path = tuple[str | int, ...]

MAX_NODES = 100_000
"""Values in one file; more come only from aliases that multiply."""

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
        return UserError(f"{name}: {message}" if name else message, self.where(path))


def spell(path: Path) -> str:
    """A path as people write it: `space.env.NCCL_PROTO[2]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def read_document(text: str, source: str) -> Document:
    """Read one YAML document. Raises UserError with FILE:LINE."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problem = (error.problem or "this is not YAML").replace("\n", " ")
        raise UserError(f"this is not YAML: {problem}", f"{source}:{line}") from error
    except yaml.YAMLError as error:
        raise UserError(f"this is not YAML: {' '.join(str(error).split())}", source) from error
    except RecursionError as error:
        raise UserError("this is nested too deeply to be a sweep file", source) from error
    document = Document(source)
    if node is not None:
        document.value = _Reader(document).value(node, (), ())
    return document


class _Reader:
    """Turns nodes into values, noting lines."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.count = 0

    def value(self, node: yaml.Node, path: Path, inside: tuple[int, ...]) -> Any:
        self.document.lines[path] = node.start_mark.line + 1
        self.count += 1
        if self.count > MAX_NODES or id(node) in inside or len(inside) > 100:
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
            line = key_node.start_mark.line + 1
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, Hashable) or not isinstance(key, str):
                raise UserError(
                    f"{spell(path) or 'the file'}: a key is one word, not a list or a mapping",
                    f"{self.document.source}:{line}",
                )
            if key in result:
                first = self.document.line((*path, key))
                raise UserError(
                    f"{spell((*path, key))}: this key is there twice (first at line {first}), "
                    "keep one",
                    f"{self.document.source}:{line}",
                )
            result[key] = self.value(value_node, (*path, key), inside)
            # Messages point at the key: that is where a mapping's mistake is looked for.
            self.document.lines[(*path, key)] = line
        return result

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        text = node.value
        if node.style is not None or (node.tag == "tag:yaml.org,2002:str" and node.style):
            return text
        if text in ("", "~", "null", "Null", "NULL"):
            return None
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        if text.lower() in _SWITCH_WORDS:
            meant = "true" if text.lower() in ("yes", "on", "y") else "false"
            raise self.document.error(
                path,
                f"YAML reads {text} as a boolean, write {meant} for the switch or "
                f'"{text}" in quotes for the word',
            )
        if _INT.fullmatch(text):
            return self._int(text, path)
        if _OTHER_INT.fullmatch(text) or _SEXAGESIMAL.fullmatch(text):
            raise self.document.error(
                path,
                f'{text} is read differently by each YAML reader, write it in decimal or "{text}"',
            )
        if _FLOAT.fullmatch(text):
            return float(text)
        return text

    def _int(self, text: str, path: Path) -> int:
        if len(text) > 18:
            raise self.document.error(path, f"{text[:12]}... is too large a number")
        return int(text)
