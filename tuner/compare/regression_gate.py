"""`--fail-on-regression`: which servers are surely slower, and which losses could not be seen."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tuner.compare.columns import Row
from tuner.compare.comparison import Comparison
from tuner.config.load_level import at, columns
from tuner.core.formatting import ratio


@dataclass(frozen=True)
class Gate:
    """A comparison held against the share that a server may be slower by."""

    comparison: Comparison
    threshold: float

    @property
    def limit(self) -> str:
        """`2 %`."""
        return f"{100 * self.threshold:g} %"

    @property
    def slower(self) -> tuple[Row, ...]:
        """What fails it."""
        return self.comparison.regressions(self.threshold)

    @property
    def unseen(self) -> list[tuple[Row, float]]:
        """Servers whose interval is wider than the limit, each with the loss, as a share, from
        which on the gate would fire. It fires where the whole interval lies below the limit, so the
        upper half of the interval comes on top of it."""
        found = []
        for row in self.comparison.gated:
            bounds = row.ratio
            if bounds is None or bounds.high is None or bounds.low is None or bounds.value <= 0:
                continue
            above = bounds.high / bounds.value
            if above - 1 > self.threshold and row not in self.slower:
                found.append((row, 1 - (1 - self.threshold) / above))
        return found

    def regressions(self) -> list[str]:
        """A sentence for each server that fails it."""
        return [
            f"regression of more than {self.limit}: {_what(row)} {at(row.concurrency)} has "
            f"{ratio(row.ratio)} times the tok/s of {self.comparison.reference}"
            for row in self.slower
        ]

    def passed(self) -> str:
        """That it let all through, and which row came nearest to it."""
        said = f"gate {self.limit}: passed"
        known = [(r.ratio.high, r) for r in self.comparison.gated if r.ratio and r.ratio.high]
        if not known:
            return said
        high, row = min(known, key=lambda pair: pair[0])
        return (
            f"{said} (the nearest, {_what(row)} {at(row.concurrency)}, has "
            f"{ratio(row.ratio)}; {high:.3f} is not below {1 - self.threshold:g})"
        )

    def not_seen(self) -> Iterator[str]:
        """What the measurements are too wide for, a sentence for each server."""
        for row, loss in self.unseen:
            yield (
                f"could not have seen {self.limit} {at(row.concurrency)}: {_what(row)} has "
                f"{ratio(row.ratio)}, and only a loss above {100 * loss:.1f} % would have failed "
                "the gate there"
            )

    def words(self) -> list[str]:
        """All of it, as lines."""
        first, unseen = self.regressions() or [self.passed()], list(self.not_seen())
        if unseen:
            unseen[-1] += "; more windows or requests narrow intervals"
        return [*first, *unseen]

    def to_json(self) -> dict[str, Any]:
        """As `--json` has it under `gate`."""
        return {
            "limit": self.threshold,
            "regressions": [_place(row) for row in self.slower],
            "could_not_see": [
                {**_place(row), "smallest_loss_seen": loss} for row, loss in self.unseen
            ],
        }


def _what(row: Row) -> str:
    return f"{row.what} of {row.run}"


def _place(row: Row) -> dict[str, Any]:
    return {"run": row.run, **columns(row.concurrency), "what": row.what}
