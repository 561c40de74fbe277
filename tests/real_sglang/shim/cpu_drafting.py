"""Drafting and verifying chains with SGLang's `torch_native` attention, which knows neither.

SGLang drafts on a CPU only with `intel_amx` attention, which needs a processor with AMX. What
`torch_native` lacks is small: the lengths of the sequences while drafts are appended to them.
"""

import inspect
from typing import Any

NAME = "torch_native"


class Overlaid:
    """A forward batch with some of its attributes replaced."""

    def __init__(self, batch: Any, **values: Any) -> None:
        self.__dict__.update(values, _batch=batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)


def extend_backend(backend: type) -> None:
    """Give TorchNativeAttnBackend the lengths of verifying, draft-extending and drafting."""
    extend, decode = backend.forward_extend, backend.forward_decode  # type: ignore[attr-defined]

    def forward_extend(
        self: Any, q: Any, k: Any, v: Any, layer: Any, batch: Any, save_kv_cache: bool = True,
        **_: Any,
    ) -> Any:  # fmt: skip
        return extend(self, q, k, v, layer, with_drafts(batch), save_kv_cache)

    def forward_decode(
        self: Any, q: Any, k: Any, v: Any, layer: Any, batch: Any, save_kv_cache: bool = True,
        **_: Any,
    ) -> Any:  # fmt: skip
        drafted = getattr(self, "drafted", 0)
        if drafted:
            batch = Overlaid(batch, seq_lens=batch.seq_lens + drafted)
        return decode(self, q, k, v, layer, batch, save_kv_cache)

    backend.forward_extend = forward_extend  # type: ignore[attr-defined]
    backend.forward_decode = forward_decode  # type: ignore[attr-defined]


def with_drafts(batch: Any) -> Any:
    """The batch with the lengths that attention has to see."""
    import torch

    mode = batch.forward_mode
    if mode.is_target_verify():
        drafts = batch.spec_info.draft_token_num
        return Overlaid(
            batch,
            extend_prefix_lens=batch.seq_lens,
            extend_seq_lens=torch.full_like(batch.seq_lens, drafts),
            seq_lens=batch.seq_lens + drafts,
        )
    if mode.name == "DRAFT_EXTEND" and is_v1(batch):
        # What the batch has of prefixes is its prefill's.
        prefix = batch.seq_lens - batch.extend_seq_lens
        return Overlaid(batch, extend_prefix_lens=prefix)
    if "DRAFT_EXTEND" in mode.name:
        # seq_lens is the length before or after, by release; the sum is always the one after.
        return Overlaid(batch, seq_lens=batch.extend_prefix_lens + batch.extend_seq_lens)
    return batch


def is_v1(batch: Any) -> bool:
    """True for a batch of the worker without overlap: seq_lens is the length after."""
    # 0.5.12 renamed it.
    names = ("seq_lens_for_draft_extend", "seq_lens")
    return any(getattr(batch.spec_info, name, None) is not None for name in names)


def extend_factory(factory: type) -> None:
    """Let DraftBackendFactory make `torch_native` back ends."""
    create = factory._create_backend  # type: ignore[attr-defined]
    # From 0.5.18 on the makers return the back end's name beside it.
    named = "stamp, backend" in inspect.getsource(create)

    def _create_backend(
        self: Any, backend_name: str, backend_map: dict[str, Any], *rest: Any, **more: Any
    ) -> Any:
        decodes = backend_name == "decode_attention_backend"
        drafts = decodes and "hybrid_linear_attn" in backend_map and is_decode_map(backend_map)

        def make() -> Any:
            made = Chain(self) if drafts else one_backend(self.draft_model_runner)
            return (NAME, made) if named else made

        return create(self, backend_name, {**backend_map, NAME: make}, *rest, **more)

    factory._create_backend = _create_backend  # type: ignore[attr-defined]


def is_decode_map(backend_map: dict[str, Any]) -> bool:
    """True for the makers of drafting back ends, False for those of draft-extend.

    Both may be asked for under the same name, depending on --speculative-attention-mode.
    """
    return "decode" in backend_map["hybrid_linear_attn"].__name__


def one_backend(runner: Any) -> Any:
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

    return TorchNativeAttnBackend(runner)


class Chain:
    """The back ends of a draft's steps; step i has i + 1 drafts behind the verified tokens."""

    def __init__(self, factory: Any) -> None:
        if factory.topk != 1:
            raise ValueError(f"{NAME} drafts chains only, not trees of topk {factory.topk}")
        self.topk = 1
        self.speculative_num_steps = factory.speculative_num_steps
        self.device = factory.draft_model_runner.device
        self.attn_backends = []
        for step in range(self.speculative_num_steps - 1):
            backend = one_backend(factory.draft_model_runner)
            backend.drafted = step + 1
            self.attn_backends.append(backend)

    def init_forward_metadata(self, forward_batch: Any) -> None:
        for backend in self.attn_backends:
            backend.init_forward_metadata(forward_batch)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "attn_backends":
            raise AttributeError(name)
        return getattr(self.attn_backends[0], name)
