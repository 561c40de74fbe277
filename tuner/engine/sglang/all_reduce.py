"""What carries SGLang's all-reduces: what it writes for NCCL, and what a log says was in effect.

Sources are wheel files of 0.5.17 and 0.5.23 below sglang/srt/.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from tuner.sweep.model import ServerFlag

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
