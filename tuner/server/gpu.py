"""GPU memory as NVML sees it, so that a launch does not start in its predecessor's memory.

NVML opens no CUDA context. Where it is missing, everything here does nothing.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, takewhile
from pathlib import Path
from typing import Any, TypeVar

Answer = TypeVar("Answer")

MARGIN_BYTES = 512 * 2**20
"""What may be missing of the memory before the launch: drivers keep some after a first use."""


MOST_PROCESSES = 8
"""On one GPU that are named."""
CROWDED_SHARE = 0.1
"""Of a GPU's memory in use before a launch, above which it is worth saying: SGLang takes a share
of what is free."""


def used_memory(environment: Mapping[str, str]) -> dict[str, int] | None:
    """Bytes in use on each GPU that a process with this environment may use, by GPU.

    Honours CUDA_VISIBLE_DEVICES as indices or UUIDs. None where there is no NVML, no GPU, or a
    device that NVML does not know by that name.
    """
    memory = _memory(environment)
    return {gpu: int(each.used) for gpu, each in memory.items()} if memory else None


def visible_names(environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """The GPUs that a process with this environment may use, by their names in its
    CUDA_VISIBLE_DEVICES and in that order; indices where there is none.

    Names are not looked up (NVML does not know a MIG slice by its name). None where NVML is needed
    and does not answer.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return ask_nvml(environment, lambda _, handles: tuple(handles))
    return tuple(_named(visible))


def _named(visible: str) -> list[str]:
    names = [name.strip() for name in visible.split(",") if name.strip()]
    return list(takewhile(lambda name: not name.startswith("-"), names))  # -1 hides all after it


def gpu_in_use(environment: Mapping[str, str]) -> list[str]:
    """`GPU 0: 71 of 140 GiB in use by others (process 4711)` for each visible GPU that is, before
    a launch; the processes as NVML numbers them, where it tells."""
    memory = _memory(environment) or {}
    full = {g: each for g, each in memory.items() if each.used > CROWDED_SHARE * each.total}
    whose = (ask_nvml(environment, _processes) or {}) if full else {}
    return [
        f"GPU {gpu}: {each.used / 2**30:.0f} of {each.total / 2**30:.0f} GiB in use by others"
        + _numbered(whose.get(gpu, ()))
        for gpu, each in full.items()
    ]


def _numbered(pids: Sequence[int]) -> str:
    shown = ", ".join(map(str, pids[:MOST_PROCESSES]))
    more = f" and {len(pids) - MOST_PROCESSES} more" if len(pids) > MOST_PROCESSES else ""
    return f" ({'processes' if len(pids) > 1 else 'process'} {shown}{more})" if pids else ""


def _processes(nvml: Any, handles: Mapping[str, Any]) -> dict[str, list[int]]:
    """Those with a CUDA context on each GPU; a container sees its own or none."""
    ask = getattr(nvml, "nvmlDeviceGetComputeRunningProcesses", None)
    if ask is None:
        return {}
    return {name: sorted(int(each.pid) for each in ask(it)) for name, it in handles.items()}


def _memory(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """NVML's memory info of each visible GPU."""
    return ask_nvml(
        environment,
        lambda nvml, handles: {
            name: nvml.nvmlDeviceGetMemoryInfo(each) for name, each in handles.items()
        },
    )


def ask_nvml(
    environment: Mapping[str, str], question: Callable[[Any, dict[str, Any]], Answer]
) -> Answer | None:
    """What `question` finds, given NVML and the handles of the visible GPUs by name.

    None where there is no NVML, or it does not answer or know a GPU by that name.
    """
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        return question(pynvml, _handles(pynvml, environment.get("CUDA_VISIBLE_DEVICES")))
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def _handles(nvml: Any, visible: str | None) -> dict[str, Any]:
    """NVML's handles of the GPUs that CUDA_VISIBLE_DEVICES leaves visible, by their names there.

    Raises NVMLError for a name that NVML does not know, such as a MIG slice's.
    """
    if visible is None:
        names = [str(index) for index in range(nvml.nvmlDeviceGetCount())]
    else:
        names = _named(visible)
    handles = {}
    for name in names:
        if name.isdecimal():
            handles[name] = nvml.nvmlDeviceGetHandleByIndex(int(name))
        else:
            handles[name] = nvml.nvmlDeviceGetHandleByUUID(name)
    return handles


def wait_until_back(
    before: Mapping[str, int] | None, environment: Mapping[str, str], limit_s: float
) -> bool:
    """Wait until no GPU holds clearly more than `before`; False where one does after `limit_s`."""
    if before is None:
        return True
    deadline = time.monotonic() + limit_s
    while (now := used_memory(environment)) is not None:
        if all(now.get(gpu, 0) <= used + MARGIN_BYTES for gpu, used in before.items()):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.25)
    return True


_ANCESTORS = (  # nvml.h, nvmlGpuTopologyLevel_t; the words in brackets are nvidia-smi topo's
    ("NVML_TOPOLOGY_INTERNAL", "the same board"),
    ("NVML_TOPOLOGY_SINGLE", "one PCIe switch (PIX)"),
    ("NVML_TOPOLOGY_MULTIPLE", "several PCIe switches (PXB)"),
    ("NVML_TOPOLOGY_HOSTBRIDGE", "a PCIe host bridge (PHB)"),
    ("NVML_TOPOLOGY_NODE", "PCIe within a NUMA node (NODE)"),
    ("NVML_TOPOLOGY_SYSTEM", "PCIe and the link between CPUs (SYS)"),
)


# nvml.h, nvmlGpuP2PCapsIndex_t. nvidia-ml-py's own NVML_P2P_CAPS_INDEX_READ is the tuple (0,).
_READ, _NVLINK = 0, 2
_DEVICES = Path("/sys/bus/pci/devices")


@dataclass(frozen=True)
class Gpu:
    """A GPU by its name in CUDA_VISIBLE_DEVICES, and its memory in bytes."""

    index: str
    name: str
    total: int
    used: int


@dataclass(frozen=True)
class Link:
    """The way between two GPUs; None for what the driver does not tell."""

    pair: tuple[str, str]
    way: str | None
    peer: bool | None
    """True where one GPU can read the other's memory (P2P)."""


@dataclass(frozen=True)
class Gpus:
    """What a process with some environment can use."""

    driver: str
    cuda: str
    """The newest CUDA that the driver serves."""
    cards: tuple[Gpu, ...]
    links: tuple[Link, ...]
    """One for each pair of cards."""


def visible_gpus(environment: Mapping[str, str]) -> Gpus | None:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves; None where NVML does not answer or know them."""
    return ask_nvml(environment, _gpus)


def numa_nodes(environment: Mapping[str, str], devices: Path = _DEVICES) -> dict[str, int]:
    """The NUMA node of each visible GPU by its name, from its PCI device; without those of which
    the kernel tells none."""

    def nodes(nvml: Any, handles: Mapping[str, Any]) -> dict[str, int]:
        found = {name: _node(nvml, each, devices) for name, each in handles.items()}
        return {name: node for name, node in found.items() if node is not None}

    return ask_nvml(environment, nodes) or {}


def _node(nvml: Any, handle: Any, devices: Path) -> int | None:
    try:
        # NVML writes the domain with eight digits, the kernel with four.
        domain, rest = _text(nvml.nvmlDeviceGetPciInfo(handle).busId).lower().split(":", 1)
        node = int((devices / f"{int(domain, 16):04x}:{rest}" / "numa_node").read_text())
    except (nvml.NVMLError, OSError, ValueError):
        return None
    return node if node >= 0 else None


def _gpus(nvml: Any, handles: Mapping[str, Any]) -> Gpus:
    cuda = nvml.nvmlSystemGetCudaDriverVersion_v2()
    return Gpus(
        driver=_text(nvml.nvmlSystemGetDriverVersion()),
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}",
        cards=tuple(_card(nvml, index, each) for index, each in handles.items()),
        links=tuple(_links(nvml, handles)),
    )


def _card(nvml: Any, index: str, handle: Any) -> Gpu:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    name = _text(nvml.nvmlDeviceGetName(handle))
    return Gpu(index, name, int(memory.total), int(memory.used))


def _links(nvml: Any, handles: Mapping[str, Any]) -> Iterator[Link]:
    for (one, first), (other, second) in combinations(handles.items(), 2):
        way = "NVLink" if _peer(nvml, first, second, _NVLINK) else None
        yield Link(
            pair=(one, other),
            way=way or _ancestor(nvml, first, second),
            peer=_peer(nvml, first, second, _READ),
        )


def _peer(nvml: Any, first: Any, second: Any, kind: int) -> bool | None:
    try:
        return bool(nvml.nvmlDeviceGetP2PStatus(first, second, kind) == nvml.NVML_P2P_STATUS_OK)
    except nvml.NVMLError:  # not supported, under some virtualisation
        return None


def _ancestor(nvml: Any, first: Any, second: Any) -> str | None:
    try:
        level = nvml.nvmlDeviceGetTopologyCommonAncestor(first, second)
    except nvml.NVMLError:
        return None
    return next((words for name, words in _ANCESTORS if getattr(nvml, name) == level), None)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
