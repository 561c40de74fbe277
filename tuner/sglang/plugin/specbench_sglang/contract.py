"""What the plug-in expects of each release, checked before anything is patched.

tests/sglang/plugin/test_contract.py checks the same table for every release, so that
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
ADAPTIVE = f"{SPECULATIVE}.adaptive_spec_params"
CONTROLLER = f"{SPECULATIVE}.adaptive_runtime_state"
EXTEND_RUNNER = f"{SPECULATIVE}.eagle_draft_extend_cuda_graph_runner"
TOKENIZER = "sglang.srt.managers.tokenizer_manager"
TOKENIZER_CONTROL = "sglang.srt.managers.tokenizer_control_mixin"
MESSAGES = "sglang.srt.managers.io_struct"
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
    """Everything that draft TP touches in a release."""
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


def step_expectations(version: Version) -> list[Expected]:
    """Everything that switching chain lengths touches in a release."""
    config, switch = ("cfg_path",), ("self", "speculative_num_steps")
    found = [
        Expected(ADAPTIVE, "_load_adaptive_config", config),
        Expected(ADAPTIVE, "resolve_candidate_steps_from_config", config),
        Expected(ADAPTIVE, "adaptive_unsupported_reason", ("server_args",)),
        Expected(CONTROLLER, "AdaptiveController._activate", switch),
        Expected(CONTROLLER, "AdaptiveController.activate_step_by_batch", ("self", "batch_size")),
        Expected(
            CONTROLLER,
            "AdaptiveController.on_verify_complete",
            ("self", "num_correct_drafts_per_req", "batch_size"),
        ),
        Expected(SCHEDULER, "Scheduler.__init__", ("self", "server_args")),
        Expected(SCHEDULER, "Scheduler.is_fully_idle", ("self",)),
        Expected(SCHEDULER, "Scheduler.set_internal_state", ("self", "recv_req")),
        Expected(SCHEDULER, "Scheduler.get_internal_state", ("self", "recv_req")),
        Expected(V2, "EAGLEWorkerV2.build_adaptive_runtime_state", switch),
        Expected(V2, "EAGLEWorkerV2.apply_runtime_state", ("self", "state")),
        Expected(PARALLEL_STATE, "get_tp_group", ()),
        Expected(TOKENIZER_CONTROL, "TokenizerControlMixin.set_internal_state", ("self", "obj")),
        Expected(TOKENIZER_CONTROL, "TokenizerControlMixin.get_internal_state", ("self",)),
        Expected(
            TOKENIZER,
            "TokenizerManager._calculate_spec_decoding_metrics",
            ("self", "meta_info", "recv_obj", "i"),
        ),
        Expected(MESSAGES, "SetInternalStateReqOutput"),
    ]
    if version.forgets_captured_width:
        found.append(Expected(EXTEND_RUNNER, "resolve_num_tokens_per_req", None, ("phase",)))
    return found


def all_expectations(version: Version) -> list[Expected]:
    """What the plug-in can do in a release, taken together."""
    switching = step_expectations(version) if version.switches_steps else []
    return [*expectations(version), *switching]


def _tree(module: str) -> Expected:
    names = ("parent_list", "top_scores_index", "draft_tokens", "seq_lens", "seq_lens_sum", "topk")
    return Expected(module, "build_tree_kernel_efficient", None, names)


def check_used(version: Version) -> None:
    """The same for the modules that are only read."""
    for name in dict.fromkeys(expected.module for expected in expectations(version)):
        if name in (DP_ATTENTION, RUNTIME, LAYOUT):
            check(expectations(version), importlib.import_module(name))


def check(wanted: list[Expected], module: ModuleType) -> None:
    """Raises NotPatched at the first name of `module` that is not as expected."""
    for expected in wanted:
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
