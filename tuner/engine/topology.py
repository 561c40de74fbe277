"""The GPUs that a server would see, and the ways between them, as NVML tells. No CUDA context."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from tuner.engine.gpu import ask_nvml

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
