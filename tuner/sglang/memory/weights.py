"""Bytes of weights on one rank.

Attention and feed-forward matrices are split over the ranks; so are the rows of embedding and head,
padded to 64 (layers/vocab_parallel_embedding.py). Norms, routers and the matrices that compress
MLA's inputs are whole on each. Fewer KV heads than ranks are copied.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.sglang.memory.model_shape import EAGLE3, ModelShape

PLAIN_BYTES = 2
"""float16 and bfloat16, which `--dtype auto` makes of float32 too."""
_PADDING = 64


@dataclass(frozen=True)
class WeightPart:
    """Parameters of one kind on one rank."""

    kind: str
    """attention, mlp, shared, experts: what a quantisation may take or leave. other: neither."""
    count: float


@dataclass(frozen=True)
class DraftWeights:
    """A draft's weights on one rank, in bytes."""

    loaded: float
    """What loading takes of the GPU: the pool of the KV cache is sized beside it."""
    kept: float
    """What stays when the draft has borrowed the target's embedding and head."""


def target_bytes(shape: ModelShape, tp: int, plain: int = PLAIN_BYTES) -> float | str:
    """The weights of a whole model on each of `tp` ranks, or why they are not known."""
    parts = [WeightPart("other", _table(shape.vocabulary, shape.hidden, tp))]
    if not shape.tied:
        parts.append(WeightPart("other", _table(shape.vocabulary, shape.hidden, tp)))
    parts.append(WeightPart("other", shape.hidden))
    for layer in range(shape.layers):
        parts += _layer(shape, layer, tp)
    return _bytes(parts, shape.quantization, plain)


def draft_bytes(
    shape: ModelShape, target: ModelShape, tp: int, target_tp: int, plain: int = PLAIN_BYTES
) -> DraftWeights | str:
    """The weights of a draft on each of its `tp` ranks, or why they are not known.

    An EAGLE head loads an embedding of its own, and takes the target's in its place; on a TP size
    of its own it keeps a copy (specbench's plug-in). A class of layers that is built on Llama's
    makes some matrices twice while it loads (models/llama_eagle3.py), which torch keeps.
    """
    if not shape.is_draft:
        whole = target_bytes(shape, tp, plain)
        return whole if isinstance(whole, str) else DraftWeights(whole, whole)
    if shape.quantization is not None:
        return "a quantised draft is not counted"
    hidden = shape.hidden
    embedding = _table(shape.vocabulary, hidden, tp)
    borrows = tp == target_tp and hidden == target.hidden
    own: float = shape.states * hidden
    head = 0.0
    head_is_borrowed = shape.architecture != EAGLE3 or shape.draft_vocabulary is None
    if not shape.tied:
        head = _table(shape.draft_vocabulary or shape.vocabulary, hidden, tp)
    twice = 0.0
    if shape.architecture == EAGLE3:
        own += 2 * hidden  # the norm before the head, and hidden_norm
        for layer in range(shape.layers):
            own += sum(each.count for each in _layer(shape, layer, tp))
            wide = hidden if layer == 0 else 0  # its first layer's inputs are twice as wide
            own += wide * _heads(shape, tp)
            twice += 3 * hidden * shape.width / tp + hidden * _heads(shape, tp)
    else:
        own += sum(each.count for each in _layer(shape, 0, tp)) * shape.layers
        own += hidden  # the bias of fc; the first layer lacks a norm as wide
        own -= hidden
    loaded = own + embedding + head + twice
    kept = own + twice
    kept += 0 if borrows else embedding
    kept += 0 if borrows and head_is_borrowed else head
    return DraftWeights(loaded * plain, kept * plain)


def _table(rows: int, width: int, tp: int) -> float:
    """One rank's rows of an embedding or a head."""
    step = _PADDING if -(-rows // _PADDING) * _PADDING % tp == 0 else _PADDING * tp
    return -(-rows // step) * step * width / tp


def _heads(shape: ModelShape, tp: int) -> float:
    """Outputs of the joint matrix of queries, keys and values."""
    return (shape.heads / tp + 2 * max(1.0, shape.kv_heads / tp)) * shape.head_dim


def _layer(shape: ModelShape, layer: int, tp: int) -> Iterator[WeightPart]:
    hidden = shape.hidden
    yield from _attention(shape, tp)
    yield WeightPart("other", 2 * hidden)
    experts = shape.experts
    if experts is None or layer < experts.first_dense:
        biases = 2 * shape.width / tp + hidden if shape.mlp_bias else 0
        yield WeightPart("mlp", 3 * hidden * shape.width / tp)
        yield WeightPart("other", biases)
        return
    one = 3 * hidden * experts.width / tp
    yield WeightPart("experts", experts.routed * one)
    yield WeightPart("shared", experts.shared * one)
    yield WeightPart("other", experts.routed * hidden)


def _attention(shape: ModelShape, tp: int) -> Iterator[WeightPart]:
    hidden, latent = shape.hidden, shape.latent
    if latent is None:
        made = _heads(shape, tp)
        yield WeightPart("attention", made * hidden + shape.heads / tp * shape.head_dim * hidden)
        yield WeightPart("other", 2 * shape.head_dim if shape.head_norms else 0)
        # Qwen2's o_proj has no bias; others have one where they have any.
        has_output_bias = shape.attention_bias and not shape.architecture.startswith("Qwen2")
        yield WeightPart("other", made * shape.attention_bias + hidden * has_output_bias)
        return
    wide = shape.heads / tp * (latent.nope + latent.rope)
    queries = hidden * wide
    if latent.q_rank:
        queries = hidden * latent.q_rank + latent.q_rank * wide
    cached = hidden * (latent.kv_rank + latent.rope)
    expanded = latent.kv_rank * shape.heads / tp * (latent.nope + latent.value)
    out = shape.heads / tp * latent.value * hidden
    yield WeightPart("attention", queries + cached + expanded + out)
    yield WeightPart("other", (latent.q_rank or 0) + latent.kv_rank)


def _bytes(
    parts: list[WeightPart], quantization: Mapping[str, Any] | None, plain: int
) -> float | str:
    if quantization is None:
        return sum(each.count for each in parts) * plain
    found = _quantised(quantization)
    if isinstance(found, str):
        return found
    size, kinds = found
    return sum(each.count * (size if each.kind in kinds else plain) for each in parts)


def _quantised(told: Mapping[str, Any]) -> tuple[float, frozenset[str]] | str:
    """Bytes of a quantised parameter with its share of the scales, and the kinds that are."""
    method = told.get("quant_method")
    kinds = frozenset({"attention", "mlp", "shared", "experts"})
    if method == "fp8":
        block = told.get("weight_block_size")
        sizes = block if isinstance(block, list) and len(block) == 2 else []
        known = all(type(each) is int and each > 0 for each in sizes)
        return 1 + (4 / (sizes[0] * sizes[1]) if sizes and known else 0.0), kinds
    if method == "compressed-tensors":
        groups = told.get("config_groups")
        [group] = groups.values() if isinstance(groups, dict) and len(groups) == 1 else [None]
        weights = group.get("weights") if isinstance(group, dict) else None
        if isinstance(weights, dict) and weights.get("num_bits") in (4, 8):
            return _grouped(weights.get("num_bits"), weights.get("group_size")), _taken(told, kinds)
    if method in ("awq", "gptq") and told.get("bits") in (4, 8):
        return _grouped(told.get("bits"), told.get("group_size")), kinds
    return f"quantisation {method} is not counted"


def _grouped(bits: Any, group: Any) -> float:
    scale = 2 / group if isinstance(group, int) and group > 0 else 0.0
    return float(bits) / 8 + scale


def _taken(told: Mapping[str, Any], kinds: frozenset[str]) -> frozenset[str]:
    """Less the kinds that `ignore` names."""
    names = told.get("ignore")
    ignored = " ".join(map(str, names)) if isinstance(names, list) else ""
    marks = {"self_attn": "attention", "shared_experts": "shared", "mlp\\.(": "mlp"}
    return kinds - {kind for mark, kind in marks.items() if mark in ignored}
