"""Why speculation wins or loses: what a cycle costs against what it brings. Nothing is fitted."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MORE_STEPS = 16
"""Beyond the best chain, as far as longer ones are reckoned with."""


@dataclass(frozen=True)
class BreakEven:
    """One configuration beside plain decoding at one concurrency. Times in ms."""

    plain_ms: float
    """A decode step without speculation; it brings one token to each stream."""
    cycle_ms: float
    accept_length: float
    """Tokens that a cycle brings to each stream, bonus included."""
    num_steps: int | None
    decode_ratio: float | None = None
    """Measured decode speed over that without speculation; None: not measured."""

    @property
    def needed(self) -> float:
        """The accept length at which decoding is as fast as without speculation."""
        return self.cycle_ms / self.plain_ms

    @property
    def gain(self) -> float:
        """Decode speed over that without speculation, as measured where it was.

        What accept length and cycle say alone is too much by the accepted drafts that the end of
        an answer cuts off.
        """
        return self.accept_length / self.needed if self.decode_ratio is None else self.decode_ratio

    def may_win(self, costs_ms: float, brings: float, falls: float) -> bool:
        """Whether a longer chain would beat no speculation in decoding, where each further step
        costs as much, the first one brings `brings` tokens and each `falls` of the one before."""
        length, cycle = self.accept_length, self.cycle_ms
        for _ in range(MORE_STEPS):
            length, cycle, brings = length + brings, cycle + costs_ms, brings * falls
            if length * self.plain_ms >= cycle:
                return True
        return False

    @property
    def delivered(self) -> float:
        """Tokens of a cycle that reached the client, per stream."""
        return self.gain * self.needed

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
    speeds = plain.get("decode_tok_s"), speculating.get("decode_tok_s")
    ratio = speeds[1] / speeds[0] if speeds[0] and speeds[1] else None
    return BreakEven(float(step), float(cycle), float(length), num_steps, ratio)
