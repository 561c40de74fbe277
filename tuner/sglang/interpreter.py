"""What the server's interpreter says about its SGLang, asked in a child process."""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_VERSION_LIMIT_S = 60.0
_HELP_LIMIT_S = 180.0
# Without importing SGLang, which takes half a minute and opens the GPU. A checkout on PYTHONPATH
# has no metadata but a version file.
_VERSION = """
import importlib.metadata, importlib.util, pathlib, re
try:
    print(importlib.metadata.version("sglang"))
except importlib.metadata.PackageNotFoundError:
    spec = importlib.util.find_spec("sglang")
    folder = pathlib.Path(spec.origin).parent if spec and spec.origin else None
    for name in ("_version.py", "version.py") if folder else ():
        if (folder / name).is_file():
            found = re.search(r"version.*= *['\\"]([0-9][^'\\"]*)", (folder / name).read_text())
            if found:
                print(found[1])
                break
"""
# Lines `NAME VALUE`; plugin once for each that SGLang would load.
_PACKAGES = (
    'import platform\nprint("python", platform.python_version())\nprint("sglang", end=" ")'
    + _VERSION
    + """
print()
try:
    print("torch", importlib.metadata.version("torch"))
except importlib.metadata.PackageNotFoundError:
    pass
for each in importlib.metadata.entry_points(group="sglang.srt.plugins"):
    print("plugin", each.value)
"""
)

# A folder that merely is called sglang has no origin.
_FOLDER = (
    "import importlib.util, pathlib\nspec = importlib.util.find_spec('sglang')\n"
    "print(pathlib.Path(spec.origin).parent.parent if spec and spec.origin else '')"
)


@dataclass(frozen=True)
class Installed:
    """What an interpreter has; None for a package that it lacks."""

    python: str
    sglang: str | None
    torch: str | None
    plugins: tuple[str, ...] = ()
    """Values of the entry points that SGLang 0.5.11 and later calls in every process."""


def installed_packages(python: str, env: Mapping[str, str] | None = None) -> Installed | None:
    """Versions that `python` has, from metadata: nothing is imported. None: it does not run.

    `env` is added to this process's environment, as it is for a launch.
    """
    words = _output([python, "-c", _PACKAGES], env, _VERSION_LIMIT_S)
    if words is None:
        return None
    lines = [line.split(maxsplit=1) for line in words.splitlines()]
    pairs = [(line[0], line[1].strip()) for line in lines if len(line) == 2]
    found = dict(pairs)
    return Installed(
        python=found.get("python", "of unknown version"),
        sglang=found.get("sglang"),
        torch=found.get("torch"),
        plugins=tuple(value for name, value in pairs if name == "plugin"),
    )


def installed_version(python: str, env: Mapping[str, str] | None = None) -> str | None:
    """The version of the SGLang that `python` has, None where it has none or does not say.

    `env` is added to this process's environment, as it is for a launch.
    """
    words = _output([python, "-c", _VERSION], env, _VERSION_LIMIT_S)
    return words.strip().splitlines()[-1].strip() if words and words.strip() else None


def folder_of_sglang(python: str) -> Path | None:
    """The folder that holds the `sglang/` that `python` imports; None where it has none."""
    words = (_output([python, "-c", _FOLDER], None, _VERSION_LIMIT_S) or "").strip()
    return Path(words.splitlines()[-1]) if words else None


def flags_of_help(python: str, env: Mapping[str, str] | None = None) -> frozenset[str] | None:
    """The flags that `sglang.launch_server --help` lists; None where it does not answer.

    Takes as long as importing SGLang does: half a minute.
    """
    command = [python, "-m", "sglang.launch_server", "--help"]
    # Unwrapped: a wrapped line ends in the middle of a name.
    words = _output(command, {**(env or {}), "COLUMNS": "100000"}, _HELP_LIMIT_S)
    found = frozenset(re.findall(r"(?<![\w-])--([a-z0-9][a-z0-9-]*)", words or ""))
    return found if "model-path" in found else None


def _output(command: list[str], env: Mapping[str, str] | None, limit_s: float) -> str | None:
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            env={**os.environ, **(env or {})},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ended.stdout if ended.returncode == 0 else None
