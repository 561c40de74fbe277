"""What the plug-in refuses, before a weight is loaded."""

from types import SimpleNamespace
from typing import Any

import pytest

from tuner.sglang.plugin.specbench_sglang import refusals, settings
from tuner.sglang.plugin.specbench_sglang.problems import Refused

FINE = {
    "tp_size": 8,
    "pp_size": 1,
    "speculative_algorithm": "EAGLE3",
    "disaggregation_mode": "null",
    "load_format": "auto",
    "weight_cache_mode": "off",
}


def args(**more: Any) -> SimpleNamespace:
    return SimpleNamespace(**{**FINE, **more})


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_a_plain_server_is_taken(size: int) -> None:
    refusals.refuse(settings.Settings(size), args())


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"tp_size": 3}, "2 does not divide the target's TP size 3"),
        ({"speculative_algorithm": None}, "drafts nothing"),
        ({"speculative_algorithm": "NGRAM"}, "NGRAM has another draft worker"),
        ({"speculative_algorithm": "DFLASH"}, "DFLASH has another draft worker"),
        ({"enable_dp_attention": True}, "DP attention"),
        ({"attn_dp_size": 2}, "DP attention"),
        ({"pp_size": 2}, "pipeline stages"),
        ({"dcp_size": 2}, "context parallelism"),
        ({"disaggregation_mode": "decode"}, "PD disaggregation"),
        ({"enable_hierarchical_cache": True}, "HiCache"),
        ({"enable_lora": True}, "LoRA"),
        ({"lora_paths": ["a"]}, "LoRA"),
        ({"load_format": "sharded_state"}, "load_format sharded_state"),
        ({"speculative_draft_load_format": "remote"}, "speculative_draft_load_format remote"),
        ({"weight_cache_mode": "client"}, "weight cache"),
        ({"enable_multi_layer_eagle": True}, "multi-layer"),
        ({"enable_flashinfer_allreduce_fusion": True}, "flashinfer all-reduce fusion"),
        ({"flashinfer_allreduce_fusion_backend": "auto"}, "flashinfer all-reduce fusion"),
        ({"enable_symm_mem": True}, "symmetric memory"),
        ({"attention_backend": "intel_amx"}, "attention_backend intel_amx"),
        ({"speculative_draft_attention_backend": "intel_amx"}, "draft_attention_backend intel_amx"),
        ({"speculative_algorithm": "EAGLE", "speculative_token_map": "x"}, "token map"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(given: dict[str, Any], reason: str) -> None:
    """It would give wrong tokens, hang, or fail long after the weights are loaded."""
    with pytest.raises(Refused, match=f"^specbench: draft TP refused: .*{reason}"):
        refusals.refuse(settings.Settings(2), args(**given))


@pytest.mark.parametrize(
    "given",
    [
        {"flashinfer_allreduce_fusion_backend": "auto"},
        {"enable_symm_mem": True},
        {"speculative_algorithm": "EAGLE", "speculative_token_map": "x"},
    ],
)
def test_a_draft_without_collectives_is_not_refused_for_them(given: dict[str, Any]) -> None:
    """Hopper switches the fusion on by itself; draft TP 1 must not need a flag."""
    refusals.refuse(settings.Settings(1), args(**given))


def test_the_targets_own_size_changes_nothing_and_is_always_taken() -> None:
    refusals.refuse(settings.Settings(8), args(enable_lora=True))


@pytest.mark.parametrize("name", ["num_experts", "n_routed_experts", "num_local_experts"])
def test_experts_are_refused_unless_forced(name: str) -> None:
    """Each GPU would hold every expert of the draft."""
    config = SimpleNamespace(hf_config=SimpleNamespace(**{name: 64}))
    with pytest.raises(Refused, match="64 experts"):
        refusals.refuse_experts(settings.Settings(1), config)
    refusals.refuse_experts(settings.Settings(1, force=True), config)
    refusals.refuse_experts(settings.Settings(1), SimpleNamespace(hf_config=SimpleNamespace()))


def test_the_environment_is_read_strictly() -> None:
    """A typing error must not start a stock server under the name of a patched one."""
    assert settings.read({}) is None
    assert settings.read({"SPECBENCH_DRAFT_TP": "target"}) is None
    assert settings.read({"SPECBENCH_DRAFT_TP": "2"}) == settings.Settings(2)
    off = {"SPECBENCH_DRAFT_TP": "1", "SPECBENCH_DRAFT_TP_SYNC": "off"}
    assert settings.read(off) == settings.Settings(1, sync=False)
    for wrong in ({"SPECBENCH_DRAFT_TP": "one"}, {"SPECBENCH_DRAFT_TP": "0"}):
        with pytest.raises(Refused):
            settings.read(wrong)
    with pytest.raises(Refused, match="broadcast, off"):
        settings.read({"SPECBENCH_DRAFT_TP": "1", "SPECBENCH_DRAFT_TP_SYNC": "no"})
