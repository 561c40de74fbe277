"""GPU memory as NVML sees it, so that a launch does not start in its predecessor's memory.

NVML opens no CUDA context. Where it is missing, everything here does nothing.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
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


def crowded(environment: Mapping[str, str]) -> list[str]:
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
