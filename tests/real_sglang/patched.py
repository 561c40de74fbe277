"""An interpreter whose SGLang has `specbench draft-tp diff` applied, made as a user would."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.real_sglang import build
from tuner.sglang.draft_tp import draft_tp_diff


def patched_python(release: str, folder: Path) -> Path:
    """The release's interpreter with a patched copy of its SGLang, in `folder`.

    Files are linked: `git apply` writes those that it changes anew.
    """
    site = build.DEFAULT / f"sglang-{release}"
    copy = folder / f"sglang-{release}"
    shutil.copytree(site, copy, copy_function=os.link)
    patch = folder / "draft_tp.diff"
    patch.write_text(draft_tp_diff(copy))
    for words in (["init", "-q"], ["apply", "-p1", str(patch)]):
        subprocess.run(["git", *words], cwd=copy, check=True)
    python = folder / f"python-{release}"
    wrapper = build.interpreter(release).read_text()
    assert str(site) in wrapper, "the interpreter has another SGLang"
    python.write_text(wrapper.replace(str(site), str(copy)))
    python.chmod(0o755)
    return python
