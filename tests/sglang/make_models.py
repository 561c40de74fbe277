"""Writes tiny models with made-up weights: a target and three drafts that agree with it in part.

    python make_models.py FOLDER        (with torch and safetensors; the same weights every time)

FOLDER/tiny_w8          the target, a Llama of 8 layers
FOLDER/tiny_draft_w2    a Llama of 2 layers: a STANDALONE draft
FOLDER/tiny_eagle3_w1   an EAGLE-3 draft of 1 layer that knows every second token
FOLDER/tiny_eagle_w1    an EAGLE draft of 1 layer that shares the target's embedding and head

Plain random weights would have no draft accepted. Here the layers add little to a token's
embedding, so that the next token follows mostly from the present one, and a draft that has the
embedding and the head too is right about as often as not. EAGLE-3 needs 8 layers: it reads the
hidden states of layers 2, n/2 and n-3, which must be three.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

HIDDEN, INNER, VOCABULARY, HEADS, HEAD = 64, 128, 512, 4, 16
DRAFT_VOCABULARY = 256
SHARE = 0.15
"""How much each attention and each MLP adds to the embedding."""
EAGLE3_SCALE = 4.0

Weights = dict[str, torch.Tensor]


def config(architecture: str, layers: int, kv_heads: int, **more: int) -> dict[str, object]:
    return {
        "architectures": [architecture],
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": kv_heads,
        "head_dim": HEAD,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
        **more,
    }


def normal(generator: torch.Generator, rows: int, columns: int) -> torch.Tensor:
    """A matrix that keeps the size of what it is multiplied with."""
    return torch.randn(rows, columns, generator=generator) / columns**0.5


def layer(prefix: str, generator: torch.Generator, kv_heads: int) -> Weights:
    kv = kv_heads * HEAD
    return {
        f"{prefix}self_attn.q_proj.weight": normal(generator, HIDDEN, HIDDEN),
        f"{prefix}self_attn.k_proj.weight": normal(generator, kv, HIDDEN),
        f"{prefix}self_attn.v_proj.weight": normal(generator, kv, HIDDEN),
        f"{prefix}self_attn.o_proj.weight": SHARE * normal(generator, HIDDEN, HIDDEN),
        f"{prefix}mlp.gate_proj.weight": normal(generator, INNER, HIDDEN),
        f"{prefix}mlp.up_proj.weight": normal(generator, INNER, HIDDEN),
        f"{prefix}mlp.down_proj.weight": SHARE * normal(generator, HIDDEN, INNER),
        f"{prefix}input_layernorm.weight": torch.ones(HIDDEN),
        f"{prefix}post_attention_layernorm.weight": torch.ones(HIDDEN),
    }


def vocabulary() -> Weights:
    """Embedding and head, the same for the target and the drafts that have their own."""
    generator = torch.Generator().manual_seed(1)
    return {
        "model.embed_tokens.weight": torch.randn(VOCABULARY, HIDDEN, generator=generator),
        "lm_head.weight": normal(generator, VOCABULARY, HIDDEN),
    }


def llama(layers: int, seed: int) -> Weights:
    generator = torch.Generator().manual_seed(seed)
    weights = {**vocabulary(), "model.norm.weight": torch.ones(HIDDEN)}
    for number in range(layers):
        weights |= layer(f"model.layers.{number}.", generator, kv_heads=2)
    return weights


def eagle3() -> Weights:
    """Attention that looks at its own position and passes the token's embedding on.

    Input is the embedding beside the hidden state, each normalised; what comes out is scale times
    the embedding, as values subtract the hidden state that the residual brings.
    """
    generator = torch.Generator().manual_seed(3)
    weights = layer("midlayer.", generator, kv_heads=HEADS)
    one, zero = torch.eye(HIDDEN), torch.zeros(HIDDEN, HIDDEN)
    attention = "midlayer.self_attn"
    weights[f"{attention}.q_proj.weight"] = torch.cat([2 * one, zero], dim=1)
    weights[f"{attention}.k_proj.weight"] = torch.cat([2 * one, zero], dim=1)
    weights[f"{attention}.v_proj.weight"] = torch.cat([one, -one], dim=1)
    weights[f"{attention}.o_proj.weight"] = EAGLE3_SCALE * one
    weights["midlayer.hidden_norm.weight"] = torch.ones(HIDDEN)
    weights["fc.weight"] = torch.cat([zero, zero, EAGLE3_SCALE * one], dim=1)
    weights["norm.weight"] = torch.ones(HIDDEN)
    # Draft token i is the target's token 2 i; d2t holds the difference.
    weights["d2t"] = torch.arange(DRAFT_VOCABULARY)
    weights["lm_head.weight"] = vocabulary()["lm_head.weight"][::2].contiguous()
    return weights


def eagle() -> Weights:
    """One layer over a mix of embedding and hidden state, the embedding far ahead."""
    generator = torch.Generator().manual_seed(4)
    weights = layer("layers.0.", generator, kv_heads=2)
    del weights["layers.0.input_layernorm.weight"]  # EAGLE's first layer has none
    mix = [torch.eye(HIDDEN), 0.1 * normal(generator, HIDDEN, HIDDEN)]
    weights["fc.weight"] = torch.cat(mix, dim=1)
    weights["fc.bias"] = torch.zeros(HIDDEN)
    return weights


def save(folder: Path, settings: dict[str, object], weights: Weights) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(settings, indent=1))
    save_file(weights, folder / "model.safetensors")


def main(folder: Path) -> None:
    save(folder / "tiny_w8", config("LlamaForCausalLM", 8, 2), llama(8, seed=2))
    save(folder / "tiny_draft_w2", config("LlamaForCausalLM", 2, 2), llama(2, seed=5))
    settings = config("LlamaForCausalLMEagle3", 1, HEADS, draft_vocab_size=DRAFT_VOCABULARY)
    save(folder / "tiny_eagle3_w1", settings, eagle3())
    save(folder / "tiny_eagle_w1", config("LlamaForCausalLMEagle", 1, 2), eagle())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
