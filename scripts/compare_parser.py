"""Compare the snapshot with the parser of the SGLang that this interpreter has.

    /path/to/sglang/python scripts/compare_parser.py

Prints each difference; exit status 1 where there is one. The extraction (sglang_arguments.py) reads
source text only, so this is what shows that it reads it right.
"""

import argparse
import importlib.metadata
import sys
from collections.abc import Iterator
from typing import Any

from releases import SNAPSHOT, Snapshot

KINDS = {0: "switch", None: "value", "?": "optional", "+": "list", "*": "list"}


def parsers_own() -> dict[str, dict[str, Any]]:
    """SGLang's arguments as argparse has them, in the snapshot's form."""
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(add_help=False)
    ServerArgs.add_cli_args(parser)
    found = {}
    for action in parser._actions:
        names = [name[2:] for name in action.option_strings if name.startswith("--")]
        found[names[0]] = {
            "kind": KINDS[action.nargs],
            "type": getattr(action.type, "__name__", "str"),
            "choices": sorted(map(str, action.choices)) if action.choices else None,
            "aliases": sorted(names[1:]),
            "default": action.default,
        }
    return found


def differences(own: dict[str, Any], read: dict[str, Any]) -> Iterator[str]:
    """Each difference in one line. Choices and defaults that are computed are left out."""
    yield from (f"--{name}: only in the parser" for name in sorted(own.keys() - read.keys()))
    yield from (f"--{name}: only in the snapshot" for name in sorted(read.keys() - own.keys()))
    for name in sorted(own.keys() & read.keys()):
        mine = dict(read[name])
        mine["aliases"] = sorted(mine.get("aliases", []))
        if isinstance(mine.get("choices"), list):
            mine["choices"] = sorted(map(str, mine["choices"]))
        skipped = {"choices"} if mine.get("choices") == "open" else set()
        skipped |= {"type"} if mine["kind"] == "switch" or mine.get("deprecated") else set()
        skipped |= {"default"} if mine.get("default") is None else set()
        for part in own[name].keys() - skipped:
            if own[name][part] != mine.get(part):
                yield f"--{name}: {part} is {own[name][part]}, not {mine.get(part)}"


def main() -> int:
    """Compare and print."""
    version = importlib.metadata.version("sglang")
    found = list(differences(parsers_own(), Snapshot.read(SNAPSHOT).values[version]["flags"]))
    print("\n".join([*found, f"SGLang {version}: {len(found)} differences"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
