"""Windows that the simulated engine's performance model would give, without a server or a clock.

As the engine does it, a cycle's time is the model's with noise, and tokens of a cycle follow the
acceptance curve. With greedy decoding a prompt accepts alike in every launch, so its cycles are
drawn once: prompts differ, launches of one configuration decode the same texts. Beside that: how
far windows of one launch and launches of one configuration differ, which a test sets.
"""

from dataclasses import dataclass, field
from functools import cache

import numpy as np

from tests.factories import make_sample
from tuner.metrics.samples import Window
from tuner.simulator.performance import Performance, Speculation
from tuner.simulator.presets import load_preset

OUTPUT = 128
PROMPTS = 16
CHUNK = 0.01
"""Seconds to the first chunk, which brings one token."""


@dataclass
class PerformanceWorld:
    """One run's machine and prompts. `by_window`, `by_launch`: deviations of a logarithm."""

    seed: int
    by_window: float = 0.0
    by_launch: float = 0.0
    _draw: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._draw = np.random.default_rng(self.seed)
        self._machine = load_preset("quickstart")

    def configuration(self, steps: int | None, faster: float = 1.0) -> "Configuration":
        """No speculation, or a chain; `faster` divides the time of its cycles."""
        tp = self._machine.tp
        chain = None if steps is None else Speculation("EAGLE3", steps, 1, steps + 1, tp)
        served = Performance(self._machine, tp, chain)
        cycle = served.cycle(1).total_ms / 1000 / faster
        chances = served.conditional("chat")
        cycles = np.array([self._cycles(chances) for _ in range(PROMPTS)])
        return Configuration(self, cycle, cycles, expected_cycles(chances))

    def _cycles(self, chances: tuple[float, ...]) -> int:
        return cycles_of(chances, self._draw)


def cycles_of(chances: tuple[float, ...], draw: np.random.Generator) -> int:
    """Cycles that a prompt takes for its tokens; the last one may be cut at the length asked."""
    if not chances:
        return OUTPUT
    accepted = draw.random((OUTPUT, len(chances))) < np.array(chances)
    tokens = 1 + np.cumprod(accepted, axis=1).sum(axis=1)
    return int(np.searchsorted(np.cumsum(tokens), OUTPUT) + 1)


@cache
def expected_cycles(chances: tuple[float, ...]) -> float:
    """In the mean over all prompts that there could be, to 0.1 %."""
    draw = np.random.default_rng(12345)
    return float(np.mean([cycles_of(chances, draw) for _ in range(20_000 if chances else 1)]))


@dataclass
class Configuration:
    """What one server does with a world's prompts."""

    world: PerformanceWorld
    cycle_s: float
    cycles: np.ndarray
    mean_cycles: float
    """Over all prompts that there could be."""

    @property
    def speed(self) -> float:
        """The truth: a figure that no window can be relied on for."""
        return 1 / (self.mean_cycles * self.cycle_s)

    def launch(self, windows: int = 3, drift: float = 1.0) -> list[Window]:
        """A launch's windows; `drift` multiplies its speed."""
        draw, noise = self.world._draw, self.world._machine.noise
        speed = drift * np.exp(draw.normal(0, self.world.by_launch))
        return [
            self._window(speed * np.exp(draw.normal(0, self.world.by_window)), noise)
            for _ in range(windows)
        ]

    def _window(self, speed: float, noise: float) -> Window:
        took = self.cycles + noise * np.sqrt(self.cycles) * self.world._draw.normal(size=PROMPTS)
        now, samples = 0.0, []
        for index, seconds in enumerate(took * self.cycle_s / speed):
            end = now + CHUNK + float(seconds)
            times = (now + CHUNK, end)
            samples.append(
                make_sample(times, (1, OUTPUT), sent=now, prompt_id=f"p{index}", ended=end)
            )
            now = end
        return Window(1, now, 0.1, tuple(samples))
