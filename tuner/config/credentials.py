"""Secrets in a sweep file: taken from the environment, learnt, and left out of copies.

`api-key: ${NAME}` in the place of a secret (tuner/core/secrets.py) is read from the environment
variable NAME. Anywhere else `${NAME}` is ordinary text.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tuner.config.yaml_document import Document, Path
from tuner.core import secrets
from tuner.core.secrets import is_secret


@dataclass(frozen=True)
class _Text:
    """A text of the file, and the name that makes it a secret as a whole."""

    path: Path
    value: str
    name: str | None


def _texts(value: Any, path: Path = (), name: str | None = None) -> Iterator[_Text]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _texts(each, (*path, key), key if is_secret(str(key)) else None)
    elif isinstance(value, list):
        before: Any = None
        for index, each in enumerate(value):
            flag = secrets.flag_in(before) if isinstance(before, str) else None
            yield from _texts(each, (*path, index), name or flag)
            before = each
    elif isinstance(value, str) or (name and _is_number(value)):
        yield _Text(path, str(value), name)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def reveal(document: Document, environ: Mapping[str, str]) -> None:
    """Put variables' values in the places of their names, and learn every secret of the file.

    Raises UserError at the line of a variable that is not set.
    """
    for text in list(_texts(document.value)):
        value = text.value
        for span in reversed(secrets.spans_of_word(value, text.name)):
            variable = secrets.variable_in(value[span.start : span.end])
            if variable is None:
                secrets.learn(value[span.start : span.end], span.variable)
                continue
            if not environ.get(variable):
                raise document.error(
                    text.path,
                    f"the variable {variable} is not set: export it, or write the secret here "
                    "(copies that specbench makes have only its name)",
                )
            secrets.learn(environ[variable], variable)
            value = value[: span.start] + environ[variable] + value[span.end :]
        if value != text.value:
            _put(document.value, text.path, value)


def revealed(text: str, environ: Mapping[str, str]) -> str:
    """A text of a run's own copy, such as a URL, with the secrets that the environment has."""
    for span in reversed(secrets.spans(text)):
        variable = secrets.variable_in(text[span.start : span.end])
        if variable is not None and environ.get(variable):
            secrets.learn(environ[variable], variable)
            text = text[: span.start] + environ[variable] + text[span.end :]
    return text


def _put(value: Any, path: Path, new: str) -> None:
    for part in path[:-1]:
        value = value[part]
    value[path[-1]] = new


def without_secrets(text: str, root: yaml.Node | None) -> str:
    """Return a sweep file's text with `${NAME}` for each secret, also in comments.

    `root` is the `Document.root` of `text`.
    """
    changes: dict[tuple[int, int], str] = {}
    for scalar, name in _scalars(root, None, ()):
        shown = secrets.hidden_word(scalar.value, name)
        if shown != scalar.value:
            place = scalar.start_mark.index, scalar.end_mark.index
            changes[place] = _written(text[slice(*place)], scalar, shown)
    parts, end = [], 0
    for (start, stop), new in sorted(changes.items()):
        parts += [secrets.hidden(text[end:start]), new]
        end = stop
    return "".join([*parts, secrets.hidden(text[end:])])


def _written(was: str, scalar: yaml.ScalarNode, shown: str) -> str:
    """The new scalar in the place of the old one, which may have an anchor in front."""
    anchor = f"{was.split()[0]} " if was.startswith("&") else ""
    ending = "\n" if scalar.style in ("|", ">") and was.endswith("\n") else ""
    quoted = shown.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{anchor}"{quoted}"{ending}'


def _scalars(
    node: yaml.Node | None, name: str | None, inside: tuple[int, ...]
) -> Iterator[tuple[yaml.ScalarNode, str | None]]:
    if node is None or id(node) in inside:
        return
    inside = (*inside, id(node))
    if isinstance(node, yaml.ScalarNode):
        yield node, name
    elif isinstance(node, yaml.SequenceNode):
        before: str | None = None
        for each in node.value:
            yield from _scalars(each, name or before, inside)
            before = secrets.flag_in(each.value) if isinstance(each, yaml.ScalarNode) else None
    elif isinstance(node, yaml.MappingNode):
        for key, each in node.value:
            is_named = isinstance(key, yaml.ScalarNode) and is_secret(key.value)
            yield from _scalars(each, key.value if is_named else None, inside)
