"""What cannot run with the draft on its own TP size, and why."""

from typing import Any

from .problems import Refused
from .settings import DRAFT_TP, FORCE, Settings

ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
SHARDED_FORMATS = ("sharded_state", "presharded", "remote", "remote_instance", "ipc_cache")
BACKENDS = (
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "speculative_draft_attention_backend",
)
AMX = "intel_amx"
"""A CPU's attention. It divides heads by the runner's TP size (intel_amx_backend.py), which up to
0.5.15 stays the target's on a CPU."""
_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")


def refuse(asked: Settings, args: Any) -> None:
    """Raises Refused; `args` are SGLang's ServerArgs. Runs before any weight is loaded."""
    for reason in _reasons(asked, args):
        raise Refused(reason)


def refuse_experts(asked: Settings, config: Any) -> None:
    """`config` is the draft's ModelConfig."""
    text = getattr(config, "hf_text_config", config.hf_config)
    for source in (config.hf_config, text):
        for name in _EXPERTS:
            count = getattr(source, name, None)
            if isinstance(count, int) and count > 1 and not asked.force:
                raise Refused(
                    f"the draft has {count} experts, and every block of ranks would hold all of "
                    f"them; {FORCE}=1 does it nevertheless"
                )


def _reasons(asked: Settings, args: Any) -> list[str]:
    size, target = asked.draft_tp, int(args.tp_size)
    found = []

    def unless(fine: bool, reason: str) -> None:
        if not fine:
            found.append(reason)

    def has(name: str) -> Any:
        return getattr(args, name, None)

    algorithm = has("speculative_algorithm")
    unless(bool(algorithm), f"the server drafts nothing; unset {DRAFT_TP}")
    unless(
        not algorithm or algorithm in ALGORITHMS,
        f"{algorithm} has another draft worker; it works with {', '.join(ALGORITHMS)}",
    )
    unless(target % size == 0, f"{size} does not divide the target's TP size {target}")
    if size == target:
        return found
    unless(
        not has("enable_dp_attention") and (has("attn_dp_size") or 1) == 1,
        "DP attention already gives the draft another group",
    )
    unless((has("pp_size") or 1) == 1, "pipeline stages (pp_size > 1) share no TP group")
    for name in ("attn_cp_size", "dcp_size"):
        unless((has(name) or 1) == 1, f"context parallelism ({name}) splits the attention heads")
    unless(
        has("disaggregation_mode") in (None, "null"),
        "PD disaggregation sends the draft's KV cache by the target's ranks",
    )
    unless(not has("enable_hierarchical_cache"), "HiCache copies the draft's KV by target rank")
    unless(not (has("enable_lora") or has("lora_paths")), "LoRA adapters are cut by target rank")
    for name in ("load_format", "speculative_draft_load_format"):
        unless(has(name) not in SHARDED_FORMATS, f"{name} {has(name)} is cut by target rank")
    unless(
        has("weight_cache_mode") in (None, "", "off"),
        "the weight cache keeps shards by target rank",
    )
    unless(not has("enable_multi_layer_eagle"), "multi-layer EAGLE has another draft worker")
    unless(
        not has("enable_attn_tp_input_scattered"),
        "with scattered attention inputs no rank has the target's whole hidden state",
    )
    for name in BACKENDS:
        unless(has(name) != AMX, f"{name} {AMX} with two groups is untried; use torch_native")
    if size > 1:
        unless(
            not has("enable_flashinfer_allreduce_fusion")
            and not has("flashinfer_allreduce_fusion_backend"),
            "flashinfer all-reduce fusion has one workspace and would make it anew for each group; "
            "use 1, or switch the fusion off",
        )
        unless(not has("enable_symm_mem"), "symmetric memory with two groups is untried; use 1")
        unless(
            not has("speculative_token_map") or algorithm in ("EAGLE3", "STANDALONE"),
            "a token map picks rows of the whole head, which only a draft at TP 1 has",
        )
    return found
