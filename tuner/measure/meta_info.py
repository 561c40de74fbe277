"""What an event's meta_info says in numbers, by the names of every release of SGLang."""

from collections.abc import Mapping
from typing import Any

from tuner.measure.samples import SpecCounts

# The names of one figure over SGLang's releases, newest first. Some releases send two of them.
CORRECT_DRAFTS = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
PROPOSED_DRAFTS = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")
ENGINE_FIGURES = ("spec_accept_rate", "spec_accept_length")

MOST = 2**31
"""Tokens or verifies of a request; a larger number is no count, and samples could not hold it."""


def spec_counts(meta: Mapping[str, Any]) -> SpecCounts | None:
    """The speculative counts; None where there are none."""
    verify_ct = count_of(meta, ("spec_verify_ct",))
    correct = count_of(meta, CORRECT_DRAFTS)
    if verify_ct is None or correct is None:
        return None
    histogram = next((meta[n] for n in HISTOGRAM if meta.get(n) is not None), None)
    if not isinstance(histogram, list) or not all(map(is_count, histogram)):
        histogram = None
    return SpecCounts(
        verify_ct=verify_ct,
        correct_drafts=correct,
        proposed_drafts=count_of(meta, PROPOSED_DRAFTS),
        histogram=None if histogram is None else tuple(histogram),
    )


def is_count(value: Any) -> bool:
    """Whether it is a number of tokens or verifies."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST


def count_of(meta: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """The first of `names` that is a count; None where none is."""
    return next((meta[name] for name in names if is_count(meta.get(name))), None)
