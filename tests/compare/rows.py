"""Look-ups in the rows of a comparison."""

from tuner.compare.columns import Row
from tuner.compare.comparison import Comparison


def row(comparison: Comparison, run: str, what: str, level: int = 1) -> Row:
    return next(r for r in comparison.rows if (r.run, r.what, r.concurrency) == (run, what, level))
