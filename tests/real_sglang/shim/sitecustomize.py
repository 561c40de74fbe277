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
from pathlib import Path
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


def speculates_on_a_cpu() -> bool:
    """From 0.5.16 on speculation has branches for a CPU."""
    package = Path(sys.modules["sglang"].__path__[0])
    return "_is_cpu" in (package / "srt/speculative/spec_utils.py").read_text()


def let_cuda_branches_run(module: ModuleType) -> None:
    """Where there is no branch for a CPU: CUDA's, with the stand-ins' kernels."""
    if speculates_on_a_cpu():
        return
    import sgl_kernel

    for name, value in CUDA_ONLY[module.__name__].items():
        setattr(module, name, getattr(sgl_kernel, value) if isinstance(value, str) else value)


def let_cuda_be_waited_for(_worker: ModuleType) -> None:
    """Where the draft's embedding is set, SGLang up to 0.5.15 waits for a device without asking."""
    if speculates_on_a_cpu():
        return
    import torch

    torch.cuda.synchronize = lambda *_: None


def let_models_be_as_they_are(module: ModuleType) -> None:
    """0.5.8 wants torchao before it looks whether it has anything to quantise."""
    module.apply_torchao_config_to_model = lambda model, *_: model  # type: ignore[attr-defined]


SAMPLING = (
    "top_k_renorm_prob",
    "top_p_renorm_prob",
    "tree_speculative_sampling_target_only",
)
CUDA_ONLY: dict[str, dict[str, str | bool]] = {
    "sglang.srt.speculative.spec_utils": {"TREE_SPEC_KERNEL_AVAILABLE": True},
    "sglang.srt.speculative.eagle_utils": {
        "_is_cuda": True,  # read by verify_tree_greedy_func
        "sgl_build_tree_kernel_efficient": "build_tree_kernel_efficient",
    },
    # read by assign_extend_cache_locs_func of 0.5.13 to 0.5.15
    "sglang.srt.speculative.triton_ops.cache_locs": {"_is_cuda": True},
    "sglang.srt.speculative.eagle_info": {name: name for name in SAMPLING},
    "sglang.srt.speculative.eagle_info_v2": {name: name for name in SAMPLING},
}


BEFORE: dict[str, Callable[[], None]] = {"torchvision": define_torchvision_operators}
AFTER: dict[str, Callable[[ModuleType], None]] = {
    "sglang.srt.speculative.draft_utils": let_torch_native_draft,
    "sglang.srt.layers.attention.torch_native_backend": let_torch_native_verify,
    "sglang.srt.speculative.eagle_worker": let_cuda_be_waited_for,
    "sglang.srt.speculative.eagle_worker_v2": let_cuda_be_waited_for,
    "sglang.srt.layers.torchao_utils": let_models_be_as_they_are,
    **dict.fromkeys(CUDA_ONLY, let_cuda_branches_run),
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
