"""Sizes that a server's log states, as values. SGLang's GB are 2^30 bytes, rounded to 0.01."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tuner.config.schema import ServerFlag

_STAMP = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d((?: [A-Z]+\d+)*)\] ")
_FIRST = re.compile(r"(?: [A-Z]+0)*")
_WEIGHTS = re.compile(r"Load weight end\..*?type=(\w+).*?avail mem=([\d.]+) GB, mem usage=([\d.]+)")
_BEGIN = re.compile(r"Load weight begin\. avail mem=([\d.]+) GB")
_CACHE = re.compile(
    r"KV Cache is allocated\..*?#tokens: (\d+), K size: ([\d.]+) GB, V size: ([\d.]+) GB"
)
_LATENT = re.compile(r"KV Cache is allocated\..*?#tokens: (\d+), KV size: ([\d.]+) GB")
_CAPTURE = re.compile(r"Capture .*?end\..*?mem usage=([\d.]+) GB")
_BUILT = re.compile(r"Built adaptive runtime state steps=(\d+):.*?mem=([\d.]+)\s*GB")
_END = re.compile(
    r"max_total_num_tokens=(\d+),.*?(?:available_gpu_mem|avail(?:able)? mem)=([\d.]+) GB"
)
_OWN = 3
"""Captures of a launch for several lengths that are its own, the longest's: they come first."""


@dataclass(frozen=True)
class Cache:
    """One model's KV cache."""

    tokens: int
    gib: float


@dataclass(frozen=True)
class Sizes:
    """What the first rank of a launch said, in GiB; None and () for what it did not say."""

    before: float | None = None
    """Free before the target's weights."""
    target: float | None = None
    draft: float | None = None
    """Taken by loading the draft; None without one."""
    caches: tuple[Cache, ...] = ()
    """The target's, then the draft's."""
    captures: tuple[float, ...] = ()
    """Each capture of CUDA graphs, those of further chain lengths left out."""
    lengths: tuple[tuple[int, float], ...] = ()
    """(steps, GiB) of each further chain length of a launch for several."""
    tokens: int | None = None
    """max_total_num_tokens."""
    free: float | None = None
    """When the server was ready."""


def read_sizes(log: Path) -> Sizes:
    """The sizes in a launch's log. Raises OSError."""
    return parse_sizes(log.read_text(encoding="utf-8", errors="replace").splitlines())


def parse_sizes(lines: Iterable[str]) -> Sizes:
    """The sizes in a log's lines; of several ranks the first's."""
    before: float | None = None
    weights: list[float] = []
    caches: list[Cache] = []
    captures: list[float] = []
    lengths: list[tuple[int, float]] = []
    tokens: int | None = None
    free: float | None = None
    for line in map(_of_first_rank, lines):
        if before is None and (found := _BEGIN.search(line)):
            before = float(found[1])
        elif found := _WEIGHTS.search(line):
            weights.append(float(found[3]))
        elif found := _CACHE.search(line):
            caches.append(Cache(int(found[1]), float(found[2]) + float(found[3])))
        elif found := _LATENT.search(line):
            caches.append(Cache(int(found[1]), float(found[2])))
        elif found := _BUILT.search(line):
            lengths.append((int(found[1]), float(found[2])))
        elif found := _CAPTURE.search(line):
            captures.append(float(found[1]))
        elif found := _END.search(line):
            tokens, free = int(found[1]), float(found[2])
    return Sizes(
        before=before,
        target=weights[0] if weights else None,
        draft=weights[1] if len(weights) > 1 else None,
        caches=tuple(caches[:2]),
        captures=tuple(captures[:_OWN] if lengths else captures),
        lengths=tuple(lengths),
        tokens=tokens,
        free=free,
    )


def _of_first_rank(line: str) -> str:
    """What rank 0 said in the line, or a server of one rank; "" for others'.

    A progress bar may stand before the stamp.
    """
    stamps = list(_STAMP.finditer(line))
    if not stamps or not _FIRST.fullmatch(stamps[-1][1]):
        return ""
    return line[stamps[-1].end() :]


# What carries SGLang's all-reduces: what it writes for NCCL, and what a log says was in effect.
#
# Sources are wheel files of 0.5.17 and 0.5.23 below sglang/srt/.


BackEnd = Literal[
    "custom all-reduce", "FlashInfer PCIe-IPC all-reduce", "NCCL", "NCCL with symmetric memory"
]
THROUGH_NCCL: tuple[BackEnd, ...] = ("NCCL", "NCCL with symmetric memory")
_READ_BYTES = 2 * 2**20
"""Of a log's beginning, where SGLang says what it set up."""

_RANKS = re.compile(r"\btp_size=(\d+)")
_DISABLED = re.compile(r"\bdisable_custom_all_reduce=True")
_SYMMETRIC = re.compile(r"\benable_symm_mem=True")
_UNREAD = re.compile(
    r"\b(enable_mscclpp=True|enable_torch_symm_mem=True|device='(?!cuda')\w+'|nnodes=(?!1\b)\d+)"
)
"""Back-ends, devices and machines whose logs were not read."""
# device_communicators/custom_all_reduce_v2.py:268 and :342; custom_all_reduce.py:238 (the older
# one, when graphs are captured).
_CUSTOM = re.compile(r"All Reduce config: symmetric_memory|Registering \d+ cuda graph addresses")
_PCIE_IPC = re.compile(r"FlashInfer PCIe-IPC workspace built")  # 0.5.23 pcie_ipc_ar.py:298
# distributed/parallel_state.py:459 of 0.5.17; custom_all_reduce_utils.py:433-513, where the class
# is named; server_args.py:7885.
_REFUSED = re.compile(
    r"Setup Custom allreduce failed with"
    r"|\b(CustomAllreduce|CustomAllReduceV2|Custom allreduce) is disabled"
    r"|custom all reduce is disabled for deterministic inference",
    re.IGNORECASE,
)


def all_reduce_backend(log: str) -> BackEnd | None:
    """What carried the small all-reduces of a server, by its log; None where that is not said.

    None too for one rank, which has none. Custom all-reduce says so when it is set up, from 0.5.17
    on for NVLink and two GPUs, and is silent where --disable-custom-all-reduce is given. A line of
    refusal counts only without a line of set-up: the newer kind hands over to the older one.
    """
    arguments = next((line for line in log.splitlines() if "server_args=" in line), None)
    ranks = _RANKS.search(arguments) if arguments is not None else None
    if arguments is None or ranks is None or int(ranks[1]) < 2 or _UNREAD.search(arguments):
        return None
    if _PCIE_IPC.search(log):
        return "FlashInfer PCIe-IPC all-reduce"
    if _SYMMETRIC.search(arguments):  # parallel_state.py:712: before custom all-reduce is asked
        return "NCCL with symmetric memory"
    if _CUSTOM.search(log):
        return "custom all-reduce"
    if _DISABLED.search(arguments) or _REFUSED.search(log):
        return "NCCL"
    return None


def logged_backend(log: Path) -> BackEnd | None:
    """The same of a log file; None too where it cannot be read."""
    try:
        with log.open("rb") as file:
            text = file.read(_READ_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return None
    return all_reduce_backend(text)


def nccl_defaults(
    flags: Mapping[str, ServerFlag], environment: Mapping[str, str]
) -> dict[str, str]:
    """Variables that SGLang itself writes before NCCL starts, on one machine.

    `environment` is what the server is started with. NVLS stays off unless the flags ask for it or
    the environment has it (entrypoints/engine.py:1582-1597 of 0.5.17, :1898-1921 of 0.5.23).
    """
    symmetric = flags.get("enable-symm-mem") is True
    multicast = symmetric or flags.get("enable-nccl-nvls") is True
    written = {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}
    if symmetric or "NCCL_CUMEM_ENABLE" not in environment:
        written["NCCL_CUMEM_ENABLE"] = str(int(symmetric))
    if multicast or "NCCL_NVLS_ENABLE" not in environment:
        written["NCCL_NVLS_ENABLE"] = str(int(multicast))
    return written
