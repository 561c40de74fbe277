"""Refresh what specbench knows of each SGLang release from the wheels on PyPI.

    python scripts/releases.py [--keep] [--cache build/sglang-wheels] [VERSION ...]

Downloads one wheel at a time (4 to 40 MB, without dependencies), reads its source text, writes
tuner/sglang/data/arguments.json and deletes the wheel again. Nothing is installed and
nothing of SGLang is run. With versions, only those are read anew.
"""

import argparse
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sglang_arguments import Sources, read_arguments
from sglang_facts import read_facts

OLDEST = (0, 5, 8)
SNAPSHOT = Path(__file__).parents[1] / "tuner/sglang/data/arguments.json"
PIP = (sys.executable, "-m", "pip")
# Any wheel will do, as nothing is run: those for Linux and one Python are always there.
PLATFORM = ("--only-binary", ":all:", "--python-version", "3.12")
PLATFORM += ("--platform", "manylinux_2_34_x86_64", "--platform", "any")


def version_key(version: str) -> tuple[int, ...]:
    """`0.5.12.post1` as (0, 5, 12, 1): after 0.5.12 and before 0.5.13."""
    release, _, post = version.partition(".post")
    return (*map(int, release.split(".")), int(post or 0))


def published() -> list[str]:
    """Every release from the oldest supported one on, oldest first."""
    asked = subprocess.run(
        [*PIP, "index", "versions", "sglang"], capture_output=True, text=True, check=True
    )
    line = next(x for x in asked.stdout.splitlines() if x.startswith("Available versions:"))
    versions = re.findall(r"(?<![\w.])\d+\.\d+\.\d+(?:\.post\d+)?(?![\w.])", line)
    return sorted((v for v in versions if version_key(v)[:3] >= OLDEST), key=version_key)


def download(version: str, cache: Path) -> Path:
    """The release's wheel, from the cache or from PyPI."""
    cache.mkdir(parents=True, exist_ok=True)
    kept = sorted(cache.glob(f"sglang-{version}-*.whl"))
    if not kept:
        command = [*PIP, "download", "--quiet", "--no-deps", *PLATFORM, "--dest", str(cache)]
        subprocess.run([*command, f"sglang=={version}"], check=True)
        kept = sorted(cache.glob(f"sglang-{version}-*.whl"))
    return kept[0]


def read_wheel(wheel: Path) -> Sources:
    """The Python files of the server, by their path below `sglang/`."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name.removeprefix("sglang/"): archive.read(name).decode("utf-8")
            for name in archive.namelist()
            if name.startswith("sglang/srt/") and name.endswith(".py")
        }


class Snapshot:
    """Values by release, stored as spans of releases with equal values.

    {"releases": [...], "flags": {name: [span, ...]}, "facts": {name: [span, ...]}} where a span is
    {"first": version, "last": version, ...value}; a release in no span of a flag lacks the flag.
    """

    def __init__(self) -> None:
        self.values: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
        """release -> "flags" or "facts" -> name -> value."""

    @classmethod
    def read(cls, path: Path) -> "Snapshot":
        snapshot = cls()
        stored = json.loads(path.read_text(encoding="utf-8"))
        order: list[str] = stored["releases"]
        for release in order:
            snapshot.values[release] = {"flags": {}, "facts": {}}
        for section in ("flags", "facts"):
            for name, spans in stored[section].items():
                for span in spans:
                    first, last = order.index(span.pop("first")), order.index(span.pop("last"))
                    for release in order[first : last + 1]:
                        snapshot.values[release][section][name] = span
        return snapshot

    def add(self, release: str, sources: Sources) -> None:
        facts = {name: {"names": names} for name, names in read_facts(sources).items()}
        self.values[release] = {"flags": read_arguments(sources), "facts": facts}

    def text(self) -> str:
        """JSON with one span a line, so that a diff shows what a release changed."""
        order = sorted(self.values, key=version_key)
        parts = [f'"releases": {json.dumps(order)}']
        for section in ("flags", "facts"):
            names = sorted({name for each in self.values.values() for name in each[section]})
            rows = (f"{json.dumps(n)}: [\n{self._rows(order, section, n)}\n]" for n in names)
            parts.append(f'"{section}": {{\n' + ",\n".join(rows) + "\n}")
        return "{\n" + ",\n".join(parts) + "\n}\n"

    def _rows(self, order: Sequence[str], section: str, name: str) -> str:
        return ",\n".join(json.dumps(span) for span in self._spans(order, section, name))

    def _spans(self, order: Sequence[str], section: str, name: str) -> Iterator[dict[str, Any]]:
        span: dict[str, Any] | None = None
        for release in order:
            value = self.values[release][section].get(name)
            if span is not None and value == {
                k: v for k, v in span.items() if k not in ("first", "last")
            }:
                span["last"] = release
                continue
            if span is not None:
                yield span
            span = None if value is None else {"first": release, "last": release, **value}
        if span is not None:
            yield span


def main() -> None:
    """Read the releases and write the snapshot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", metavar="VERSION")
    parser.add_argument("--cache", type=Path, default=Path("build/sglang-wheels"))
    parser.add_argument("--keep", action="store_true", help="keep the wheels in the cache")
    options = parser.parse_args()
    snapshot = Snapshot.read(SNAPSHOT) if options.versions else Snapshot()
    for version in options.versions or published():
        wheel = download(version, options.cache)
        snapshot.add(version, read_wheel(wheel))
        print(f"{version}: {len(snapshot.values[version]['flags'])} arguments", flush=True)
        if not options.keep:
            wheel.unlink()
    SNAPSHOT.parent.mkdir(parents=True, exist_ok=True)
    SNAPSHOT.write_text(snapshot.text(), encoding="utf-8")
    print(f"{SNAPSHOT}: {SNAPSHOT.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
