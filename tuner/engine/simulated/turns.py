"""Outputs that are not the model's: where an answer leaves what it should be, on demand.

The simulated tokens of a prompt are always the same, with and without speculation. These faults
are a near tie that falls the other way, a verification that accepts what the target would not
say, and a model that repeats itself.
"""

import random
from dataclasses import dataclass

from tuner.engine.simulated.faults import Faults

STRIDE = 7
"""Words from one token to the next."""


@dataclass(frozen=True)
class Turn:
    """From token `first` on, counted from 0, an answer is another one."""

    first: int
    shift: int
    """By which the words are others; 0: the word at `first` is repeated for ever."""

    def word(self, index: int) -> int:
        """The word at `index`, counted from the prompt's own first one."""
        if index < self.first:
            return STRIDE * index
        return STRIDE * index + self.shift if self.shift else STRIDE * self.first + 1


class Turns:
    """Gives each request of a server its turn, drawn from `seed`."""

    def __init__(self, faults: Faults, seed: str, words: int) -> None:
        self._faults = faults
        self._draw = random.Random(seed)
        self._words = words

    def next(self) -> Turn | None:
        """The turn of the next request; None where its answer is right."""
        for name in ("wrong-output", "looping-output"):
            if (right := self._faults.value(name)) is not None:
                return Turn(int(right), 0 if name == "looping-output" else self._other())
        if (mean := self._faults.value("near-ties")) is not None:
            return Turn(int(self._draw.expovariate(1 / max(mean, 1e-9))), self._other())
        return None

    def _other(self) -> int:
        return self._draw.randrange(1, self._words)
