"""Whether a trial failed, and what its failure says."""

from collections.abc import Sequence
from typing import Literal

from tuner.errors import EngineFailure, Failure
from tuner.measure.samples import Window


def judge(window: Window, sent: int) -> None:
    """Raises EngineFailure where the window is no measurement; single failures stay in it."""
    failed = [sample for sample in window.samples if sample.error is not None]
    hung = sum(sample.timed_out for sample in window.samples)
    if hung:
        first = next(sample.error for sample in failed if sample.timed_out)
        raise EngineFailure(
            Failure.HANG, f"{hung} of {sent} requests timed out (timeouts.request): {first}"
        )
    if failed and (len(failed) == len(window.samples) or window.stopped is not None):
        message = f"{len(failed)} of {sent} requests failed: {failed[0].error}"
        raise EngineFailure(Failure.CLIENT, message)


def first_cause(first: EngineFailure, last: EngineFailure) -> EngineFailure:
    """Of a server that is not launched anew: what the second try finds is what the first left."""
    message = f"{first.message}; tried again: {last.message}"
    return EngineFailure(first.label, message, first.log_tail or last.log_tail)


def beside_others(failure: EngineFailure | None, crowded: Sequence[str]) -> EngineFailure | None:
    """The same failure; of memory that ran out also who else had some before the launch."""
    if failure is None or failure.label is not Failure.OOM or not crowded:
        return failure
    message = f"{failure.message}; before the launch {', '.join(crowded)}"
    return EngineFailure(failure.label, message, failure.log_tail)


def outcome_of(failure: EngineFailure | None) -> Literal["ok", "infeasible", "failed"]:
    if failure is None:
        return "ok"
    return "infeasible" if failure.label.is_configs_own else "failed"
