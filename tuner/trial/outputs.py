"""A trial's greedy outputs against the baseline's, as the ledger keeps them."""

import os
from collections.abc import Mapping, Sequence

from tuner.ledger.record import OutputCounts, OutputsLine
from tuner.measure.outputs import Comparison, judge
from tuner.measure.samples import Window
from tuner.sweep.artificial import no_output_to_compare
from tuner.sweep.model import Sweep
from tuner.trial.taken import Windows

NONE_KEPT = "no complete output with token ids on both sides"


def outputs_of(sweep: Sweep, baseline: Windows, measured: Windows) -> dict[str, OutputsLine]:
    """By concurrency, as text; {} where `measure.outputs` is `ignore`."""
    if sweep.measure.outputs == "ignore":
        return {}
    why = no_output_to_compare(sweep, os.environ)
    return {
        str(level): _line(sweep, baseline.get(level, ()), windows, why)
        for level, windows in measured.items()
    }


def _line(
    sweep: Sweep, baseline: Sequence[Window], windows: Sequence[Window], why: str | None
) -> OutputsLine:
    judged = None if why is not None else judge(baseline, windows, sweep.measure.outputs_off)
    if judged is None:
        return OutputsLine(outcome="not compared", why=why or NONE_KEPT)
    return OutputsLine(
        outcome=judged.outcome,
        stops=judged.outcome == "far" and sweep.measure.outputs == "stop",
        found=_counts(judged.found),
        itself=None if judged.itself is None else _counts(judged.itself),
    )


def _counts(comparison: Comparison) -> OutputCounts:
    return OutputCounts.model_validate(comparison.to_json())


def far_note(outputs: Mapping[str, OutputsLine]) -> list[dict[str, str]]:
    """The check of a trial whose outputs are far from the baseline's; [] of any other."""
    for level, line in outputs.items():
        if line.outcome == "far" and (found := line.found) is not None:
            message = (
                f"at concurrency {level} greedy outputs are far from the baseline's: {found.off} "
                f"of {found.prompts} prompts part within the first tokens or end in a loop, so "
                "wrong tokens are accepted: look at the draft's patch, the tree and the kernels"
            )
            return [{"check": "outputs", "level": "doubt", "message": message}]
    return []
