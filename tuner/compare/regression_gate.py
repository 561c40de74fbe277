"""`--fail-on-regression`: servers that are surely slower, and losses that would go unnoticed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tuner.compare.columns import Row
from tuner.compare.comparison import Comparison
from tuner.config.load_level import at, columns
from tuner.core.formatting import ratio


@dataclass(frozen=True)
class Gate:
    """A comparison, and the share that a server may be slower by."""

    comparison: Comparison
    threshold: float

    @property
    def limit(self) -> str:
        """The threshold as `2 %`."""
        return f"{100 * self.threshold:g} %"

    @property
    def slower(self) -> tuple[Row, ...]:
        """Servers that fail the gate."""
        return self.comparison.regressions(self.threshold)

    @property
    def unseen(self) -> list[tuple[Row, float]]:
        """Servers whose interval is wider than the limit, with the smallest loss that fails each.

        A loss is a share. The gate fails a server if its whole interval lies below the limit, so
        the upper half of the interval adds to the loss.
        """
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
        """Return a sentence for each server that fails the gate."""
        return [
            f"regression of more than {self.limit}: {_name(row)} {at(row.concurrency)} has "
            f"{ratio(row.ratio)} times the tok/s of {self.comparison.reference}"
            for row in self.slower
        ]

    def passed(self) -> str:
        """Return the sentence of a passed gate, with the row that came nearest to the limit."""
        words = f"gate {self.limit}: passed"
        known = [
            (row.ratio.high, row) for row in self.comparison.gated if row.ratio and row.ratio.high
        ]
        if not known:
            return words
        high, row = min(known, key=lambda pair: pair[0])
        return (
            f"{words} (the nearest, {_name(row)} {at(row.concurrency)}, has "
            f"{ratio(row.ratio)}; {high:.3f} is not below {1 - self.threshold:g})"
        )

    def not_seen(self) -> Iterator[str]:
        """Yield a sentence for each server whose interval is too wide for the limit."""
        for row, loss in self.unseen:
            yield (
                f"could not have seen {self.limit} {at(row.concurrency)}: {_name(row)} has "
                f"{ratio(row.ratio)}, and only a loss above {100 * loss:.1f} % would have failed "
                "the gate there"
            )

    def words(self) -> list[str]:
        """Return the outcome of the gate as lines."""
        first, unseen = self.regressions() or [self.passed()], list(self.not_seen())
        if unseen:
            unseen[-1] += "; more windows or requests narrow intervals"
        return [*first, *unseen]

    def to_json(self) -> dict[str, Any]:
        """Return the value of `gate` in `--json`."""
        return {
            "limit": self.threshold,
            "regressions": [_place(row) for row in self.slower],
            "could_not_see": [
                {**_place(row), "smallest_loss_seen": loss} for row, loss in self.unseen
            ],
        }


def _name(row: Row) -> str:
    return f"{row.what} of {row.run}"


def _place(row: Row) -> dict[str, Any]:
    return {"run": row.run, **columns(row.concurrency), "what": row.what}
