"""What a resumed run says of what it has, before it goes on."""

from tuner.ledger.lines import Ledger
from tuner.sweep.space import Space


def standing_words(ledger: Ledger, space: Space, wanted: int) -> str | None:
    """How far the run is, in one sentence; None of one that begins with its baseline.

    `space` holds what may be launched, `wanted` is the number of candidates in all.
    """
    if ledger.baseline is None:
        return None
    done, measured = len(ledger.candidates), {each.at for each in ledger.candidates}
    if done and all(point in measured for point in space.points):
        return f"all {_points(len(space.points))} are measured: there is no candidate to add"
    if not done:
        return "the baseline is measured, no candidate yet"
    if done >= wanted:
        return f"{done:,} of {wanted:,} candidates are measured, --trials +20 asks for more"
    return f"{done:,} of {wanted:,} candidates are measured, going on with number {done + 1:,}"


def _points(count: int) -> str:
    return f"{count:,} points" if count > 1 else "one point"
