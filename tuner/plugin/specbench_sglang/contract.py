"""What the plug-in expects of each release, checked before anything is patched.

The same table is held against a snapshot of every release in tests/plugin/test_contract.py, so that
a new release fails there and not on a server.
"""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from .problems import NotPatched
from .versions import Version

SPECULATIVE = "sglang.srt.speculative"
SCHEDULER = "sglang.srt.managers.scheduler"
PARALLEL_STATE = "sglang.srt.distributed.parallel_state"
DP_ATTENTION = "sglang.srt.layers.dp_attention"
POOL = "sglang.srt.model_executor.pool_configurator"
RUNNER = "sglang.srt.model_executor.model_runner"
RUNTIME = "sglang.srt.runtime_context"
LAYOUT = "sglang.srt.configs.draft_parallel"
V2, STANDALONE_V2 = f"{SPECULATIVE}.eagle_worker_v2", f"{SPECULATIVE}.standalone_worker_v2"
COMMON = f"{SPECULATIVE}.eagle_worker_common"
UPDATER = "sglang.srt.managers.scheduler_components.weight_updater"
OLD_UPDATER = "sglang.srt.managers.scheduler_update_weights_mixin"
V1, STANDALONE_V1 = f"{SPECULATIVE}.eagle_worker", f"{SPECULATIVE}.standalone_worker"


@dataclass(frozen=True)
class Expected:
    """A name in a module and, where it is called or wrapped, its parameters."""

    module: str
    name: str
    """With a dot for a method."""
    first: tuple[str, ...] | None = None
    """The leading parameters, self included."""
    among: tuple[str, ...] = ()
    """Parameters that must exist somewhere."""

    @property
    def where(self) -> str:
        return f"{self.module}.{self.name}"

    def mismatch(self, parameters: list[str] | None) -> str | None:
        """What is wrong; `parameters` is None where the name is missing, [] for no function."""
        if parameters is None:
            return f"{self.where} is missing"
        if self.first is not None and tuple(parameters[: len(self.first)]) != self.first:
            return (
                f"{self.where} takes ({', '.join(parameters)}), not ({', '.join(self.first)}, ..)"
            )
        for name in self.among:
            if name not in parameters:
                return f"{self.where} has no parameter {name}"
        return None


def expectations(version: Version) -> list[Expected]:
    """Everything that the plug-in touches in a release."""
    numbers = version.numbers
    found = [
        Expected(SCHEDULER, "Scheduler.__init__", ("self", "server_args")),
        Expected(PARALLEL_STATE, "_TP"),
        Expected(PARALLEL_STATE, "_MOE_TP"),
        Expected(PARALLEL_STATE, "_MOE_EP"),
        Expected(PARALLEL_STATE, "get_tp_group", ()),
        Expected(PARALLEL_STATE, "get_world_group", ()),
        Expected(PARALLEL_STATE, "GroupCoordinator.broadcast", ("self", "input_", "src")),
        Expected(
            PARALLEL_STATE,
            "init_model_parallel_group",
            ("group_ranks", "local_rank", "backend"),
            ("use_custom_allreduce", "group_name"),
        ),
        Expected(V2, version.context_name),
        Expected(V2, "TpModelWorker"),
        Expected(V2, "EagleDraftWorker.__init__", ("self", "server_args", "gpu_id")),
        Expected(V2, "EagleDraftWorker.init_lm_head", ("self",)),
        Expected(V2, "EagleDraftWorker.draft", ("self",)),
        Expected(STANDALONE_V2, "TpModelWorker"),
        Expected(STANDALONE_V2, "StandaloneDraftWorker.__init__", ("self", "server_args")),
    ]
    if numbers < (0, 5, 9):
        names = ("_ATTN_TP_GROUP", "_ATTN_TP_RANK", "_ATTN_TP_SIZE")
        found += [Expected(DP_ATTENTION, name) for name in names]
    else:
        found.append(Expected(PARALLEL_STATE, "_ATTN_TP"))
    if numbers < (0, 5, 22):
        found.append(Expected(STANDALONE_V2, "empty_context"))
    if version.has_v1:
        found += [
            Expected(V1, "empty_context"),
            Expected(STANDALONE_V1, "empty_context"),
            Expected(V1, "EAGLEWorker.__init__", ("self", "server_args")),
            _tree(V1),
        ]
    if version.tells_runner_sizes:
        found.append(Expected(RUNNER, "ModelRunner.__init__", ("self",), ("tp_rank", "tp_size")))
    if version.has_parallel_state:
        found.append(Expected(V2, "EagleDraftWorker.__init__", ("self",), ("ps",)))
    found.append(_tree(f"{SPECULATIVE}.{version.tree_module}"))
    if version.resolves_shared_weights:
        found.append(Expected(V2, "EagleDraftWorker._resolve_shared_embed_and_head", ("self",)))
    if version.sizes_pool_after_draft:
        for name in ("DefaultPoolConfigurator", "HybridSWAPoolConfigurator"):
            found.append(Expected(POOL, f"{name}.__init__", ("self",)))
        found.append(Expected(V2, "EagleDraftWorker.alloc_memory_pool", ("self",)))
    if numbers >= (0, 5, 12):
        found.append(Expected(V2, "EAGLEWorkerV2.build_adaptive_runtime_state", ("self",)))
    if version.overrides_parallel:
        found += [Expected(RUNTIME, "get_parallel", ()), Expected(RUNTIME, version.parallel_fields)]
        found.append(Expected(RUNTIME, "ParallelContext.override", ("self",)))
    if version.resolves_layout:
        found += [
            Expected(V2, "resolve_draft_parallel_layout"),
            Expected(STANDALONE_V2, "resolve_draft_parallel_layout"),
            Expected(STANDALONE_V2, "draft_tp_context"),
            Expected(LAYOUT, "DraftParallelLayout"),
        ]
    return found


def _tree(module: str) -> Expected:
    names = ("parent_list", "top_scores_index", "draft_tokens", "seq_lens", "seq_lens_sum", "topk")
    return Expected(module, "build_tree_kernel_efficient", None, names)


def check_used(version: Version) -> None:
    """The same for the modules that are only read."""
    for name in dict.fromkeys(expected.module for expected in expectations(version)):
        if name in (DP_ATTENTION, RUNTIME, LAYOUT):
            check(version, importlib.import_module(name))


def check(version: Version, module: ModuleType) -> None:
    """Raises NotPatched at the first name of `module` that is not as expected."""
    for expected in expectations(version):
        if expected.module == module.__name__:
            problem = expected.mismatch(_parameters(module, expected.name))
            if problem is not None:
                raise NotPatched(f"this SGLang is not as expected: {problem}")


def _parameters(module: ModuleType, dotted: str) -> list[str] | None:
    found: Any = module
    for part in dotted.split("."):
        if not hasattr(found, part):
            return None
        found = getattr(found, part)
    if not isinstance(found, Callable) or inspect.isclass(found):  # type: ignore[arg-type]
        return []
    return list(inspect.signature(found).parameters)
