"""Starts the plug-in where SGLang has no plug-ins yet: 0.5.8 to 0.5.10.

Python imports one sitecustomize per interpreter; the one that this file hides is run as well.
"""

import os
import runpy
import sys
from pathlib import Path


def _run_hidden() -> None:
    here = Path(__file__).resolve().parent
    for folder in sys.path:
        candidate = Path(folder or ".") / "sitecustomize.py"
        if candidate.is_file() and candidate.resolve().parent != here:
            runpy.run_path(str(candidate), run_name="sitecustomize")
            return


_run_hidden()
if os.environ.get("SPECBENCH_DRAFT_TP") or os.environ.get("SPECBENCH_STEP_SWITCH"):
    import importlib

    importlib.import_module("specbench_sglang.entry").install()
