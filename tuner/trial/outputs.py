"""A trial's greedy outputs against the baseline's, as the ledger keeps them."""

import os
from collections.abc import Mapping, Sequence

from tuner.ledger.judged import OutputCounts, OutputsLine, TaskLine
from tuner.measure.outputs import Comparison, judge
from tuner.measure.samples import Window
from tuner.measure.task import mark, worse
from tuner.sweep.artificial import no_output_to_compare
from tuner.sweep.level import Level, at
from tuner.sweep.model import Sweep
from tuner.sweep.task import last_number
from tuner.trial.taken import Windows

NONE_KEPT = "no complete output with token ids on both sides"


def outputs_of(sweep: Sweep, baseline: Windows, measured: Windows) -> dict[str, OutputsLine]:
    """By concurrency, as text; {} where `measure.outputs` is `ignore`."""
    if sweep.measure.outputs == "ignore":
        return {}
    why = no_output_to_compare(sweep, os.environ)
    return {
        str(level): _line(sweep, baseline, level, windows, why)
        for level, windows in measured.items()
    }


def _line(
    sweep: Sweep, baseline: Windows, level: Level, windows: Sequence[Window], why: str | None
) -> OutputsLine:
    elsewhere = [each[0] for other, each in baseline.items() if other != level and each]
    limit, judged = sweep.measure.outputs_off, None
    if why is None:
        judged = judge(baseline.get(level, ()), windows, limit, elsewhere)
    if judged is None:
        return OutputsLine(outcome="not compared", why=why or NONE_KEPT)
    return OutputsLine(
        outcome=judged.outcome,
        stops=judged.outcome == "far" and sweep.measure.outputs == "stop",
        found=_counts(judged.found),
        itself=None if judged.itself is None else _counts(judged.itself),
        across=None if judged.across is None else _counts(judged.across),
    )


def _counts(comparison: Comparison) -> OutputCounts:
    return OutputCounts.model_validate(comparison.to_json())


def far_note(outputs: Mapping[str, OutputsLine]) -> list[dict[str, str]]:
    """The check of a trial whose outputs are far from the baseline's; [] of any other."""
    for level, line in outputs.items():
        if line.outcome == "far" and (found := line.found) is not None:
            message = (
                f"{at(level)} greedy outputs are far from the baseline's: {found.off} "
                f"of {found.prompts} prompts part within the first tokens or end in a loop, so "
                "wrong tokens are accepted: look at the draft's patch, the tree and the kernels"
            )
            return [{"check": "outputs", "level": "doubt", "message": message}]
    return []


def scored(
    sweep: Sweep,
    answers: Mapping[str, float],
    window: Window,
    baseline: TaskLine | None,
    file: str,
) -> TaskLine:
    """The score of a task's answers, against the baseline's where that has one."""
    said = {sample.prompt_id: sample for sample in window.samples if sample.error is None}
    marks = "".join(
        mark(right, None if sample is None else last_number(sample.text or ""), sample is None)
        for right, sample in ((right, said.get(name)) for name, right in answers.items())
    )
    if baseline is None or len(baseline.marks) != len(marks):
        return TaskLine(marks=marks, samples=file)
    found = worse(baseline.marks, marks)
    stops = found.clearly and sweep.measure.outputs == "stop"
    return TaskLine(
        marks=marks, lost=found.lost, won=found.won, p=found.p, stops=stops, samples=file
    )
