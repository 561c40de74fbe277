"""A package that stands in for SGLang, and programs that load the plug-in into it."""

import os
import subprocess
import sys
from pathlib import Path

from tuner.sglang.draft_tp import CARRIER

LOAD = (
    "from importlib.metadata import entry_points as e; "
    "[p.load()() for p in e(group='sglang.srt.plugins')]; "
)


SCHEDULER = "class Scheduler:\n    def __init__(self, server_args): self.built = True\n"
USE = (
    "from types import SimpleNamespace as N; from sglang.srt.managers.scheduler import Scheduler; "
    "print(Scheduler(N(tp_size=4, speculative_algorithm='EAGLE3')).built)"
)


def fake_sglang(folder: Path, release: str, scheduler: str) -> Path:
    """Write a package `sglang` that has only a scheduler."""
    managers = folder / "sglang" / "srt" / "managers"
    managers.mkdir(parents=True)
    for package in (managers, managers.parent, managers.parent.parent):
        (package / "__init__.py").write_text("")
    (folder / "sglang" / "version.py").write_text(f"__version__ = '{release}'\n")
    (managers / "scheduler.py").write_text(scheduler)
    return folder


def run_python(
    program: str, site: Path, draft_tp: str | None, *, plugin: bool = True, **more: str
) -> tuple[int, str]:
    """Run a program as SGLang's interpreter would. Return its exit code and its output."""
    folders = [str(CARRIER)] * plugin + [str(site)]
    env = {"PYTHONPATH": os.pathsep.join(folders), "PATH": os.environ["PATH"], **more}
    if draft_tp is not None:
        env["SPECBENCH_DRAFT_TP"] = draft_tp
    # -S: without this environment's packages, as in an interpreter that is only SGLang's.
    told = subprocess.run(
        [sys.executable, "-S", "-c", program], env=env, capture_output=True, text=True, check=False
    )
    return told.returncode, (told.stdout + told.stderr).strip()
