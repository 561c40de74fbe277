"""The draft-TP plug-in as a patch for people who build SGLang themselves.

The plug-in's files become a package inside SGLang, and each module that it changes calls it in its
last lines. All context comes from the given copy: no line of SGLang's is kept here.
"""

import difflib
from collections.abc import Iterator
from pathlib import Path

from tuner.engine.sglang.plugin import CARRIER
from tuner.errors import UserError

PACKAGE = "sglang/srt/specbench_sglang"
_CALL = """

# The draft on its own tensor-parallel size, where SPECBENCH_DRAFT_TP asks for it.
from sglang.srt.specbench_sglang.entry import patch_here as _specbench_patch_here  # noqa: E402

_specbench_patch_here(__name__)
"""


def draft_tp_diff(source: Path) -> str:
    """A unified diff for `git apply -p1` in `source`, which holds `sglang/`. Raises UserError."""
    from tuner.plugin.specbench_sglang.entry import patches

    if not (source / "sglang/srt").is_dir():
        raise UserError(f"{source} holds no sglang/srt; name the folder above the package")
    if (source / PACKAGE).exists():
        raise UserError(f"{source} has the patch already")
    return "".join((*_new_files(), *_changes(source, list(patches()))))


def _new_files() -> Iterator[str]:
    for file in sorted((CARRIER / "specbench_sglang").glob("*.py")):
        path = f"{PACKAGE}/{file.name}"
        lines = file.read_text().splitlines()
        yield f"diff --git a/{path} b/{path}\nnew file mode 100644\n"
        yield f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{len(lines)} @@\n"
        yield from (f"+{line}\n" for line in lines)


def _changes(source: Path, modules: list[str]) -> Iterator[str]:
    for module in modules:
        path = f"{module.replace('.', '/')}.py"
        if not (source / path).is_file():
            continue  # not in every release
        before = (source / path).read_text()
        if not before.endswith("\n"):
            raise UserError(f"{path} does not end with a line end, which no release does")
        after = before + _CALL
        yield f"diff --git a/{path} b/{path}\n"
        yield from difflib.unified_diff(
            before.splitlines(keepends=True),
            after.splitlines(keepends=True),
            f"a/{path}",
            f"b/{path}",
        )
