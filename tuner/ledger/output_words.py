"""How a configuration's greedy outputs compare with the baseline's, in words."""

from collections.abc import Mapping

from tuner.ledger.record import OutputCounts, OutputsLine


def outputs_words(outputs: Mapping[str, OutputsLine]) -> list[str]:
    """A sentence for each concurrency, or one for all of them where nothing was compared."""
    if not outputs:
        return []
    reasons = {line.why for line in outputs.values()}
    if None not in reasons and len(reasons) == 1:
        return [f"not compared: {reasons.pop()}"]
    return [f"at concurrency {level} {_line(line)}" for level, line in outputs.items()]


def _line(line: OutputsLine) -> str:
    found = line.found
    if found is None:
        return f"not compared: {line.why}"
    if line.outcome == "equal":
        return f"{found.equal} of {found.prompts} are the baseline's, token by token"
    words = f"{_far(found)}; " if line.outcome == "far" else ""
    return f"{words}{_counts(found)}; {_itself(line.itself)}"


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
