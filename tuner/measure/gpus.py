"""What NVML said of a server's GPUs while a window was measured, and the figures of it. Pure.

The first reading comes just before the load and the last just after it, so both may show a GPU at
rest: they count for energy, which is a difference of two, and not for clocks, reasons and power.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import mean, median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.measure.samples import Window

IDLE = 0x1
"""nvml.h, nvmlClocksEventReasonGpuIdle: the GPU has nothing to do, whatever its clock."""
REASONS = {
    "gpu_power_cap_share": 0x4,  # SwPowerCap: normal under load
    "gpu_hw_slowdown_share": 0x8,  # HwSlowdown: any of the next two, or another
    "gpu_sw_thermal_share": 0x20,
    "gpu_hw_thermal_share": 0x40,
    "gpu_power_brake_share": 0x80,  # the power supply's signal
}
"""Metric -> bit of nvml.h, nvmlClocksEventReasons, whose share of the readings it is."""


@dataclass(frozen=True)
class GpuTrace:
    """One GPU's readings in the order of time, one entry each. None: NVML does not say."""

    gpu: str
    """Its name in CUDA_VISIBLE_DEVICES: an index or a UUID."""
    at: tuple[float, ...]
    """Seconds since just before the window's first request."""
    sm_mhz: tuple[int | None, ...]
    temperature_c: tuple[int | None, ...]
    power_w: tuple[float | None, ...]
    """Of the board; NVML's mean over the last second on GPUs since Ampere."""
    reasons: tuple[int | None, ...]
    """Bits of nvml.h, nvmlClocksEventReasons: why the clock is not higher."""
    energy_j: tuple[float | None, ...]
    """Of the board, since the driver was loaded."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "GpuTrace":
        """What `to_json` wrote. Raises TypeError, KeyError or ValueError for anything else."""
        columns = {name: tuple(data[name]) for name in _COLUMNS}
        if not isinstance(data["gpu"], str) or set(data) != {"gpu", *_COLUMNS}:
            raise ValueError("a GPU's readings have other keys")
        if len({len(column) for column in columns.values()}) > 1:
            raise ValueError("a GPU's readings differ in length")
        for value in (each for column in columns.values() for each in column if each is not None):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{value!r} is no number")
        if not all(bits is None or isinstance(bits, int) for bits in columns["reasons"]):
            raise TypeError("reasons are no bits")
        return cls(gpu=data["gpu"], **columns)

    def to_json(self) -> dict[str, Any]:
        """As samples files have it."""
        return {"gpu": self.gpu, **{name: list(getattr(self, name)) for name in _COLUMNS}}

    @property
    def energy(self) -> float | None:
        """Joules from the first reading to the last; None where the counter does not tell."""
        if len(self.energy_j) < 2 or self.energy_j[0] is None or self.energy_j[-1] is None:
            return None
        spent = self.energy_j[-1] - self.energy_j[0]
        return spent if spent >= 0 else None  # the driver was loaded anew

    @property
    def loaded(self) -> range:
        """Which readings are of a GPU under load."""
        return range(1, len(self.at) - 1)


_COLUMNS = tuple(field.name for field in fields(GpuTrace) if field.name != "gpu")


def gpu_figures(windows: "Sequence[Window]") -> dict[str, float | int | None]:
    """A level's metrics from its windows' traces; every one None where nothing was read.

    Clocks in MHz, temperature in °C. Shares are of readings under load, of all GPUs together.
    `gpu_power_w`, `gpu_energy_j` and `energy_j_per_token` (J per completion token) are sums over
    the server's GPUs; energy is None unless every window and GPU has it.
    """
    traces = [trace for window in windows for trace in window.gpus or ()]
    busy = [clock for trace in traces for clock in _busy_clocks(trace)]
    warm = [each for trace in traces for each in trace.temperature_c if each is not None]
    energy = _energy(windows)
    tokens = sum(sample.tokens for window in windows for sample in window.samples)
    return {
        "gpus": max((len(window.gpus or ()) for window in windows), default=0) or None,
        "gpu_clock_mhz": median(busy) if busy else None,
        "gpu_clock_mhz_min": min(busy, default=None),
        "gpu_temperature_c_max": max(warm, default=None),
        "gpu_power_w": _power(windows),
        **_shares(traces),
        "gpu_energy_j": energy,
        "energy_j_per_token": energy / tokens if energy is not None and tokens else None,
    }


def clocks_by_gpu(windows: "Sequence[Window]") -> dict[str, float]:
    """Each GPU's median SM clock under load, MHz; without those that were not read."""
    busy: dict[str, list[int]] = {}
    for trace in (trace for window in windows for trace in window.gpus or ()):
        busy.setdefault(trace.gpu, []).extend(_busy_clocks(trace))
    return {gpu: median(clocks) for gpu, clocks in busy.items() if clocks}


def _busy_clocks(trace: GpuTrace) -> Iterator[int]:
    for index in trace.loaded:
        clock, reasons = trace.sm_mhz[index], trace.reasons[index]
        if clock is not None and not (reasons or 0) & IDLE:
            yield clock


def _shares(traces: "Sequence[GpuTrace]") -> dict[str, float | None]:
    known = [
        bits
        for trace in traces
        for index in trace.loaded
        if (bits := trace.reasons[index]) is not None
    ]
    return {
        name: sum(bool(bits & bit) for bits in known) / len(known) if known else None
        for name, bit in REASONS.items()
    }


def _power(windows: "Sequence[Window]") -> float | None:
    """Watts of all GPUs together, the mean over windows."""
    sums = []
    for window in windows:
        each = [
            [watts for index in trace.loaded if (watts := trace.power_w[index]) is not None]
            for trace in window.gpus or ()
        ]
        if each and all(each):
            sums.append(sum(map(mean, each)))
    return mean(sums) if sums else None


def _energy(windows: "Sequence[Window]") -> float | None:
    spent = [trace.energy for window in windows for trace in window.gpus or ()]
    known = [joules for joules in spent if joules is not None]
    whole = bool(windows) and all(window.gpus for window in windows) and len(known) == len(spent)
    return sum(known) if whole else None
