"""Bytes of KV cache for one token on one rank."""

from tuner.memory.shape import Shape
from tuner.sweep.model import ServerFlag

_BYTES = {"auto": 2, "bf16": 2, "bfloat16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1}


def number_bytes(flag: ServerFlag | None, plain: int) -> int | None:
    """Of one cached number by --kv-cache-dtype; None for a kind that is not known here."""
    if flag is None or flag == "auto":
        return plain
    return _BYTES.get(str(flag))


def token_bytes(shape: Shape, tp: int, number: int) -> float:
    """Keys and values of all layers: each rank has its heads, and of MLA's cache all of it."""
    if shape.latent is not None:
        return shape.layers * (shape.latent.kv_rank + shape.latent.rope) * number
    return shape.layers * 2 * max(1.0, shape.kv_heads / tp) * shape.head_dim * number
