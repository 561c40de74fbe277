"""A model's shape, from its config.json: all that its weights and its KV cache follow from."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.config.schema import Sweep
from tuner.server.gpu import visible_gpus
from tuner.sglang.models import Model, Role, config_data, language_part
from tuner.sglang.server_settings import Launches

DENSE = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""Counted parameter by parameter."""
SPARSE = ("MixtralForCausalLM", "Qwen3MoeForCausalLM")
LATENT = ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration")
"""Experts and a compressed KV cache (MLA); Kimi-K2.5's text_config has DeepSeek-V3's shape."""
EAGLE, EAGLE3 = "LlamaForCausalLMEagle", "LlamaForCausalLMEagle3"
DRAFTS = (EAGLE, EAGLE3)
_OTHER_SHAPE = (
    "decoder_sparse_step",
    "mlp_only_layers",
    "moe_layer_freq",
    "index_head_dim",
    "layers_block_type",
)
"""Where they say more than the usual, layers are not alike, or hold more than is counted here."""


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (MLA): one compressed cache for all heads."""

    q_rank: int | None
    kv_rank: int
    nope: int
    rope: int
    value: int


@dataclass(frozen=True)
class Experts:
    """Routed experts, and those that every token takes."""

    routed: int
    shared: int
    width: int
    first_dense: int
    """Layers before the first one that has experts."""


@dataclass(frozen=True)
class ModelShape:
    """A model of an architecture that is known. Sizes are whole models', before any split."""

    architecture: str
    layers: int
    hidden: int
    width: int
    """Of the feed-forward layers that are not experts."""
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    """The output head is the embedding."""
    attention_bias: bool
    mlp_bias: bool
    head_norms: bool
    latent: Latent | None = None
    experts: Experts | None = None
    quantization: Mapping[str, Any] | None = None
    draft_vocabulary: int | None = None
    """Of an EAGLE-3 draft's own head; None: it has the target's."""
    states: int = 0
    """Numbers that a draft's first matrix takes for each token: the target's hidden states."""
    more: bool = False
    """It has parts that are not counted here, such as a vision tower."""

    @property
    def is_draft(self) -> bool:
        """One of EAGLE's heads, which borrows the target's embedding."""
        return self.architecture in DRAFTS

    @property
    def is_exact(self) -> bool:
        """Every parameter is counted; else the figure is near."""
        dense = self.architecture in DENSE or self.is_draft
        return dense and self.quantization is None


def read_shape(data: Mapping[str, Any]) -> ModelShape | str:
    """The shape that a config.json's object describes, or why it is not known."""
    names = data.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if name not in (*DENSE, *SPARSE, *LATENT, *DRAFTS):
        return f"architecture {name} is not counted" if name else "it names no architecture"
    inner = language_part(data)
    if more := [each for each in _OTHER_SHAPE if inner.get(each) not in (None, 1, [])]:
        return f"{more[0]} is not counted"
    try:
        return _shape(str(name), data, inner)
    except _MissingError as error:
        return f"config.json has no {error}"


LARGEST = 2**24
"""Of a size in a config.json; a larger one is no model's."""


MOST_LAYERS = 4096


class _MissingError(Exception):
    """A size that a config.json lacks."""


def _size(data: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = data.get(name)
        if type(value) is int and 0 <= value <= LARGEST:
            return value
    raise _MissingError(names[0])


def _optional(data: Mapping[str, Any], *names: str) -> int | None:
    try:
        return _size(data, *names)
    except _MissingError:
        return None


def _shape(name: str, data: Mapping[str, Any], inner: Mapping[str, Any]) -> ModelShape:
    hidden, heads = _size(inner, "hidden_size"), _size(inner, "num_attention_heads")
    if not heads:
        raise _MissingError("num_attention_heads")
    latent = _latent(inner) if name in LATENT else None
    if _size(inner, "num_hidden_layers") > MOST_LAYERS:
        raise _MissingError("num_hidden_layers")
    quantization = inner.get("quantization_config") or data.get("quantization_config")
    return ModelShape(
        architecture=name,
        layers=_size(inner, "num_hidden_layers"),
        hidden=hidden,
        width=_size(inner, "intermediate_size"),
        heads=heads,
        kv_heads=_optional(inner, "num_key_value_heads") or heads,
        head_dim=_optional(inner, "head_dim") or hidden // heads,
        vocabulary=_size(inner, "vocab_size"),
        tied=inner.get("tie_word_embeddings", data.get("tie_word_embeddings")) is True,
        attention_bias=_has_bias(name, inner),
        mlp_bias=inner.get("mlp_bias") is True,
        head_norms=name.startswith("Qwen3"),
        latent=latent,
        experts=None if name in DENSE or name in DRAFTS else _experts(name, inner),
        quantization=quantization if isinstance(quantization, dict) else None,
        draft_vocabulary=_optional(data, "draft_vocab_size", "hot_vocab_size"),
        states=_states(name, data, hidden),
        more=inner is not data,
    )


def _has_bias(name: str, inner: Mapping[str, Any]) -> bool:
    """Qwen2's attention always has one (qwen2.py), an EAGLE-3 draft's qkv never."""
    if name == "Qwen2ForCausalLM":
        return True
    return name != EAGLE3 and (inner.get("attention_bias") or inner.get("bias")) is True


def _latent(inner: Mapping[str, Any]) -> Latent:
    return Latent(
        q_rank=_optional(inner, "q_lora_rank"),
        kv_rank=_size(inner, "kv_lora_rank"),
        nope=_size(inner, "qk_nope_head_dim"),
        rope=_size(inner, "qk_rope_head_dim"),
        value=_size(inner, "v_head_dim"),
    )


def _experts(name: str, inner: Mapping[str, Any]) -> Experts:
    routed = ("num_local_experts",) if name.startswith("Mixtral") else ("n_routed_experts",)
    width = "intermediate_size" if name.startswith("Mixtral") else "moe_intermediate_size"
    return Experts(
        routed=_size(inner, *routed, "num_experts"),
        shared=_optional(inner, "n_shared_experts") or 0,
        width=_size(inner, width),
        first_dense=_optional(inner, "first_k_dense_replace") or 0,
    )


def _states(name: str, data: Mapping[str, Any], hidden: int) -> int:
    """Inputs of `fc` (models/llama_eagle.py, llama_eagle3.py of 0.5.17)."""
    if name == EAGLE:
        return 2 * hidden
    if name != EAGLE3:
        return 0
    eagle = data.get("eagle_config")
    layers = eagle.get("eagle_aux_hidden_state_layer_ids") if isinstance(eagle, dict) else None
    told = _optional(data, "num_aux_hidden_states")
    count = told or (len(layers) if isinstance(layers, list) and layers else 3)
    return count * (_optional(data, "target_hidden_size") or hidden)


GIB = 2**30


@dataclass(frozen=True)
class ShapePair:
    """Target and draft; a text says why a shape is not known."""

    target: ModelShape | str
    draft: ModelShape | str | None
    """None: the algorithm has no draft model, or the draft is a part of the target's files."""


Configs = Mapping[Role, Mapping[str, Any]]
"""The objects in the models' config.json."""


def read_shapes(
    sweep: Sweep, inherited: Mapping[str, str] = os.environ, kept: Configs | None = None
) -> ShapePair:
    """The shapes of the sweep's models, as far as their files are here.

    `kept` goes before the files, for models that were somewhere else or are something else now.
    """
    launches, known = Launches(sweep, inherited), kept or {}
    draft = launches.draft
    return ShapePair(
        _shape_of_file(launches.target, known),
        None if draft is None else _shape_of_file(draft, known),
    )


def configs_here(sweep: Sweep, inherited: Mapping[str, str] = os.environ) -> Configs:
    """Those of the sweep's models that are here and can be read."""
    launches = Launches(sweep, inherited)
    found = {}
    for model in (launches.target, launches.draft):
        data = None if model is None else _config(model)
        if model is not None and isinstance(data, Mapping):
            found[model.role] = data
    return found


def _shape_of_file(model: Model, kept: Configs) -> ModelShape | str:
    data = kept.get(model.role) or _config(model)
    return data if isinstance(data, str) else read_shape(data)


def _config(model: Model) -> Mapping[str, Any] | str:
    """The object in its config.json, or why it is not known."""
    if model.folder is None or not model.folder.is_dir():
        return f"{model.name} is not on this machine"
    try:
        return config_data(model.folder)
    except (OSError, ValueError, RecursionError):
        return f"{model.name} has no config.json that can be read"


def gpu_bytes(sweep: Sweep, inherited: Mapping[str, str] = os.environ) -> int | None:
    """The memory of the smallest GPU that the sweep's servers can use; None where not known."""
    launches = Launches(sweep, inherited)
    elsewhere = not sweep.engine.uses_gpus or sweep.engine.command
    if elsewhere or "CUDA_VISIBLE_DEVICES" in launches.varied or not launches.takes_gpus:
        return None
    found = visible_gpus(launches.environment)
    return min((card.total for card in found.cards), default=None) if found else None
