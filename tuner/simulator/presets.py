"""Presets: the numbers of a machine, each with its source; overrides change them.

A number in a preset file is `{value, basis, source}`: `given` was published or measured,
`fitted` was chosen so that the given ones come out, `assumed` is a guess that nothing contradicts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

from tuner.core.errors import UserError, did_you_mean
from tuner.simulator.acceptance import SimulatedAcceptance
from tuner.simulator.performance import Draft, Factors, Linear, SimulatedMachine, StartUp

BASES = ("given", "fitted", "assumed")
LARGEST = 1e8
"""Limit of any number; far above what one can mean, and small enough to sleep for."""
# The loader in Python adds 7 ms to each start of a server.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Number:
    """One number of a preset: `basis` is given, fitted, assumed, or override."""

    value: Any
    basis: str
    source: str


def preset_names() -> list[str]:
    """Return the presets in the package, sorted."""
    files = resources.files("tuner.simulator") / "presets"
    return sorted(f.name.removesuffix(".yaml") for f in files.iterdir() if f.name.endswith(".yaml"))


def preset_description(name: str) -> str:
    """Return in one line what a preset plays."""
    return str(_read(name)["description"])


@cache
def preset_numbers(name: str) -> Mapping[str, Number]:
    """Return every number of a preset by dotted name. Raises UserError for an unknown preset."""
    if name not in preset_names():
        raise UserError(f"there is no preset '{name}', there are {', '.join(preset_names())}")
    numbers: dict[str, Number] = {}
    _flatten(_read(name), "", numbers)
    return numbers


@cache
def _read(name: str) -> dict[str, Any]:
    file = resources.files("tuner.simulator") / "presets" / f"{name}.yaml"
    content: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506
    return content


def _flatten(table: Mapping[str, Any], prefix: str, into: dict[str, Number]) -> None:
    for key, entry in table.items():
        if not isinstance(entry, dict):
            continue  # the file's own description
        if "basis" in entry:
            into[prefix + key] = Number(entry["value"], entry["basis"], entry.get("source", ""))
        else:
            _flatten(entry, f"{prefix}{key}.", into)


def load_preset(name: str, overrides: Mapping[str, Any] | None = None) -> SimulatedMachine:
    """Return the machine of a preset, with `overrides` by dotted name, such as `verify.base_ms`.

    Raises UserError for an unknown preset, an unknown name or a value of the wrong shape.
    """
    numbers = dict(preset_numbers(name))
    for key, value in (overrides or {}).items():
        check_override(name, key, value)
        numbers[key] = Number(value, "override", "")
    return _machine(name, {key: number.value for key, number in numbers.items()})


def check_override(preset: str, key: str, value: Any) -> None:
    """Raise UserError if the preset has no such number, or one of another shape."""
    numbers = preset_numbers(preset)
    if key not in numbers and not key.startswith("kinds."):
        known = [number for number in numbers if not number.startswith("nccl.")]
        raise UserError(f"preset {preset} has no number '{key}', {did_you_mean(key, known)}")
    _check_shape(key, value, numbers.get(key))


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value <= LARGEST


def _check_shape(key: str, value: Any, now: Number | None) -> None:
    if key == "acceptance":
        chances = value if isinstance(value, list) else [value]
        if not chances or not all(_is_number(c) and c <= 1 for c in chances):
            raise UserError("acceptance is a chance from 0 to 1, or a list with one per position")
    elif now is not None and isinstance(now.value, bool):
        if not isinstance(value, bool):
            raise UserError(f"{key} is true or false")
    elif now is not None and isinstance(now.value, list):
        if not (isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))):
            raise UserError(f"{key} is a pair of factors, [latency, per_token]")
    elif not _is_number(value):
        raise UserError(
            f"{key} is a number that is not negative, up to {LARGEST:g}; {value!r} is none"
        )
    elif key in ("tp", "token_capacity") and (not isinstance(value, int) or value < 1):
        raise UserError(f"{key} is a whole number from 1, {value!r} is none")


def _machine(name: str, n: Mapping[str, Any]) -> SimulatedMachine:
    def group(prefix: str) -> dict[str, Any]:
        return {k.removeprefix(prefix): v for k, v in n.items() if k.startswith(prefix)}

    nccl: dict[str, dict[str, Factors]] = {}
    for key, (latency, per_token) in group("nccl.").items():
        variable, value = key.split(".")
        nccl.setdefault(variable, {})[value] = Factors(latency, per_token)
    chances = n["acceptance"] if isinstance(n["acceptance"], list) else [n["acceptance"]]
    return SimulatedMachine(
        name=name,
        tp=n["tp"],
        nvlink=n["nvlink"],
        acceptance=SimulatedAcceptance(tuple(chances), n["topk_gain"], group("kinds.")),
        algorithm_factors=group("algorithms."),
        step=Linear(**group("step.")),
        verify=Linear(**group("verify.")),
        all_reduce=Linear(**group("all_reduce.")),
        custom_all_reduce=Linear(**group("custom_all_reduce.")),
        nccl=nccl,
        draft=Draft(**group("draft.")),
        prefill=Linear(**group("prefill.")),
        startup=StartUp(**group("startup.")),
        noise=n["noise"],
        weight_gb=n["memory.weight_gb"],
        kv_cache_gb=n["memory.kv_cache_gb"],
        token_capacity=n["memory.token_capacity"],
    )
