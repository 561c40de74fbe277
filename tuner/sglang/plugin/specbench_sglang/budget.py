"""Count the draft's larger share of KV heads in SGLang's memory budget.

From 0.5.14 on the pool is sized when the draft's weights are loaded, and each token is charged for
the draft's layers as if they were split like the target's. Before, nothing of the draft is
counted; it lives in what mem_fraction_static leaves.
"""

from types import ModuleType
from typing import Any

from . import groups, versions
from .log import say
from .problems import Refused


class _Process:
    said = False


_CONFIGURATORS = ("DefaultPoolConfigurator", "HybridSWAPoolConfigurator")


def patch(module: ModuleType) -> None:
    """Charge the difference to every token of the target's pool."""
    if versions.installed().sizes_pool_after_draft:
        for name in _CONFIGURATORS:
            _wrap(getattr(module, name))


def _wrap(configurator: Any) -> None:
    original = configurator.__init__

    def __init__(self: Any, owner: Any, *args: Any, **options: Any) -> None:  # noqa: N807
        original(self, owner, *args, **options)
        if groups.exists() and not owner.is_draft_worker:
            _charge(self, owner)

    configurator.__init__ = __init__


def _charge(configurator: Any, owner: Any) -> None:
    """`owner` is the target's pool configuration, in 0.5.14 and 0.5.15 its runner."""
    if _is_fused(owner):
        return
    more = extra_bytes(owner)
    configurator._cell_size += more
    # Sliding-window configurators compute with whole layers later on.
    if getattr(configurator, "_draft_full_layers_num", 0):
        configurator._draft_full_layers_num += more / configurator._full_per_token
    if more and groups.placement().target.rank_in_group == 0 and not _Process.said:
        _Process.said = True
        say(f"draft KV cache counted with {more} bytes more per token")


def _is_fused(owner: Any) -> bool:
    """From 0.5.22 on a pool may hold the draft's layers in the target's entries."""
    fused = getattr(owner, "fused_entry_bytes", None)
    if fused is None or fused("full") is None:
        return False
    if not versions.installed().resolves_layout:
        raise Refused("this release puts the draft's KV cache into the target's entries")
    return True


def extra_bytes(owner: Any) -> int:
    """Bytes a token, over what SGLang counts for the draft's layers."""
    place = groups.placement()
    config = draft_config(owner)
    if str(getattr(config, "attention_arch", "")).endswith("MLA"):
        return 0  # latent caches are whole on every rank
    aux = getattr(owner, "spec_aux_config", owner)
    layers = int(getattr(aux, "eagle_draft_num_layers", None) or 0)
    heads = config.get_num_kv_heads(place.size) - config.get_num_kv_heads(place.target.world_size)
    width = config.head_dim + getattr(config, "v_head_dim", config.head_dim)
    return int(layers * heads * width * owner.kv_cache_dtype.itemsize)


def draft_config(owner: Any) -> Any:
    """The draft's ModelConfig."""
    known = getattr(getattr(owner, "spec_aux_config", None), "draft_model_config", None)
    return known if known is not None else read_draft_config(owner.server_args)


def read_draft_config(server_args: Any) -> Any:
    """The same, read anew."""
    from sglang.srt.configs.model_config import ModelConfig

    return ModelConfig.from_server_args(
        server_args,
        model_path=server_args.speculative_draft_model_path,
        model_revision=server_args.speculative_draft_model_revision,
        is_draft_model=True,
    )
