"""See __init__.py."""

from types import SimpleNamespace

import torch

ReduceOp = SimpleNamespace(SUM="sum", MIN="min", MAX="max")
_world = 0


def is_nccl_available():
    return True


def init_process_group(backend, init_method, rank, world_size, timeout):
    global _world
    _world = world_size


def destroy_process_group():
    pass


def new_group(ranks, timeout):
    return len(ranks)


def all_reduce(tensor, op="sum", group=None):
    if torch.state.captured is not None:
        torch.state.captured.nodes += (group or _world) / _world
        return
    torch.state.clock_us += torch.EAGER_US * (group or _world) / _world
    if op == "sum":
        tensor.value *= group or _world
