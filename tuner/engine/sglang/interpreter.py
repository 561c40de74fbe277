"""What the server's interpreter says about its SGLang, asked in a child process."""

import os
import re
import subprocess
from collections.abc import Mapping

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


def installed_version(python: str, env: Mapping[str, str] | None = None) -> str | None:
    """The version of the SGLang that `python` has, None where it has none or does not say.

    `env` is added to this process's environment, as it is for a launch.
    """
    words = _output([python, "-c", _VERSION], env, _VERSION_LIMIT_S)
    return words.strip().splitlines()[-1].strip() if words and words.strip() else None


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
