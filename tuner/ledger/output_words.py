"""How a configuration's greedy outputs compare with the baseline's, in words."""

from collections.abc import Mapping
from typing import Any

from tuner.ledger.judged import OutputCounts, OutputsLine, TaskLine
from tuner.measure.task import LEVEL
from tuner.sweep.level import at, level_in


def outputs_words(
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


def task_words(baseline: TaskLine | None, measured: TaskLine | None) -> str | None:
    """The scores of both; None where one was not taken."""
    if baseline is None or measured is None or measured.p is None:
        return None
    words = f"{measured.score} right, {baseline.score} without speculation"
    if measured.lost or measured.won:
        words += f"; {measured.lost} lost and {measured.won} won, p = {measured.p:.2g}"
    return f"{words}, which is clearly worse" if measured.p < LEVEL else words
