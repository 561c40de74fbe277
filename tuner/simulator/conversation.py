"""What the simulated model says, and where an answer leaves that, on demand.

The simulated tokens of a prompt are always the same, with and without speculation. These faults
are a near tie that falls the other way, a verification that accepts what the target would not
say, and a model that repeats itself.
"""

import random
from dataclasses import dataclass

from tuner.simulator.faults import Faults

# Plain words: a token's text needs no escaping in JSON, and its id is 100 plus its place here.
# fmt: off
_WORDS = (
    "the", "a", "of", "to", "in", "and", "is", "it", "for", "on", "that", "with", "as", "at",
    "by", "from", "this", "be", "are", "was", "not", "or", "an", "we", "can", "one", "all",
    "so", "if", "out", "up", "more", "time", "no", "just", "when", "what", "some", "now",
    "then", "first", "over", "new", "also", "after", "back", "two", "how", "our", "work",
    "well", "way", "even", "because", "any", "these", "give", "day", "most", "us",
)
# fmt: on
TOKENS = tuple((f" {word}", str(100 + index)) for index, word in enumerate(_WORDS))
STRIDE = 7
"""Words from one token to the next."""
NUMBERS = 1000
"""Answers that end by themselves end in a number below this, which the prompt decides."""


@dataclass(frozen=True)
class ConversationTurn:
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

    def __init__(self, faults: Faults, seed: str) -> None:
        self._faults = faults
        self._draw = random.Random(seed)

    def next(self) -> ConversationTurn | None:
        """The turn of the next request; None where its answer is right."""
        for name in ("wrong-output", "looping-output"):
            if (right := self._faults.value(name)) is not None:
                return ConversationTurn(
                    int(right), 0 if name == "looping-output" else self._other()
                )
        if (mean := self._faults.value("near-ties")) is not None:
            return ConversationTurn(int(self._draw.expovariate(1 / max(mean, 1e-9))), self._other())
        return None

    def _other(self) -> int:
        return self._draw.randrange(1, len(TOKENS))


def word(key: int, index: int, turn: ConversationTurn | None, last: int | None) -> tuple[str, str]:
    """Text and id of the token at `index` of the answer to the prompt `key`.

    `last` is the place of an answer's last token where it ends by itself, None where it does not:
    there stands a number, `key` modulo NUMBERS in a right answer.
    """
    if index == last:
        number = (key + (turn is not None and index >= turn.first)) % NUMBERS
        return f" {number}", str(100 + len(TOKENS) + number)
    return TOKENS[(key + (STRIDE * index if turn is None else turn.word(index))) % len(TOKENS)]
