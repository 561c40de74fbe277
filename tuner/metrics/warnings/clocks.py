"""Doubts about the GPUs while they were measured, by NVML; none where it was not read."""

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.metrics.level_metrics import clocks_by_gpu, gpu_figures
from tuner.metrics.warnings.warning import CheckResult, Level

MAX_CLOCK_DIFFERENCE = 0.03
"""Between the medians of a candidate's and the baseline's SM clocks at the same concurrency."""
CAPPED = 0.05
"""Share of the readings from which on the power cap is worth a note."""
MOSTLY_CAPPED = 0.5
"""From which on it explains a lower clock."""
_SLOWED = {
    "gpu_hw_thermal_share": "thermal slowdown by the hardware",
    "gpu_sw_thermal_share": "thermal slowdown by the driver",
    "gpu_power_brake_share": "power brake",
}


def other_clock(level: Level) -> Iterator[CheckResult]:
    """Clocks unlike the baseline's, except where this load's own power explains the lower one."""
    here, below = level.metrics, gpu_figures(level.context.baseline)
    own, base = here["gpu_clock_mhz"], below["gpu_clock_mhz"]
    if not own or not base or abs(own / base - 1) <= MAX_CLOCK_DIFFERENCE:
        return
    slower = here if own < base else below
    if (slower["gpu_power_cap_share"] or 0.0) >= MOSTLY_CAPPED and not _slowdowns(slower):
        return
    yield CheckResult(
        "GPU clock",
        "doubt",
        f"the median SM clock is {own:.0f} MHz, {abs(own / base - 1):.0%} "
        f"{'lower' if own < base else 'higher'} than the baseline's {base:.0f} at the same "
        f"concurrency (GPUs up to {_degrees(here)}, then {_degrees(below)}), so the ratio to it "
        "is one of two machines",
        "see in `nvidia-smi -q -d PERFORMANCE` what lowers it, cool the GPUs or lock their clocks "
        "(nvidia-smi --lock-gpu-clocks), and measure both again",
    )


def uneven_clocks(level: Level) -> Iterator[CheckResult]:
    """One GPU slower than the others, unless power, of which one may need more, explains it."""
    clocks = clocks_by_gpu(level.windows)
    capped = level.metrics["gpu_power_cap_share"] or 0.0
    if len(clocks) < 2 or capped >= CAPPED:
        return
    slowest, fastest = min(clocks, key=clocks.__getitem__), max(clocks.values())
    if 1 - clocks[slowest] / fastest > MAX_CLOCK_DIFFERENCE:
        yield CheckResult(
            "uneven GPU clocks",
            "note",
            f"GPU {slowest} runs at {clocks[slowest]:.0f} MHz (median) and the fastest of the "
            f"server's GPUs at {fastest:.0f}; they wait for each other in every layer",
            "see to that GPU's cooling and clock settings (nvidia-smi -q -d PERFORMANCE,CLOCK)",
        )


def slowed_down(level: Level) -> Iterator[CheckResult]:
    """Heat or the power supply slowed a GPU down."""
    found = _slowdowns(level.metrics)
    if not found:
        return
    told = ", ".join(f"{words} in {share:.0%}" for words, share in found.items())
    yield CheckResult(
        "GPU slowed down",
        "doubt",
        f"{told} of the readings (up to {_degrees(level.metrics)}, SM clock down to "
        f"{level.metrics['gpu_clock_mhz_min'] or '?'} MHz), so speeds are of a machine in trouble",
        "see to the GPUs' cooling and power supply, then measure again",
    )


def power_cap(level: Level) -> Iterator[CheckResult]:
    """The power limit holds the clock down: normal under load, and part of the configuration."""
    share = level.metrics["gpu_power_cap_share"] or 0.0
    if share < CAPPED:
        return
    own, base = level.metrics["gpu_clock_mhz"], gpu_figures(level.context.baseline)["gpu_clock_mhz"]
    clocks = [f"median SM clock {own:.0f} MHz"] if own else []
    clocks += [f"the baseline's {base:.0f}"] if base else []
    yield CheckResult(
        "power cap",
        "note",
        f"in {share:.0%} of the readings the power limit holds a GPU's clock down "
        f"({', '.join(clocks) or 'clock not read'}): normal under load, and part of the "
        "configuration's speed",
        "compare only machines with the same limit (nvidia-smi -q -d POWER)",
    )


def _slowdowns(figures: Mapping[str, Any]) -> dict[str, float]:
    """Words -> share of the readings."""
    found = {words: figures[name] for name, words in _SLOWED.items() if figures[name]}
    if not found and figures["gpu_hw_slowdown_share"]:
        found = {"slowdown by the hardware": figures["gpu_hw_slowdown_share"]}
    return found


def _degrees(figures: Mapping[str, Any]) -> str:
    celsius = figures["gpu_temperature_c_max"]
    return "? °C" if celsius is None else f"{celsius:.0f} °C"
