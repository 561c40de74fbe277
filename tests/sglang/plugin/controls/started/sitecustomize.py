"""Starts the controls where SGLang has no plug-ins, and the sitecustomize that this one hides."""

import runpy
import sys
from pathlib import Path

import specbench_controls  # type: ignore[import-not-found]

specbench_controls.load()
for folder in sys.path[sys.path.index(str(Path(__file__).parent)) + 1 :]:
    hidden = Path(folder) / "sitecustomize.py"
    if hidden.is_file():
        runpy.run_path(str(hidden), run_name="sitecustomize")
        break
