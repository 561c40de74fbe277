"""Lets a Llama run in float32 on CUDA: SGLang's own PyTorch code in place of some kernels.

sgl_kernel's rmsnorm has half-precision variants only, and none of these three is what the tests
here are about. Linear layers, attention, all-reduces and graphs stay as they are.
"""

from sglang.srt.layers.activation import SiluAndMul  # type: ignore[import-not-found]
from sglang.srt.layers.layernorm import RMSNorm  # type: ignore[import-not-found]
from sglang.srt.layers.rotary_embedding.base import (  # type: ignore[import-not-found]
    RotaryEmbedding,
)


def load() -> None:
    for layer in (RMSNorm, SiluAndMul, RotaryEmbedding):
        layer.forward_cuda = layer.forward_native
