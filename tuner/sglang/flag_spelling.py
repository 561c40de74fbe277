"""Flags in the spelling of the release at hand.

A sweep file may use any release's spelling: `cuda-graph-max-bs-decode` becomes `cuda-graph-max-bs`
on 0.5.8, and the other way round on 0.5.23. What stands for what is SGLang's own: its deprecated
spellings name their successors (arguments.replacements).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches

from tuner.config.schema import ServerFlag
from tuner.server.base import ServerConfig
from tuner.sglang.flag_catalogue import Argument, replacements
from tuner.sglang.releases import Release

_OLD_SWITCHES: Mapping[str, tuple[str, str | bool]] = {
    "disable-prefill-cuda-graph": ("cuda-graph-backend-prefill", "disabled"),
    "disable-decode-cuda-graph": ("disable-cuda-graph", True),
}
"""Newer conveniences that SGLang's deprecations do not name -> what says the same."""


@dataclass(frozen=True)
class Spelled:
    """A flag as the release takes it. Both None where the release needs no word for it."""

    name: str | None
    value: ServerFlag | None


def spell(name: str, value: ServerFlag, release: Release) -> Spelled | None:
    """The flag in the release's spelling; None where the release has nothing of the kind.

    A value that is False leaves a switch away under any name.
    """
    if name in release.arguments:
        return Spelled(name, value)
    for known, known_value in _same(name, value):
        if known in release.arguments:
            return Spelled(known, known_value)
    if _asks_for_no_prefill_graphs(name, value) and release.text("prefill_graphs") == "off":
        return Spelled(None, None)
    return None


def _same(name: str, value: ServerFlag) -> list[tuple[str, ServerFlag]]:
    """Other spellings of `--name value`, newer ones first."""
    if name in _OLD_SWITCHES and isinstance(value, bool):
        other, other_value = _OLD_SWITCHES[name]
        spelled: ServerFlag = other_value if value else False
        return [(other, spelled), *_same(other, spelled)]
    found: list[tuple[str, ServerFlag]] = []
    new, equals, new_value = replacements().get(name, "").partition("=")
    if new:
        found.append((new, (new_value if value else False) if equals else value))
    for old, successor in replacements().items():
        new, equals, new_value = successor.partition("=")
        if new == name and not equals:
            found.append((old, value))
        elif new == name and value in (new_value, False):
            found.append((old, value is not False))
    if name == "cuda-graph-backend-decode" and value in ("disabled", False):
        found.append(("disable-cuda-graph", value is not False))
    return found


def _asks_for_no_prefill_graphs(name: str, value: ServerFlag) -> bool:
    """True for what 0.5.8 and 0.5.9 do unasked: they have no prefill graphs by default."""
    spellings = [(name, value), *_same(name, value)]
    return ("cuda-graph-backend-prefill", "disabled") in spellings


def find_argument(name: str, value: ServerFlag, release: Release) -> Argument | None:
    """What the release knows of the flag, under whichever spelling."""
    spelled = spell(name, value, release)
    if spelled is None or spelled.name is None:
        return None
    return release.arguments[spelled.name]


def spelled_config(config: ServerConfig, release: Release) -> ServerConfig:
    """The same server with its flags in the release's spelling.

    Flags that the release lacks stay as they are: SGLang's own refusal is then the answer.
    """
    flags: dict[str, ServerFlag] = {}
    for name, value in config.flags.items():
        spelled = spell(name, value, release) or Spelled(name, value)
        if spelled.name is not None and spelled.value is not None and spelled.value is not False:
            flags[spelled.name] = spelled.value
    return replace(config, flags=flags)


def unknown_flag(name: str, release: Release) -> str:
    """The sentence for a flag that the release does not have."""
    close = get_close_matches(name, [*release.arguments], n=1, cutoff=0.7)
    advice = f"did you mean --{close[0]}?" if close else "remove it"
    return f"SGLang {release.known} has no --{name}, {advice}"
