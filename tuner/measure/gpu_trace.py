"""What NVML said of one GPU while a window was measured.

The first reading comes just before the load and the last just after it, so both may show a GPU at
rest: they count for energy, which is a difference of two, and not for clocks, reasons and power.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


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
