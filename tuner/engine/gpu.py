"""GPU memory as NVML sees it, so that a launch does not start in its predecessor's memory.

NVML opens no CUDA context. Where it is missing, everything here does nothing.
"""

import time
from collections.abc import Mapping
from typing import Any

MARGIN_BYTES = 512 * 2**20
"""What may be missing of the memory before the launch: drivers keep some after a first use."""


def used_memory(environment: Mapping[str, str]) -> dict[str, int] | None:
    """Bytes in use on each GPU that a process with this environment may use, by GPU.

    Honours CUDA_VISIBLE_DEVICES as indices or UUIDs. None where there is no NVML, no GPU, or a
    device that NVML does not know by that name.
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
        handles = _handles(pynvml, environment.get("CUDA_VISIBLE_DEVICES"))
        used = {n: int(pynvml.nvmlDeviceGetMemoryInfo(h).used) for n, h in handles.items()}
        return used or None
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def _handles(nvml: Any, visible: str | None) -> dict[str, Any]:
    if visible is None:
        names = [str(index) for index in range(nvml.nvmlDeviceGetCount())]
    else:
        names = [name.strip() for name in visible.split(",") if name.strip()]
    handles = {}
    for name in names:
        if name.isdecimal():
            handles[name] = nvml.nvmlDeviceGetHandleByIndex(int(name))
        elif not name.startswith("-"):  # -1 hides all devices after it
            handles[name] = nvml.nvmlDeviceGetHandleByUUID(name)
        else:
            break
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
