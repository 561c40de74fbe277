"""As much of torch as tuner/sglang/nccl/child.py uses, on two GPUs that are not there.

Each rank is alone: a sum multiplies by the number of ranks. FAKE_NO_GRAPH refuses captures.
"""

import os
from contextlib import contextmanager
from types import SimpleNamespace

__version__ = "0"
bfloat16 = float16 = float32 = float64 = None
GRAPH_US, EAGER_US = 5.0, 20.0
"""Of one all-reduce over all ranks, in a replayed graph and launched by itself; over a part of the
ranks that part of it."""
state = SimpleNamespace(clock_us=0.0, captured=None)


class Tensor:
    def __init__(self, value, device):
        self.value, self.device = value, device

    def item(self):
        return self.value


def device(kind, index=None):
    return SimpleNamespace(type=kind, index=index)


def ones(_count, device=None):
    return Tensor(1, device)


def zeros(_count, dtype=None, device=None):
    return Tensor(0, device)


def tensor(values, dtype=None, device=None):
    return Tensor(values[0], device)


class Graph:
    def __init__(self):
        self.nodes = 0

    def replay(self):
        state.clock_us += self.nodes * GRAPH_US


@contextmanager
def _graph(graph, capture_error_mode):
    if "FAKE_NO_GRAPH" in os.environ:
        raise RuntimeError("operation not permitted when stream is capturing")
    state.captured = graph
    yield
    state.captured = None


class Event:
    def __init__(self, enable_timing):
        self.at = None

    def record(self):
        self.at = state.clock_us

    def elapsed_time(self, other):
        return (other.at - self.at) / 1000


cuda = SimpleNamespace(
    device_count=lambda: int(os.environ.get("FAKE_GPUS", "2")),
    set_device=lambda index: None,
    synchronize=lambda: None,
    get_device_name=lambda device: "a GPU that is not there",
    nccl=SimpleNamespace(version=lambda: (2, 28, 9)),
    CUDAGraph=Graph,
    graph=_graph,
    Event=Event,
)
