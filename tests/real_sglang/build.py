"""Builds an SGLang that runs on this machine's CPU, in a folder that git ignores.

    python build.py [FOLDER [RELEASE ...]]

By default .venv-sglang in the checkout, with 0.5.17 and 0.5.23.

FOLDER/venv                 the packages of requirements.txt
FOLDER/sglang-RELEASE       SGLang, without its own requirements
FOLDER/python-RELEASE       an interpreter that has that SGLang: what engine.python is set to
FOLDER/models               tiny models with made-up weights, see make_models.py

Each part is made once and again when what it is made from has changed, so that running this twice
costs nothing. Only the standard library is used.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
DEFAULT = CHECKOUT / ".venv-sglang"
RELEASES = ("0.5.17", "0.5.23")

OLDER = ("0.5.8", "0.5.9", "0.5.10")
"""With plug-ins by sitecustomize and the V1 worker; made only where they are asked for."""
FIRST_ON_CPU = (0, 5, 16)
"""Speculation before it has no branch for a CPU."""

INTERPRETED = """\
# Speculation knows no CPU here: its Triton kernels are run by Triton's interpreter.
export TRITON_INTERPRET=1
"""

# Ranks take one field of cores each, or SGLang allows no more ranks than there are NUMA nodes.
WRAPPER = """\
#!/usr/bin/env bash
# Written by tests/real_sglang/build.py: a Python that has SGLang {release}, made to run on a CPU.
ranks=1
previous=
for word in "$@"; do
  case $previous in --tp-size|--tp|--tensor-parallel-size) ranks=$word ;; esac
  previous=$word
done
last=$(($(nproc) - 1))
binding=0-$last
if [ "$ranks" -gt 1 ]; then
  binding=0
  for ((rank = 1; rank < ranks; rank++)); do binding+="|$((rank % (last + 1)))"; done
fi
export SGLANG_USE_CPU_ENGINE=1
export SGLANG_CPU_OMP_THREADS_BIND="${{SGLANG_CPU_OMP_THREADS_BIND:-$binding}}"
export HF_HUB_OFFLINE=1
# Compiling for such models takes ten seconds of each start and wins nothing.
export TORCHDYNAMO_DISABLE=1
export OMP_NUM_THREADS="${{OMP_NUM_THREADS:-1}}"
{more}# The caller's first: a sitecustomize there runs the shim's, which knows of no other.
export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}"'{site}:{shim}'
exec '{python}' "$@"
"""


def interpreter(release: str, folder: Path = DEFAULT) -> Path:
    """The program that acts as a Python with this SGLang."""
    return folder / f"python-{release}"


def models(folder: Path = DEFAULT) -> Path:
    """The folder of the tiny models."""
    return folder / "models"


def build(folder: Path, releases: Iterable[str] = RELEASES) -> None:
    """Make whatever is missing or out of date. Raises CalledProcessError where pip fails."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        venv = folder / "venv"
        python = venv / "bin" / "python"
        packages = digest(HERE / "requirements.txt")
        made(venv, f"{sys.version} {packages}", make_venv)
        for release in releases:
            site = folder / f"sglang-{release}"
            made(site, release, lambda site, release=release: install(python, release, site))
            write_wrapper(interpreter(release, folder), release, site, python)
        script = HERE / "make_models.py"
        made(models(folder), f"{packages} {digest(script)}", lambda at: run(python, script, at))


def made(target: Path, of: str, make: Callable[[Path], None]) -> None:
    """`target` as made from `of`. The stamp beside it is written last: half a folder has none."""
    stamp = target.with_name(f"{target.name}.made-of")
    if stamp.is_file() and stamp.read_text() == of and target.is_dir():
        return
    print(f"making {target}", flush=True)
    stamp.unlink(missing_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    make(target)
    stamp.write_text(of)


def make_venv(at: Path) -> None:
    run(sys.executable, "-m", "venv", at)
    pip(at / "bin" / "python", "--requirement", HERE / "requirements.txt")


def install(python: Path, release: str, site: Path) -> None:
    pip(python, "--target", site, f"sglang=={release}")


def pip(python: Path, *words: str | Path) -> None:
    options = ("-qq", "--no-deps", "--disable-pip-version-check", "--no-warn-conflicts")
    run(python, "-m", "pip", "install", *options, *words)


def run(*words: str | Path) -> None:
    subprocess.run([str(word) for word in words], check=True)


def write_wrapper(path: Path, release: str, site: Path, python: Path) -> None:
    numbers = tuple(map(int, release.split(".")[:3]))
    more = INTERPRETED if numbers < FIRST_ON_CPU else ""
    text = WRAPPER.format(release=release, site=site, shim=HERE / "shim", python=python, more=more)
    if path.is_file() and path.read_text() == text:
        return
    new = path.with_suffix(".new")
    new.write_text(text)
    new.chmod(0o755)
    new.replace(path)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else DEFAULT, sys.argv[2:] or RELEASES)
