"""What an engine itself counted while a window was measured, to hold the client's figures against.

SGLang folds its counts into /server_info once in some decode steps (`--decode-log-interval`), and
empties them with the prefix cache, as each window begins.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class EngineCounters:
    """The server's own figures just after a window. None: a rank does not say."""

    ranks: int
    """Data-parallel ranks that the server was started with."""
    accept_lengths: tuple[float | None, ...]
    """Of each rank that answered, bonus included, since the window began."""
    throughputs: tuple[float | None, ...]
    """Of each rank that answered: tokens per second in its last decode steps."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "EngineCounters":
        """What `to_json` wrote. Raises TypeError, KeyError or ValueError for anything else."""
        ranks = data["ranks"]
        if isinstance(ranks, bool) or not isinstance(ranks, int):
            raise TypeError("ranks is no whole number")
        return cls(ranks, _numbers(data["accept_lengths"]), _numbers(data["throughputs"]))

    def to_json(self) -> dict[str, Any]:
        """As samples files have it."""
        return {
            "ranks": self.ranks,
            "accept_lengths": list(self.accept_lengths),
            "throughputs": list(self.throughputs),
        }


def _numbers(values: Sequence[Any]) -> tuple[float | None, ...]:
    for value in values:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise TypeError(f"{value!r} is no number")
    return tuple(values)
