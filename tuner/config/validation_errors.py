"""Pydantic's errors as one sentence in the words of the sweep file."""

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tuner.config.schema import Sweep
from tuner.config.yaml_document import Document, Path, shortened
from tuner.core.errors import UserError, did_you_mean


def refusal(document: Document, error: ValidationError) -> UserError:
    """The first mistake in the order of the file.

    A key that is missing beside an unknown one is that one misspelt, so the unknown one is told.
    """
    found = [(_path(document, each), each) for each in error.errors()]
    misspelt = {place[:-1] for place, each in found if each["type"] == "extra_forbidden"}
    # A union reports each alternative; a mistake inside one of them is the one that was meant.
    around = {place[:length] for place, _ in found for length in range(len(place))}

    def rank(item: tuple[Path, ErrorDetails]) -> tuple[bool, bool, int]:
        place, each = item
        last = each["type"] == "missing" and (len(place) == 1 or place[:-1] in misspelt)
        return last, place in around, document.line(place)

    path, first = min(found, key=rank)
    if first["type"] == "missing":
        beside = [where for where, each in found if each["type"] == "missing"]
        return document.error(path, _required(path, beside))
    rivals = [each for where, each in found if where[: len(path)] == path or where == path]
    return document.error(path, _sentence(document, path, first, rivals))


def _required(path: Path, missing: Iterable[Path]) -> str:
    """What is to be added, with all that it has to hold; and what else is missing beside it."""
    inside = ", ".join(f"{key}: ..." for key in _schema_at(path).get("required", ()))
    sentence = f"this is required, add {path[-1]}: {f'{{{inside}}}' if inside else '...'}"
    others = [str(each[-1]) for each in missing if each[:-1] == path[:-1] and each != path]
    if len(others) == 1:
        return f"{sentence}; so is {others[0]}"
    return f"{sentence}; so are {', '.join(others[:-1])} and {others[-1]}" if others else sentence


def _path(document: Document, error: ErrorDetails) -> Path:
    """A pydantic location without the names of union members, which the file does not have."""
    path: list[str | int] = []
    value: Any = document.value
    parts = error["loc"]
    for index, part in enumerate(parts):
        in_list = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if in_list or (isinstance(value, dict) and part in value):
            value = value[part]
        elif index < len(parts) - 1 or error["type"] != "missing":
            continue
        path.append(part)
    return tuple(path)


def _value(document: Document, path: Path) -> Any:
    value = document.value
    for part in path:
        value = value[part]
    return value


def _sentence(
    document: Document,
    path: Path,
    error: ErrorDetails,
    rivals: list[ErrorDetails],
) -> str:
    kind = error["type"]
    if kind == "extra_forbidden":
        known = _known_keys(path[:-1])
        return f"unknown key, {did_you_mean(str(path[-1]), known)}"
    if kind == "value_error":
        return str(error["ctx"]["error"]) if "ctx" in error else error["msg"]
    shown = _shown(_value(document, path))
    wanted = _unique(_wanted(each) for each in rivals)
    return f"{shown} does not fit, write {' or '.join(wanted)}"


def _shown(value: Any) -> str:
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "an empty list" if not value else "a list"
    text = shortened(str(value))
    return f"'{text}'" if isinstance(value, str) else text


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "bool_type": "true or false",
    "list_type": "a list, such as [1, 2]",
    "dict_type": "a mapping, such as {KEY: value}",
    "model_type": "a mapping, such as {key: value}",
    "too_short": "a list of at least one value",
    "string_too_short": "a text that is not empty",
}


def _wanted(error: ErrorDetails) -> str:
    """What would be right, as words after `write`."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in _WANTED:
        if context.get("class_name") == "RangeSpec":
            return "{low: 1, high: 8}"
        return _WANTED[kind]
    if kind == "literal_error":
        return str(context["expected"]).replace("'", "")
    bounds = {"greater_than_equal": ("ge", "or more"), "less_than_equal": ("le", "or less")}
    if kind in bounds:
        name, words = bounds[kind]
        return f"{context[name]:,.12g} {words}"
    if kind == "greater_than":
        return f"more than {context['gt']}"
    if kind == "value_error" and "error" in context:
        return f"something else: {context['error']}"
    return error["msg"]


def _known_keys(path: Path) -> list[str]:
    """The keys that the sweep file's schema has at `path`."""
    return list(_schema_at(path).get("properties", {}))


def _schema_at(path: Path) -> dict[str, Any]:
    """The sweep file's JSON Schema of what stands at `path`."""
    schema = Sweep.model_json_schema()
    node: dict[str, Any] = schema
    for part in path:
        node = _resolve(schema, node)
        if isinstance(part, int):
            node = node.get("items", {})
        else:
            node = node.get("properties", {}).get(part, node.get("additionalProperties") or {})
    return _resolve(schema, node)


def _resolve(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    for each in (node, *node.get("anyOf", ())):
        if "$ref" in each:
            found: dict[str, Any] = schema["$defs"][each["$ref"].rsplit("/", 1)[-1]]
            return found
    return node
