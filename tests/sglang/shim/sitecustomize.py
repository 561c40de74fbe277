"""Lets SGLang speculate on a CPU, and start sooner.

Runs in every Python whose PYTHONPATH has this folder.

SGLang's launcher starts schedulers as processes of their own, which inherit PYTHONPATH, so a change
made here reaches all of them. Modules are changed just before or after their import; what is not
imported is not touched, and nothing heavy is imported here.
"""

import gc
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType


def define_torchvision_operators() -> None:
    """The operators whose schemas torchvision looks up; its CUDA wheel cannot define them here."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    define_torchvision_operators.library = library  # type: ignore[attr-defined]  # keeps them


def let_torch_native_draft(module: ModuleType) -> None:
    from cpu_drafting import extend_factory

    extend_factory(module.DraftBackendFactory)


def let_torch_native_verify(module: ModuleType) -> None:
    from cpu_drafting import extend_backend

    extend_backend(module.TorchNativeAttnBackend)


BEFORE: dict[str, Callable[[], None]] = {"torchvision": define_torchvision_operators}
AFTER: dict[str, Callable[[ModuleType], None]] = {
    "sglang.srt.speculative.draft_utils": let_torch_native_draft,
    "sglang.srt.layers.attention.torch_native_backend": let_torch_native_verify,
}


class ChangesOnImport(importlib.abc.MetaPathFinder):
    """Finds no module itself; wraps the loader that the other finders come up with."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if before := BEFORE.pop(name, None):
            before()
        after = AFTER.pop(name, None)
        if after is None:
            return None
        spec = importlib.util.find_spec(name)  # the name is off the list: no endless round
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_change(module: ModuleType) -> None:
                execute(module)
                after(module)

            spec.loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, ChangesOnImport())

# A launch is three Pythons or more that import all of SGLang: most of what these tests take. A
# quarter of that is the collector looking through what is still being made, in vain; a server here
# lives for a minute. Other scripts, which may train, keep theirs.
if any("sglang.launch_server" in word or "multiprocessing" in word for word in sys.orig_argv):
    gc.disable()
