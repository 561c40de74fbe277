"""Estimates held against what servers logged, and corrected by it."""

from tuner.engine.sglang.sizes import Sizes
from tuner.memory.server import Offsets, ServerMemory


def offsets_of(estimate: ServerMemory, logged: Sizes, gpu: float) -> Offsets:
    """What a launch's log adds to its estimate, in GiB; 0 for a part that either leaves open.

    `estimate` is one without offsets.
    """
    return Offsets(
        before=0.0 if logged.before is None else gpu - logged.before - estimate.before,
        target=_more(estimate.target, logged.target),
        draft=_more(estimate.loading, logged.draft),
    )


def _more(estimate: float | None, logged: float | None) -> float:
    return 0.0 if estimate is None or logged is None else logged - estimate


def cache_of(logged: Sizes) -> float | None:
    """GiB of all KV caches; None where none was logged."""
    return sum(each.gib for each in logged.caches) if logged.caches else None


def free_of(estimate: ServerMemory, gpu: float) -> float | None:
    """GiB that the estimate leaves free; None where a part is not known."""
    return None if estimate.total is None else gpu - estimate.total
