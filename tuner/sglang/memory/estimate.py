"""What one server holds of each GPU: weights, KV cache, graphs and what comes before them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.config.schema import ServerFlag
from tuner.server.base import ServerConfig
from tuner.server.memory import ServerMemory
from tuner.sglang.memory.model_shape import GIB, ModelShape, ShapePair
from tuner.sglang.memory.weights import PLAIN_BYTES, DraftWeights, draft_bytes, target_bytes
from tuner.sglang.releases import Release

BEFORE_GIB = (1.3, 2.2)
"""ASSUMED, as on H200 with SGLang 0.5.17: what a rank holds before it loads weights, with one rank
and with several. The CUDA context and, with several, the buffers of NCCL and of all-reduce."""
GRAPHS_GIB, DRAFTING_GIB, LENGTH_GIB = 0.1, 0.2, 0.15
"""ASSUMED, as there with graphs up to 16 requests: graphs and work space of a server, what drafting
adds, and each further chain length of a launch for several."""
DRAFT_COUNTED = "0.5.14"
"""From here on the draft is loaded, and its cache counted, before the pool is sized
(model_executor/pool_configurator.py:136)."""
_UNCOUNTED = (
    "attention-context-parallel-size",
    "attn-cp-size",
    "attn-dp-size",
    "context-parallel-size",
    "cpu-offload-gb",
    "dcp-size",
    "enable-dp-attention",
    "enable-lora",
    "json-model-override-args",
    "lora-paths",
    "model-impl",
    "moe-dense-tp-size",
    "offload-group-size",
    "pipeline-parallel-size",
    "pp-size",
    "quantization",
    "speculative-draft-kv-cache-dtype",
    "speculative-draft-model-quantization",
    "torchao-config",
)
"""Flags under which weights or cache are split or stored in a way that is not counted here."""
_OTHER_MODELS = (
    "SGLANG_EXTERNAL_MODEL_PACKAGE",
    "SGLANG_PLATFORM",
    "SGLANG_PLUGINS",
    "SGLANG_USE_MODELSCOPE",
)
"""Variables under which the model may be another, or other code."""


@dataclass(frozen=True)
class Offsets:
    """By how much a run's logs differ from the estimates, in GiB: added to the next ones."""

    before: float = 0.0
    target: float = 0.0
    draft: float = 0.0


def server_memory(
    config: ServerConfig,
    pair: ShapePair,
    release: Release,
    gpu: float,
    offsets: Offsets | None = None,
) -> ServerMemory:
    """The estimate for a server on GPUs of `gpu` GiB."""
    counted = _Counted(config, pair, release)
    off = offsets or Offsets()
    target, draft, unknown = counted.target(), counted.draft(), list[str]()
    unknown += [each for each in (target, draft) if isinstance(each, str)]
    tp = config.model.tp
    before = BEFORE_GIB[tp > 1] + off.before
    target_gib = None if isinstance(target, str) else target / GIB + off.target
    loading = kept = None
    if isinstance(draft, DraftWeights):
        has_one = off.draft if draft.loaded else 0.0
        loading, kept = draft.loaded / GIB + has_one, draft.kept / GIB + has_one
    cells = counted.cells()
    room = None
    if isinstance(cells, str):
        unknown.append(cells)
    elif target_gib is not None and (loading is not None or not counted.counts_draft):
        taken = target_gib + (loading or 0.0 if counted.counts_draft else 0.0)
        room = counted.tokens(gpu - before, taken, cells.budgeted)
        if isinstance(room, str):
            unknown.append(room)
    tokens = room if isinstance(room, int) else None
    token = None if isinstance(cells, str) else cells.held
    graphs = GRAPHS_GIB + (DRAFTING_GIB if config.point is not None else 0.0)
    return ServerMemory(
        before=before,
        target=target_gib,
        draft=kept,
        loading=loading,
        cache=None if tokens is None or token is None else tokens * token / GIB,
        tokens=tokens,
        graphs=graphs + LENGTH_GIB * max(0, len(config.warm_steps) - 1),
        is_exact=counted.is_exact,
        token=token,
        unknown=tuple(dict.fromkeys(unknown)),
    )


@dataclass(frozen=True)
class _Cells:
    """Bytes of KV cache for a token."""

    held: float
    budgeted: float
    """As SGLang counts them when it sizes the pool."""


@dataclass(frozen=True)
class _Counted:
    """The parts of one server."""

    config: ServerConfig
    pair: ShapePair
    release: Release

    @property
    def flags(self) -> Mapping[str, Any]:
        return self.config.flags

    @property
    def plain(self) -> int:
        """Bytes of a number that is not quantised."""
        return 4 if self.flags.get("dtype") in ("float32", "float") else PLAIN_BYTES

    @property
    def draft_tp(self) -> int:
        placed = self.config.point.draft_tp if self.config.point else None
        return self.config.model.tp if placed in (None, "target") else int(placed)

    @property
    def has_draft(self) -> bool:
        return self.config.point is not None and self.config.model.algorithm != "NGRAM"

    @property
    def counts_draft(self) -> bool:
        return self.has_draft and self.release.at_least(DRAFT_COUNTED)

    @property
    def is_exact(self) -> bool:
        shapes = (self.pair.target, self.pair.draft if self.has_draft else None)
        return all(
            isinstance(each, ModelShape) and each.is_exact for each in shapes if each is not None
        )

    def uncounted(self) -> str | None:
        used = [name for name in _UNCOUNTED if self.flags.get(name) not in (None, 1)]
        if used:
            return f"--{used[0]} is not counted"
        other = [name for name in _OTHER_MODELS if name in self.config.env]
        return f"{other[0]} may change the model" if other else None

    def target(self) -> float | str:
        if isinstance(self.pair.target, str):
            return self.pair.target
        return self.uncounted() or target_bytes(self.pair.target, self.config.model.tp, self.plain)

    def draft(self) -> DraftWeights | str:
        if not self.has_draft:
            return DraftWeights(0.0, 0.0)
        shapes = self._shapes()
        if isinstance(shapes, str):
            return shapes
        target, draft = shapes
        if draft is None:
            return f"a draft of {self.config.model.algorithm} without files of its own"
        tp = self.config.model.tp
        return self.uncounted() or draft_bytes(draft, target, self.draft_tp, tp, self.plain)

    def _shapes(self) -> tuple[ModelShape, ModelShape | None] | str:
        """Those that are known; why one is not."""
        target, draft = self.pair.target, self.pair.draft if self.has_draft else None
        if isinstance(target, str):
            return target
        return draft if isinstance(draft, str) else (target, draft)

    def cells(self) -> _Cells | str:
        shapes = self._shapes()
        number = number_bytes(self.flags.get("kv-cache-dtype"), self.plain)
        if isinstance(shapes, str):
            return shapes
        if number is None:
            return f"--kv-cache-dtype {self.flags.get('kv-cache-dtype')} is not counted"
        if (why := self.uncounted()) is not None:
            return why
        target, draft = shapes
        if self.has_draft and draft is None:
            return f"a draft of {self.config.model.algorithm} without files of its own"
        own = token_bytes(target, self.config.model.tp, number)
        if draft is None:
            return _Cells(own, own)
        also = token_bytes(draft, self.draft_tp, number)
        return _Cells(own + also, own * (1 + self._share(target, draft)))

    def _share(self, target: ModelShape, draft: ModelShape) -> float:
        """What SGLang adds for the draft: a layer of it for a layer of the target's.

        specbench's plug-in corrects that by the KV heads that a rank has of a draft on a TP size of
        its own (tuner/sglang/plugin/specbench_sglang/budget.py).
        """
        if not self.counts_draft:
            return 0.0
        tp = self.config.model.tp
        more = 1.0
        if self.draft_tp != tp:
            mine = max(1.0, draft.kv_heads / self.draft_tp)
            more = mine / max(1.0, draft.kv_heads / tp)
        return draft.layers * more / target.layers

    def tokens(self, free: float, taken: float, cell: float) -> int | str:
        """What the pool holds: `free` GiB before loading, `taken` by weights when it is sized."""
        limit, fraction = self.flags.get("max-total-tokens"), self.flags.get("mem-fraction-static")
        if not isinstance(fraction, int | float) or isinstance(fraction, bool):
            if isinstance(limit, int):
                return limit
            return "the KV cache takes what SGLang's own mem-fraction-static leaves"
        room = max(0, int((free * fraction - taken) * GIB / cell))
        return min(room, limit) if isinstance(limit, int) else room


_BYTES = {"auto": 2, "bf16": 2, "bfloat16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1}


def number_bytes(flag: ServerFlag | None, plain: int) -> int | None:
    """Of one cached number by --kv-cache-dtype; None for a kind that is not known here."""
    if flag is None or flag == "auto":
        return plain
    return _BYTES.get(str(flag))


def token_bytes(shape: ModelShape, tp: int, number: int) -> float:
    """Keys and values of all layers: each rank has its heads, and of MLA's cache all of it."""
    if shape.latent is not None:
        return shape.layers * (shape.latent.kv_rank + shape.latent.rope) * number
    return shape.layers * 2 * max(1.0, shape.kv_heads / tp) * shape.head_dim * number
