"""Whether what is recommended says what the model says without speculation."""

from collections.abc import Mapping
from typing import Any

from tuner.analysis.summary import RunSummary, TrialResult
from tuner.analysis.winner import divergent_outputs
from tuner.config.load_level import at, level_in, parse_level
from tuner.core.markdown import code
from tuner.metrics.output_comparison import LEVEL, example
from tuner.runs.records import OutputCounts, OutputsLine, TaskLine, TrialRecord

SHOWN = 3
"""Refused candidates that the report names."""
WHY_THEY_DIFFER = (
    "Different is no fault by itself: verifying several tokens runs other kernels than decoding "
    "one, and so does another batch; where two tokens are all but equally likely, either may come."
)


def same_output(summary: RunSummary) -> str | None:
    """How the outputs of what to run compare; None where it is the baseline, or an older run."""
    winner = summary.winner
    if winner is None or winner is summary.no_speculation:
        return None
    again = summary.ledger.confirmation(winner.record)
    record = again if again is not None and again.outputs else winner.record
    told, outputs = list[str](), record.outputs
    if words := describe_outputs(outputs, record.metrics):
        told.append(f"Greedy outputs against no speculation: {'. '.join(words)}.")
    if any(line.outcome == "far" for line in outputs.values()):
        told.insert(0, "**Not the baseline's outputs.**")
    differing = [level for level, line in outputs.items() if line.outcome in ("differ", "far")]
    if differing:
        shown = _example(summary, record, differing[0])
        told += [WHY_THEY_DIFFER, *([shown] if shown else [])]
    if scores := task_scores(summary, again):
        told.append(f"The task: {scores}.")
    return " ".join(told) or None


def far_candidates(summary: RunSummary) -> list[str]:
    """What speaks against each candidate that was refused for what it says, the faster first."""
    told = []
    for record in summary.far[:SHOWN]:
        found = divergent_outputs(summary.ledger, record)
        assert found is not None and record.at is not None
        name, level = f"{code(record.at.label())} (trial {found.trial})", found.divergent_outputs
        if level is None:
            told.append(f"{name}, by the task's score: {task_scores(summary, found)}")
        else:
            told.append(
                f"{name}: {at(level_in(level, found.metrics))} {far_counts(found.outputs[level])}"
            )
    if (more := len(summary.far) - SHOWN) > 0:
        told.append(f"{more} more whose outputs are far from the baseline's")
    return told


def far_example(summary: RunSummary) -> str | None:
    """Where the first of them parts; None where none was refused for its outputs."""
    for record in summary.far:
        found = divergent_outputs(summary.ledger, record)
        if found is not None and found.divergent_outputs is not None:
            return _example(summary, found, found.divergent_outputs)
    return None


def task_scores(summary: RunSummary, record: TrialRecord | None) -> str | None:
    """The task's scores of the baseline and of a record; None where one was not taken."""
    base = summary.no_speculation
    return describe_task_scores(
        None if base is None else base.record.task, None if record is None else record.task
    )


def _example(summary: RunSummary, record: TrialRecord, level: str) -> str | None:
    """Where the two part in one prompt, so that a reader sees whether it still makes sense."""
    base = summary.no_speculation
    if base is None:
        return None
    sides = [
        summary.windows(each, parse_level(level)) for each in (base, TrialResult(record, None))
    ]
    if not all(sides):
        return None
    found = example(sides[0][0], sides[1][0])
    if found is None:
        return None
    return (
        f"For instance prompt {code(found.prompt_id)} {at(level_in(level, record.metrics))}: after "
        f"{code(found.before)} the baseline says {code(found.baseline)}, this "
        f"{code(found.measured)}."
    )


def describe_outputs(
    outputs: Mapping[str, OutputsLine], metrics: Mapping[str, Mapping[str, Any]] | None = None
) -> list[str]:
    """A sentence for each concurrency, or one for all of them where nothing was compared.
    `metrics`: of the same ledger line, which say what came at a rate."""
    if not outputs:
        return []
    reasons = {line.why for line in outputs.values()}
    if None not in reasons and len(reasons) == 1:
        return [f"not compared: {reasons.pop()}"]
    return [
        f"{at(level_in(level, metrics or {}))}: {_line(line)}" for level, line in outputs.items()
    ]


def _line(line: OutputsLine) -> str:
    found = line.found
    if found is None:
        return f"not compared: {line.why}"
    if line.outcome == "equal":
        return f"{found.equal} of {found.prompts} are the baseline's, token by token"
    words = f"{_far(found)}; " if line.outcome == "far" else ""
    return f"{words}{_counts(found)}; {_itself(line.itself)}{_across(line.across)}"


def _far(found: OutputCounts) -> str:
    return (
        f"they are far from the baseline's: {found.off} of {found.prompts} part within the first "
        "tokens or end in a loop that the baseline's do not"
    )


def _counts(found: OutputCounts) -> str:
    prefix = found.prefix
    return (
        f"{found.equal} of {found.prompts} equal the baseline's; tokens in common from the start: "
        f"median {prefix['p50']}, a quarter of the prompts up to {prefix['p25']}, a tenth up to "
        f"{prefix['p10']}"
    )


def _itself(itself: OutputCounts | None) -> str:
    if itself is None:
        return "the baseline was not held against itself, it has one window"
    if itself.equal == itself.prompts:
        return f"the baseline repeated itself in {itself.equal} of {itself.prompts}"
    return (
        f"the baseline repeated itself in {itself.equal} of {itself.prompts}, with a median of "
        f"{itself.prefix['p50']} tokens in common"
    )


def _across(across: OutputCounts | None) -> str:
    if across is None:
        return ""
    return (
        f", and what it says at other concurrencies in {across.equal} of {across.prompts}, with a "
        f"median of {across.prefix['p50']}"
    )


def far_counts(line: OutputsLine) -> str:
    """Of a far one, in short."""
    found, itself = line.found, line.itself
    assert found is not None
    normal = "" if itself is None else f" (the baseline against itself: {itself.off})"
    return (
        f"{found.off} of {found.prompts} outputs part from the baseline's within the first tokens "
        f"or end in a loop{normal}, with a median of {found.prefix['p50']} tokens in common"
    )


def describe_task_scores(baseline: TaskLine | None, measured: TaskLine | None) -> str | None:
    """The scores of both; None where one was not taken."""
    if baseline is None or measured is None or measured.p is None:
        return None
    words = f"{measured.score} right, {baseline.score} without speculation"
    if measured.lost or measured.won:
        words += f"; {measured.lost} lost and {measured.won} won, p = {measured.p:.2g}"
    return f"{words}, which is clearly worse" if measured.p < LEVEL else words
