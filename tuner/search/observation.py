"""What became of a point, as the search is to know it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tuner.config.load_level import Level

Outcome = Literal["ok", "infeasible", "failed"]


@dataclass(frozen=True, slots=True)
class LevelFigures:
    """What a search reads of one concurrency level."""

    cycle_ms: float | None
    """Mean time of a draft-verify cycle; of a decode step without speculation."""
    accept_length: float | None = None
    """Tokens per verify, bonus included; None without speculation."""
    reached: tuple[float, ...] = ()
    """P(accepted >= j) for j = 1, 2, ...; () where the engine does not show it."""
    speedup: float | None = None
    """Times the baseline; None of the baseline itself."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What became of a point. `value` is the objective, set exactly where the outcome is ok."""

    outcome: Outcome
    value: float | None = None
    reason: str | None = None
    levels: Mapping[Level, LevelFigures] = field(default_factory=dict)
    """By concurrency; {} where nothing was measured."""
    excess: float = 0.0
    """How far it is over a limit, as a share of it; above 0 it runs and is no answer."""
    spread: float | None = None
    """Relative standard deviation of `value` by its interval; None where nothing shows it."""

    @property
    def is_answer(self) -> bool:
        """It runs, has a figure and keeps the limits."""
        return self.outcome == "ok" and self.value is not None and not self.excess
