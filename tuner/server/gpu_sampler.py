"""NVML's readings of a server's GPUs, about once a second while a window is measured.

A thread of its own reads, so that neither a slow driver nor one that hangs holds up the load. What
cannot be read is None; nothing here raises, and the load goes on whatever happens.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

from tuner.metrics.samples import GpuTrace
from tuner.server.gpu import MARGIN_BYTES, ask_nvml, used_memory

PERIOD_S = 1.0
FIRST_S = 0.25
"""To the first reading under load, so that short windows have one."""
PATIENCE_S = 5.0
"""For NVML to answer at all; to initialise it can take a second on eight GPUs."""

_log = logging.getLogger(__name__)


def find_server_gpus(
    info: Mapping[str, Any], before: Mapping[str, int] | None, environment: Mapping[str, str]
) -> "ServerGpus | None":
    """The GPUs of a server that has started here: those that hold clearly more than `before`.

    So a server that runs elsewhere (behind ssh or srun) has none. None unless they are as many as
    the server says in its `info` that it uses.
    """
    now = used_memory(environment) if before is not None else None
    if before is None or now is None:
        return None
    names = [gpu for gpu, used in before.items() if now.get(gpu, 0) > used + MARGIN_BYTES]
    return ServerGpus(environment, tuple(names)) if len(names) == _ranks(info) else None


def _ranks(info: Mapping[str, Any]) -> int | None:
    """GPUs of a server on one machine; None where it is on several, or does not say."""
    sizes = [info.get(name, 1) for name in ("tp_size", "pp_size", "dp_size", "nnodes")]
    if not all(type(size) is int for size in sizes) or "tp_size" not in info:
        return None
    tp, pp, dp, nodes = sizes
    if nodes != 1:
        return None
    return int(tp * pp * (1 if info.get("enable_dp_attention") else dp))


@dataclass
class ServerGpus:
    """Some GPUs that NVML can be asked about, by their names in CUDA_VISIBLE_DEVICES."""

    environment: Mapping[str, str]
    names: tuple[str, ...]
    lost: bool = False
    """NVML hung or failed: it is not asked again."""


@contextmanager
def watched(gpus: ServerGpus | None) -> Iterator["GpuSampler"]:
    """Read the GPUs from before the block to after it; `Watch.traces` has it afterwards."""
    watch = GpuSampler(gpus)
    watch.begin()
    try:
        yield watch
    finally:
        watch.end()


class GpuSampler:
    """The readings of one window. Without GPUs it does nothing."""

    def __init__(self, gpus: ServerGpus | None) -> None:
        self.traces: tuple[GpuTrace, ...] | None = None
        self._gpus = gpus if gpus is not None and not gpus.lost else None
        self._read: tuple[GpuTrace, ...] | None = None
        self._begun, self._ended = Event(), Event()
        self._in_time = False
        """A first reading in the middle of the load would miss a part of its energy."""
        self._thread = Thread(target=self._run, name="gpu-watch", daemon=True)

    def begin(self) -> None:
        """Return when the first reading is there, or will not come in time."""
        if self._gpus is not None:
            self._thread.start()
            self._in_time = self._begun.wait(PATIENCE_S)

    def end(self) -> None:
        """Take the last reading."""
        if self._gpus is None:
            return
        self._ended.set()
        self._thread.join(PATIENCE_S)
        if self._in_time and not self._thread.is_alive():
            self.traces = self._read
        if self.traces is None:
            self._gpus.lost = True
            _log.warning("NVML gives no readings of GPUs %s", ", ".join(self._gpus.names))

    def _run(self) -> None:
        assert self._gpus is not None
        try:
            self._read = ask_nvml(self._gpus.environment, self._readings)
        except Exception:  # a measurement is worth more than its readings
            _log.debug("reading NVML failed", exc_info=True)
        finally:
            self._begun.set()

    def _readings(self, nvml: Any, handles: Mapping[str, Any]) -> tuple[GpuTrace, ...]:
        """All readings until the window has ended."""
        assert self._gpus is not None
        columns = {name: _Columns() for name in self._gpus.names}
        began, pause = time.perf_counter(), FIRST_S
        while True:
            is_last = self._ended.is_set()
            for name, of in columns.items():
                of.add(nvml, handles[name], time.perf_counter() - began)
            self._begun.set()
            if is_last:
                return tuple(of.trace(name) for name, of in columns.items())
            self._ended.wait(pause)
            pause = PERIOD_S


@dataclass
class _Columns:
    """A trace while it grows."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)

    def add(self, nvml: Any, handle: Any, at: float) -> None:
        """One look at a GPU."""
        read: tuple[Callable[[], Any], ...] = (
            lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            lambda: _reasons(nvml, handle),
            lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000,
        )
        self.rows.append((round(at, 3), *(_or_none(nvml, each) for each in read)))

    def trace(self, gpu: str) -> GpuTrace:
        """What was read so far."""
        at, sm_mhz, temperature_c, power_w, reasons, energy_j = zip(*self.rows, strict=True)
        return GpuTrace(gpu, at, sm_mhz, temperature_c, power_w, reasons, energy_j)


def _reasons(nvml: Any, handle: Any) -> int:
    """Bits of nvmlClocksEventReasons, by their older name where the driver is older than 535 or
    nvidia-ml-py does not know the newer one."""
    try:
        return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except (nvml.NVMLError, AttributeError):
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _or_none(nvml: Any, read: Callable[[], Any]) -> Any:
    """None for what this GPU, driver or nvidia-ml-py does not tell."""
    try:
        return read()
    except (nvml.NVMLError, AttributeError):
        return None
