"""Samples made by hand, and windows drawn from a world whose truth is known."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tuner.metrics.samples import GpuTrace, RequestSample, SpecCounts, Window


def sample(
    times: Sequence[float] = (0.5, 1.0, 1.5),
    tokens: Sequence[int] = (1, 2, 2),
    spec: SpecCounts | None = None,
    **changes: Any,
) -> RequestSample:
    """A complete request sent at 0 that ended with its last chunk."""
    facts: dict[str, Any] = {
        "prompt_id": "p",
        "kind": "chat",
        "sent": 0.0,
        "chunk_times": tuple(times),
        "chunk_tokens": tuple(tokens),
        "ended": times[-1] if times else 0.0,
        "finish_reason": "length",
        "error": None,
        "timed_out": False,
        "prompt_tokens": 10,
        "engine_tokens": sum(tokens),
        "requested_tokens": sum(tokens),
        "spec": spec,
    }
    return RequestSample(**{**facts, **changes})


def window(*samples: RequestSample, wall: float = 2.0, cpu: float = 0.1) -> Window:
    """One stream's window."""
    return Window(1, wall, cpu, samples)


def trace(
    mhz: int = 1980, reasons: int = 0, watts: float = 500.0, gpu: str = "0", idle_mhz: int = 345
) -> GpuTrace:
    """Readings over 10 s under even load, at rest at both ends. Its energy is 10 s of `watts`."""
    return GpuTrace(
        gpu=gpu,
        at=(0.0, 0.25, 5.0, 10.0),
        sm_mhz=(idle_mhz, mhz, mhz, idle_mhz),
        temperature_c=(40, 60, 60, 50),
        power_w=(80.0, watts, watts, 80.0),
        reasons=(1, reasons, reasons, 1),
        energy_j=(1000.0, 1000.0 + watts / 4, 1000.0 + 5 * watts, 1000.0 + 10 * watts),
    )


class World:
    """Speeds that vary by prompt, by window, and from request to request (log-normal)."""

    def __init__(self, seed: int, prompts: int, by_window: float, noise: float) -> None:
        self._draw = np.random.default_rng(seed)
        self._by_window, self._noise = by_window, noise
        self._prompts = 100 * np.exp(self._draw.normal(0, 0.2, prompts))

    def windows(self, count: int, faster: float = 1.0, by_prompt: float = 0.0) -> list[Window]:
        """Of a server `faster` times the base, more for some prompts than for others."""
        factors = faster * np.exp(self._draw.normal(0, by_prompt, len(self._prompts)))
        return [self._window(self._prompts * factors) for _ in range(count)]

    def _window(self, speeds: np.ndarray[Any, Any]) -> Window:
        drift = np.exp(self._draw.normal(0, self._by_window))
        noise = np.exp(self._draw.normal(0, self._noise, len(speeds)))
        now, samples = 0.0, []
        for index, speed in enumerate(speeds * drift * noise):
            end = now + 0.01 + 127 / float(speed)
            samples.append(
                sample((now + 0.01, end), (1, 127), sent=now, prompt_id=f"p{index}", ended=end)
            )
            now = end
        return Window(1, now, 0.1, tuple(samples))
