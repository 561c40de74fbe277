"""A stand-in for pynvml: boards of a known power whose memory and troubles are set by the test."""

import time
from threading import Event
from types import SimpleNamespace

GIB = 2**30


class NvmlError(Exception):
    """As pynvml's."""


class FakeNvml:
    """GPUs at 500 W from the moment they are looked at; `broken` functions raise."""

    NVMLError = NvmlError
    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0

    def __init__(self, count: int = 4) -> None:
        self.count = count
        self.used = [GIB] * count
        self.pids: dict[int, list[int]] = {}
        self.broken: set[str] = set()
        self.hang: Event | None = None
        self.looks, self.open = 0, 0
        self.began = time.perf_counter()

    def nvmlInit(self) -> None:  # noqa: N802
        self._ask("nvmlInit")
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def _ask(self, name: str) -> None:
        if self.hang is not None and name != "nvmlDeviceGetMemoryInfo":
            self.hang.wait()
        if name in self.broken:
            raise NvmlError(name)

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index >= self.count:
            raise NvmlError("no such device")
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(used=self.used[handle], total=140 * GIB)

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return f"GPU-00000000-0000-0000-0000-00000000000{handle}"

    def nvmlDeviceGetComputeRunningProcesses(  # noqa: N802
        self, handle: int
    ) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid) for pid in self.pids.get(handle, ())]

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:  # noqa: N802
        self._ask("nvmlDeviceGetClockInfo")
        self.looks += 1
        return 1980 - handle

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:  # noqa: N802
        self._ask("nvmlDeviceGetTemperature")
        return 60 + handle

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        self._ask("nvmlDeviceGetPowerUsage")
        return 500_000

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:  # noqa: N802
        self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        return 4

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:  # noqa: N802
        self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return 8

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:  # noqa: N802
        self._ask("nvmlDeviceGetTotalEnergyConsumption")
        return int(500_000 * (time.perf_counter() - self.began))
