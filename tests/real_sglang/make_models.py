"""Writes tiny models with made-up weights: targets, and drafts that agree with them in part.

    python make_models.py FOLDER [SHAPE]     with torch and safetensors; the same weights every time

FOLDER/tiny_w8          the target, a Llama of 8 layers
FOLDER/tiny_draft_w2    a Llama of 2 layers: a STANDALONE draft
FOLDER/tiny_eagle3_w1   an EAGLE-3 draft of 1 layer that knows every second token
FOLDER/tiny_eagle_w1    an EAGLE draft of 1 layer that shares the target's embedding and head
FOLDER/tiny_mimo_w8     a target of 8 layers with a dense layer of its own for drafts: NEXTN

Plain random weights would have no draft accepted. Here the layers add little to a token's
embedding, so that the next token follows mostly from the present one, and a draft that has the
embedding and the head too is right about as often as not. EAGLE-3 needs 8 layers: it reads the
hidden states of layers 2, n/2 and n-3, which must be three. SHAPE is cpu, or gpu: with heads
of a width that CUDA kernels are made for.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

VOCABULARY, DRAFT_VOCABULARY, HEADS = 512, 256, 4
SHARE = 0.15
"""How much each attention and each MLP adds to the embedding."""
EAGLE3_SCALE = 4.0

Weights = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Shape:
    """What all four models have in common."""

    head: int
    """Width of one of the HEADS attention heads."""

    @property
    def hidden(self) -> int:
        return HEADS * self.head

    @property
    def inner(self) -> int:
        return 2 * self.hidden


SHAPES = {"cpu": Shape(head=16), "gpu": Shape(head=64)}


def config(
    shape: Shape, architecture: str, layers: int, kv_heads: int, **more: int
) -> dict[str, object]:
    return {
        "architectures": [architecture],
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_attention_heads": HEADS,
        "num_key_value_heads": kv_heads,
        "head_dim": shape.head,
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


def layer(shape: Shape, prefix: str, generator: torch.Generator, kv_heads: int) -> Weights:
    hidden, inner, kv = shape.hidden, shape.inner, kv_heads * shape.head
    return {
        f"{prefix}self_attn.q_proj.weight": normal(generator, hidden, hidden),
        f"{prefix}self_attn.k_proj.weight": normal(generator, kv, hidden),
        f"{prefix}self_attn.v_proj.weight": normal(generator, kv, hidden),
        f"{prefix}self_attn.o_proj.weight": SHARE * normal(generator, hidden, hidden),
        f"{prefix}mlp.gate_proj.weight": normal(generator, inner, hidden),
        f"{prefix}mlp.up_proj.weight": normal(generator, inner, hidden),
        f"{prefix}mlp.down_proj.weight": SHARE * normal(generator, hidden, inner),
        f"{prefix}input_layernorm.weight": torch.ones(hidden),
        f"{prefix}post_attention_layernorm.weight": torch.ones(hidden),
    }


def vocabulary(shape: Shape) -> Weights:
    """Embedding and head, the same for the target and the drafts that have their own."""
    generator = torch.Generator().manual_seed(1)
    return {
        "model.embed_tokens.weight": torch.randn(VOCABULARY, shape.hidden, generator=generator),
        "lm_head.weight": normal(generator, VOCABULARY, shape.hidden),
    }


def llama(shape: Shape, layers: int, seed: int) -> Weights:
    generator = torch.Generator().manual_seed(seed)
    weights = {**vocabulary(shape), "model.norm.weight": torch.ones(shape.hidden)}
    for number in range(layers):
        weights |= layer(shape, f"model.layers.{number}.", generator, kv_heads=2)
    return weights


def eagle3(shape: Shape) -> Weights:
    """Attention that looks at its own position and passes the token's embedding on.

    Input is the embedding beside the hidden state, each normalised; what comes out is scale times
    the embedding, as values subtract the hidden state that the residual brings.
    """
    generator = torch.Generator().manual_seed(3)
    weights = layer(shape, "midlayer.", generator, kv_heads=HEADS)
    one, zero = torch.eye(shape.hidden), torch.zeros(shape.hidden, shape.hidden)
    attention = "midlayer.self_attn"
    weights[f"{attention}.q_proj.weight"] = torch.cat([2 * one, zero], dim=1)
    weights[f"{attention}.k_proj.weight"] = torch.cat([2 * one, zero], dim=1)
    weights[f"{attention}.v_proj.weight"] = torch.cat([one, -one], dim=1)
    weights[f"{attention}.o_proj.weight"] = EAGLE3_SCALE * one
    weights["midlayer.hidden_norm.weight"] = torch.ones(shape.hidden)
    weights["fc.weight"] = torch.cat([zero, zero, EAGLE3_SCALE * one], dim=1)
    weights["norm.weight"] = torch.ones(shape.hidden)
    # Draft token i is the target's token 2 i; d2t holds the difference.
    weights["d2t"] = torch.arange(DRAFT_VOCABULARY)
    weights["lm_head.weight"] = vocabulary(shape)["lm_head.weight"][::2].contiguous()
    return weights


def eagle(shape: Shape) -> Weights:
    """One layer over a mix of embedding and hidden state, the embedding far ahead."""
    generator = torch.Generator().manual_seed(4)
    weights = layer(shape, "layers.0.", generator, kv_heads=2)
    del weights["layers.0.input_layernorm.weight"]  # EAGLE's first layer has none
    mix = [torch.eye(shape.hidden), 0.1 * normal(generator, shape.hidden, shape.hidden)]
    weights["fc.weight"] = torch.cat(mix, dim=1)
    weights["fc.bias"] = torch.zeros(shape.hidden)
    return weights


def biased(weights: Weights, generator: torch.Generator) -> Weights:
    """The same layers with the biases that Qwen2's attention has."""
    found = dict(weights)
    for name, weight in weights.items():
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            bias = 0.1 * torch.randn(weight.shape[0], generator=generator)
            found[name.replace(".weight", ".bias")] = bias
    return found


def mimo(shape: Shape, layers: int) -> Weights:
    """The draft layer is EAGLE's with the hidden state before the embedding, and normalised."""
    generator = torch.Generator().manual_seed(6)
    mix = [0.1 * normal(generator, shape.hidden, shape.hidden), torch.eye(shape.hidden)]
    prefix = "model.mtp_layers.0."
    draft = {
        **layer(shape, prefix, generator, kv_heads=2),
        f"{prefix}input_proj.weight": torch.cat(mix, dim=1),
        **{
            f"{prefix}{name}_layernorm.weight": torch.ones(shape.hidden)
            for name in ("token", "hidden", "final")
        },
    }
    return biased(llama(shape, layers, seed=7) | draft, generator)


def save(folder: Path, settings: dict[str, object], weights: Weights) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(settings, indent=1))
    save_file(weights, folder / "model.safetensors")


def main(folder: Path, shape: Shape) -> None:
    save(folder / "tiny_w8", config(shape, "LlamaForCausalLM", 8, 2), llama(shape, 8, seed=2))
    save(folder / "tiny_draft_w2", config(shape, "LlamaForCausalLM", 2, 2), llama(shape, 2, seed=5))
    settings = config(shape, "LlamaForCausalLMEagle3", 1, HEADS, draft_vocab_size=DRAFT_VOCABULARY)
    save(folder / "tiny_eagle3_w1", settings, eagle3(shape))
    save(folder / "tiny_eagle_w1", config(shape, "LlamaForCausalLMEagle", 1, 2), eagle(shape))
    # SGLang takes MiMo's config for Qwen2's with one more number; its own needs code from the hub.
    settings = config(shape, "MiMoForCausalLM", 8, 2, num_nextn_predict_layers=1)
    save(folder / "tiny_mimo_w8", settings | {"model_type": "qwen2"}, mimo(shape, 8))


if __name__ == "__main__":
    main(Path(sys.argv[1]), SHAPES[sys.argv[2] if len(sys.argv) > 2 else "cpu"])
