"""The figures of what NVML said of a server's GPUs while windows were measured. Pure."""

from collections.abc import Iterator, Sequence
from statistics import mean, median

from tuner.measure.gpu_trace import GpuTrace
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


def gpu_figures(windows: Sequence[Window]) -> dict[str, float | int | None]:
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


def clocks_by_gpu(windows: Sequence[Window]) -> dict[str, float]:
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


def _shares(traces: Sequence[GpuTrace]) -> dict[str, float | None]:
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


def _power(windows: Sequence[Window]) -> float | None:
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


def _energy(windows: Sequence[Window]) -> float | None:
    spent = [trace.energy for window in windows for trace in window.gpus or ()]
    known = [joules for joules in spent if joules is not None]
    whole = bool(windows) and all(window.gpus for window in windows) and len(known) == len(spent)
    return sum(known) if whole else None
