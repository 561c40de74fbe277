"""SGLang's arguments and other facts by release, as extracted from the wheels on PyPI.

The data is data/arguments.json, which scripts/releases.py writes: names, kinds, types, choices and
literal defaults, as spans of releases that agree.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # each simulated server reads this module, and starts without pydantic
    from tuner.config.schema import ServerFlag

OPEN = "open"
"""Choices that SGLang computes at start: not known here."""
_KINDS = {"switch": "no value", "value": "one value", "list": "a list", "optional": "at most one"}


@dataclass(frozen=True)
class Argument:
    """One command-line argument of one release."""

    name: str
    """Its first long name, without dashes."""
    kind: str
    """switch, value, list, or optional (with or without a value)."""
    type: str | None
    """int, float, str, or the name of SGLang's own reader; None for a switch."""
    choices: tuple[Any, ...] | None
    """None where anything of the type goes, or where SGLang computes them at start."""
    default: Any
    """None also where the default is computed."""
    aliases: tuple[str, ...]
    deprecated: bool
    replaced_by: str | None
    """What a deprecated spelling stands for: `--new`, or `--new=value`."""

    def misfit(self, value: "ServerFlag") -> str | None:
        """Why argparse would refuse the value, as `wants ...`; None where it would not."""
        if self.kind == "switch":
            return None if isinstance(value, bool) else "is a switch, write true or false"
        if value is True:
            return None if self.kind == "optional" else f"wants {self._wanted()}, not true"
        if isinstance(value, list) and self.kind != "list":
            return f"wants {self._wanted()}, not a list"
        for each in value if isinstance(value, list) else [value]:
            if not self._takes(each):
                return f"wants {self._wanted()}, not {each}"
        return None

    def _takes(self, value: Any) -> bool:
        if self.choices is not None and str(value) not in map(str, self.choices):
            return False
        readers = {"int": int, "float": float}
        if self.type in readers:
            try:
                readers[self.type](str(value))
            except ValueError:
                return False
        return True

    def _wanted(self) -> str:
        if self.choices is not None:
            return "one of " + ", ".join(map(str, self.choices))
        words = {"int": "a whole number", "float": "a number"}
        return words.get(self.type or "", _KINDS[self.kind])


@cache
def _snapshot() -> dict[str, Any]:
    file = resources.files("tuner.sglang") / "data" / "arguments.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


@cache
def releases() -> tuple[str, ...]:
    """Every release in the snapshot, oldest first."""
    return tuple(_snapshot()["releases"])


@cache
def arguments(release: str) -> Mapping[str, Argument]:
    """The release's arguments by every name that they have, aliases included."""
    found: dict[str, Argument] = {}
    for name, spans in _snapshot()["flags"].items():
        value = _at(release, spans)
        if value is not None:
            argument = _argument(name, value)
            found |= dict.fromkeys((name, *argument.aliases), argument)
    return found


def fact(release: str, name: str) -> tuple[str, ...]:
    """Names that the release's source has: `meta_info`, `workers`, `environment`, ..."""
    value = _at(release, _snapshot()["facts"][name])
    return () if value is None else tuple(value["names"])


@cache
def replacements() -> Mapping[str, str]:
    """Deprecated spelling -> `new` or `new=value`, over all releases, where it is one for one."""
    found: dict[str, str] = {}
    for name, spans in _snapshot()["flags"].items():
        for span in spans:
            new = str(span.get("replaced_by", "")).removeprefix("--")
            if new and not set(new) & set("{<, "):
                found[name] = new
    return found


def _at(release: str, spans: list[dict[str, Any]]) -> dict[str, Any] | None:
    order = releases()
    index = order.index(release)
    for span in spans:
        if order.index(span["first"]) <= index <= order.index(span["last"]):
            return span
    return None


def _argument(name: str, value: Mapping[str, Any]) -> Argument:
    choices = value.get("choices")
    return Argument(
        name=name,
        kind=value["kind"],
        type=value.get("type"),
        choices=None if choices in (None, OPEN) else tuple(choices),
        default=value.get("default"),
        aliases=tuple(value.get("aliases", ())),
        deprecated=value.get("deprecated", False),
        replaced_by=value.get("replaced_by"),
    )
