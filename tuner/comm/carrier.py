"""What carries a point's all-reduces: decided before its communication setting is."""

from collections.abc import Callable, Mapping
from typing import Literal

from tuner.comm.messages import BYTES, shape_of
from tuner.comm.settings import BACK_END_FLAGS, is_nccl
from tuner.engine.base import ServerConfig, server_config
from tuner.engine.sglang.all_reduce import THROUGH_NCCL
from tuner.errors import UserError
from tuner.sweep.model import Sweep
from tuner.sweep.point import Point

Carrier = Literal["own kernels", "NCCL", "another"]
"""`own kernels`: SGLang's, as the baseline's log shows, so that NCCL settings do nothing.
`NCCL`: NCCL, or not known: where it is not on the path after all, its settings do nothing.
`another`: a back-end that a benchmark of NCCL says nothing about."""

OWN_BYTES = 8 * 2**20
"""Custom all-reduce takes messages up to this on every GPU and leaves larger ones to NCCL
(custom_all_reduce.py:42 of SGLang 0.5.17; the newer kind takes 16 MiB and more)."""
ANY_TOKENS = 10**9
"""Of a simulated server, whose own kernels carry every size."""
_OTHERS = (
    "enable-dp-attention",  # gathers and scatters in place of reducing
    "enable-flashinfer-allreduce-fusion",
    "enable-mscclpp",
    "enable-symm-mem",
    "enable-torch-symm-mem",
)
_CHOOSING = (*BACK_END_FLAGS, "enable-deterministic-inference")
"""Flags that have a say in it."""


def own_tokens(sweep: Sweep, environment: Mapping[str, str]) -> int | None:
    """The most tokens of a pass that SGLang's own kernels carry; None where the model's shape is
    not known here."""
    if sweep.engine.kind == "simulated":
        return ANY_TOKENS
    try:
        shape = shape_of(sweep, environment, None, None)
    except UserError:
        return None
    width = max(shape.hidden, shape.draft_hidden or 0)
    return OWN_BYTES // (width * BYTES[shape.dtype])


def carriers(sweep: Sweep, back_end: str | None, most: int | None) -> Callable[[Point], Carrier]:
    """For any point of the sweep. `back_end` is what the baseline's log shows, None: nothing;
    `most` is `own_tokens`."""
    base = _chosen_by(server_config(sweep, None))
    shown_own = back_end is not None and back_end not in THROUGH_NCCL

    def carrier(point: Point) -> Carrier:
        config = server_config(sweep, point)
        if any(config.flags.get(name) is True for name in _OTHERS):
            return "another"
        if dict(point.flags).get("enable-nccl-nvls"):  # the benchmark has the server's flags alone
            return "another"
        if shown_own and _chosen_by(config) == base and _fits(point, sweep, most):
            return "own kernels"
        return "NCCL"

    return carrier


def _chosen_by(config: ServerConfig) -> tuple[object, ...]:
    """What SGLang chooses a back-end by."""
    flags = tuple(config.flags.get(name) or False for name in _CHOOSING)
    env = {name: value for name, value in config.env.items() if not is_nccl(name)}
    return flags, env, {name for name in config.unset if not is_nccl(name)}


def _fits(point: Point, sweep: Sweep, most: int | None) -> bool:
    """All its all-reduces are of the target's group, and small enough."""
    if most is None or point.num_draft_tokens is None:
        return False
    if point.draft_tp not in (None, "target", 1):
        return False  # a group of its own, which no log was read of
    return point.num_draft_tokens * max(sweep.workload.concurrency) <= most
