"""Why speculation wins or loses: what a cycle costs against what it brings. Nothing is fitted."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BreakEven:
    """One configuration beside plain decoding at one concurrency. Times in ms."""

    plain_ms: float
    """A decode step without speculation; it brings one token to each stream."""
    cycle_ms: float
    accept_length: float
    """Tokens that a cycle brings to each stream, bonus included."""
    num_steps: int | None

    @property
    def needed(self) -> float:
        """The accept length at which decoding is as fast as without speculation."""
        return self.cycle_ms / self.plain_ms

    @property
    def gain(self) -> float:
        """Decode speed over that without speculation."""
        return self.accept_length / self.needed

    @property
    def hopeless(self) -> bool:
        """Not even a draft whose every token is accepted would be faster."""
        return self.num_steps is not None and self.num_steps + 1 <= self.needed


def break_even(
    plain: Mapping[str, Any], speculating: Mapping[str, Any], num_steps: int | None
) -> BreakEven | None:
    """From the metrics of both at one concurrency; None where one of the figures is missing."""
    step, cycle = plain.get("cycle_ms"), speculating.get("cycle_ms")
    length = speculating.get("accept_length")
    if step is None or cycle is None or length is None:
        return None
    if not all(math.isfinite(each) and each > 0 for each in (step, cycle, length)):
        return None
    return BreakEven(float(step), float(cycle), float(length), num_steps)
