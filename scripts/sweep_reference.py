"""The table of keys in docs/sweep_file.md, written from the schema of sweep files.

    python scripts/sweep_reference.py           # writes the table anew (make sweep-reference)

The classes of tuner/config/schema.py are the one source: type, limits and default of each key are
their fields', the words are their docstrings, which `specbench schema` gives to editors too. A path
such as docs/search.md#racing in a docstring becomes a link in the table.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "sweep_file.md"
BEGIN = "<!-- keys: from tuner/config/schema.py by `make sweep-reference` -->"
END = "<!-- end of keys -->"
HEAD = "| key | what it is | type | default |\n|---|---|---|---|"
DURATION = "duration"
Schema = dict[str, Any]


def table() -> str:
    """The rows, in the order of the file, as Markdown."""
    from tuner.config.schema import json_schema

    schema = json_schema()
    return "\n".join([HEAD, *(_row(*each) for each in _keys(schema, schema["$defs"]))])


def with_table(page: str) -> str:
    """The page with the table between its two marks."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def _keys(section: Schema, defs: Schema, prefix: str = "") -> Iterator[tuple[str, Schema, bool]]:
    """(dotted name, schema, required) of each key that is no section itself."""
    for name, key in section["properties"].items():
        inner = defs.get(key.get("$ref", "").rpartition("/")[2])
        if inner is not None and inner.get("type") == "object":
            yield from _keys(inner, defs, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", key, name in section.get("required", [])


def _row(name: str, key: Schema, required: bool) -> str:
    kind, default = _type(key), key.get("default")
    if kind == DURATION and default:
        default = f"{default / 60:g}m"
    text = default if isinstance(default, str) else json.dumps(default)
    shown = "required" if required else "" if default is None else f"`{text}`"
    return f"| `{name}` | {_words(key)} | {kind} | {shown} |"


def _words(key: Schema) -> str:
    text = " ".join(key.get("description", "").split())
    linked = re.sub(r"docs/(\w+)\.md(#[\w-]+)?", r"[\1](\1.md\2)", text)
    return linked.replace("|", "\\|")


def _type(key: Schema) -> str:
    """In words: `integer, 1 to 512`, `list of text`."""
    if "anyOf" in key:
        kinds = [_type(each) for each in key["anyOf"] if each.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in key:
        return ", ".join(f"`{value}`" for value in key["enum"])
    if "const" in key:
        return f"`{key['const']}`"
    if "$ref" in key:
        return {"RangeSpec": "`{low, high}`"}.get(key["$ref"].rpartition("/")[2], "mapping")
    kind = key.get("type")
    if kind == ["string", "number"]:
        return DURATION
    if kind == "array":
        return f"list of {_type(key['items'])}"
    if kind == "object":
        return "mapping"
    if isinstance(kind, list):
        return " or ".join(_type({"type": each}) for each in kind)
    names = {"string": "text", "boolean": "`true` or `false`", "null": "nothing"}
    return names.get(str(kind), str(kind)) + _limits(key)


def _limits(key: Schema) -> str:
    low, above = key.get("minimum"), key.get("exclusiveMinimum")
    high, below = key.get("maximum"), key.get("exclusiveMaximum")
    start = f"above {above:,g}" if above is not None else "" if low is None else f"{low:,.12g}"
    end = f"below {below:,g}" if below is not None else "" if high is None else f"{high:,.12g}"
    if start and end:
        if above is None:
            return f", {start} to {end}"
        return f", {start}, {end if below is not None else f'{end} at most'}"
    return f", {start} or more" if low is not None else f", {start}{end}" if start or end else ""


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
