"""The shape of a doubt, and what checks look at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tuner.metrics.samples import RequestSample, Window


@dataclass(frozen=True)
class CheckResult:
    """A reason to distrust a number (`doubt`) or something to know about it (`note`)."""

    check: str
    """Its name, a row of docs/checks.md."""
    level: Literal["doubt", "note"]
    message: str
    """What was found, with its figures, and the likely cause."""
    remedy: str
    """The next thing to try."""

    def to_json(self) -> dict[str, str]:
        """As ledgers have it."""
        return {
            "check": self.check,
            "level": self.level,
            "message": self.message,
            "remedy": self.remedy,
        }


@dataclass(frozen=True)
class Context:
    """What the checks need to know beside the samples. Steps and topk None: no speculation."""

    num_steps: int | None
    eagle_topk: int | None
    tokenise_doubt: str | None = None
    """What was doubtful when the prompts were rendered and tokenised."""
    random_words: str | None = None
    """What shows that the prompts are no text; None where they are."""
    request_rate: float | None = None
    """Requests that were to come in a second; None in a closed loop."""
    baseline: Sequence[Window] = ()
    """Of the same concurrency without speculation; () for the baseline itself, or without one."""
    served: float = 0.0
    """Requests a second that the same server answered at another rate, the most."""


@dataclass(frozen=True)
class Level:
    """One concurrency of one point, as checks see it."""

    windows: Sequence[Window]
    samples: Sequence[RequestSample]
    """Of all windows."""
    metrics: Mapping[str, Any]
    context: Context
