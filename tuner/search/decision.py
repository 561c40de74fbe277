"""A step of the search, with its reason in one sentence."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tuner.config.point import Point
from tuner.metrics.statistics import Interval

Stage = Literal["anchors", "model", "check", "confirm", "stop", "sampler"]


@dataclass(frozen=True)
class Decision:
    """What is done next and why. `point` is None where nothing more is launched, and where the
    sampler chooses."""

    stage: Stage
    why: str
    point: Point | None = None
    predicted: Interval | None = None
    """The objective (ratio to the baseline) expected of the point, with its 95 % interval."""
    news: tuple[str, ...] = ()
    """Settings of the point that no measured one has; the forecast cannot know them."""
    excluded: Mapping[str, int] = field(default_factory=dict)
    """Reason -> unmeasured points that are not launched for it."""
    smoothed: Mapping[Point, float] = field(default_factory=dict)
    """Of a choice among measured points: each one's ratio to the baseline by all measurements
    together. A ledger has it beside the decision, by trial."""

    def to_json(self) -> dict[str, Any]:
        """As the ledger keeps it, beside the point that it led to."""
        told = self.predicted
        return {
            "stage": self.stage,
            "why": self.why,
            "predicted": None if told is None else told.value,
            "predicted_low": None if told is None else told.low,
            "predicted_high": None if told is None else told.high,
            "excluded": dict(self.excluded),
        }
