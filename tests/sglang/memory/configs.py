"""config.json of published models, as far as sizes go, and their parameters by the hub's count."""

import json
from pathlib import Path
from typing import Any

from tests.factories import load_sweep_text
from tuner.config.loader import LoadedSweep

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA_70B = LLAMA_8B | {
    "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
    "num_attention_heads": 64,
}  # fmt: skip
MISTRAL_7B = LLAMA_8B | {"architectures": ["MistralForCausalLM"], "vocab_size": 32000}
QWEN2_7B = {
    "architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584, "intermediate_size": 18944,
    "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
    "vocab_size": 152064, "tie_word_embeddings": False,
}  # fmt: skip
QWEN3_8B = {
    "architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096, "intermediate_size": 12288,
    "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "vocab_size": 151936, "tie_word_embeddings": False,
}  # fmt: skip
SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 576, "intermediate_size": 1536,
    "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
    "vocab_size": 49152, "tie_word_embeddings": True,
}  # fmt: skip
QWEN3_30B_A3B = {
    "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 2048, "intermediate_size": 6144,
    "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "vocab_size": 151936, "tie_word_embeddings": False, "num_experts": 128,
    "moe_intermediate_size": 768, "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip
MIXTRAL_8X7B = MISTRAL_7B | {"architectures": ["MixtralForCausalLM"], "num_local_experts": 8}
DEEPSEEK_V3 = {
    "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168, "intermediate_size": 18432,
    "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
    "vocab_size": 129280, "tie_word_embeddings": False, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256,
    "n_shared_experts": 1, "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}  # fmt: skip
EXPERTS_INT4 = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}},
    "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up).*"],
}
KIMI = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "vision_config": {"hidden_size": 1152},
    "text_config": DEEPSEEK_V3 | {
        "num_attention_heads": 64, "vocab_size": 163840, "n_routed_experts": 384,
        "first_k_dense_replace": 1, "quantization_config": EXPERTS_INT4,
    },
}  # fmt: skip

COUNTED: list[tuple[str, dict[str, Any], int]] = [
    ("Llama-3.1-8B", LLAMA_8B, 8_030_261_248),
    ("Llama-3.1-70B", LLAMA_70B, 70_553_706_496),
    ("Mistral-7B-v0.3's shape", MISTRAL_7B, 7_241_732_096),
    ("Qwen2.5-7B", QWEN2_7B, 7_615_616_512),
    ("Qwen3-8B", QWEN3_8B, 8_190_735_360),
    ("SmolLM2-135M", SMOLLM2, 134_515_008),
    ("Qwen3-30B-A3B", QWEN3_30B_A3B, 30_532_122_624),
    ("Mixtral-8x7B", MIXTRAL_8X7B, 46_702_792_704),
]
"""Name, config and parameters."""
EAGLE3_DRAFT = LLAMA_8B | {
    "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 32000,
}  # fmt: skip


SWEEP = """
name: memory
engine: {kind: sglang, release: RELEASE}
model: {target: FOLDER/target, draft: FOLDER/draft, algorithm: EAGLE3, tp: 2}
server: {flags: {FLAGS}}
space: {num_steps: [1, 3], draft_tp: [target, 1]}
workload: {requests: 4, output_tokens: 256, concurrency: [1]}
search: {sampler: grid}
"""


def load_memory_sweep(
    folder: Path, flags: str = "", release: str = "0.5.17", target: dict[str, Any] = LLAMA_8B
) -> LoadedSweep:
    """Load a sweep whose models are config.json files in `folder`."""
    for name, config in (("target", target), ("draft", EAGLE3_DRAFT)):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "config.json").write_text(json.dumps(config))
    return load_sweep_text(folder, SWEEP, FOLDER=folder, FLAGS=flags, RELEASE=release)
