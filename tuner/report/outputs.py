"""Whether what is recommended says what the model says without speculation."""

from tuner.answer.refuted import far_outputs
from tuner.ledger.output_words import far_counts, outputs_words, task_words
from tuner.ledger.record import TrialRecord
from tuner.measure.outputs import example
from tuner.report.findings import Findings, Measured
from tuner.report.text import code
from tuner.sweep.level import at, level_in, level_of

SHOWN = 3
"""Refused candidates that the report names."""
WHY_THEY_DIFFER = (
    "Different is no fault by itself: verifying several tokens runs other kernels than decoding "
    "one, and so does another batch; where two tokens are all but equally likely, either may come."
)


def same_output(findings: Findings) -> str | None:
    """How the outputs of what to run compare; None where it is the baseline, or an older run."""
    winner = findings.winner
    if winner is None or winner is findings.baseline:
        return None
    again = findings.ledger.confirmation(winner.record)
    record = again if again is not None and again.outputs else winner.record
    told, outputs = list[str](), record.outputs
    if words := outputs_words(outputs, record.metrics):
        told.append(f"Greedy outputs against no speculation: {'. '.join(words)}.")
    if any(line.outcome == "far" for line in outputs.values()):
        told.insert(0, "**Not the baseline's outputs.**")
    differing = [level for level, line in outputs.items() if line.outcome in ("differ", "far")]
    if differing:
        shown = _example(findings, record, differing[0])
        told += [WHY_THEY_DIFFER, *([shown] if shown else [])]
    if scores := scores_of(findings, again):
        told.append(f"The task: {scores}.")
    return " ".join(told) or None


def far_candidates(findings: Findings) -> list[str]:
    """What speaks against each candidate that was refused for what it says, the faster first."""
    told = []
    for record in findings.result.far[:SHOWN]:
        found = far_outputs(findings.ledger, record)
        assert found is not None and record.at is not None
        name, level = f"{code(record.at.label())} (trial {found.trial})", found.far_outputs
        if level is None:
            told.append(f"{name}, by the task's score: {scores_of(findings, found)}")
        else:
            told.append(
                f"{name}: {at(level_in(level, found.metrics))} {far_counts(found.outputs[level])}"
            )
    if (more := len(findings.result.far) - SHOWN) > 0:
        told.append(f"{more} more whose outputs are far from the baseline's")
    return told


def far_example(findings: Findings) -> str | None:
    """Where the first of them parts; None where none was refused for its outputs."""
    for record in findings.result.far:
        found = far_outputs(findings.ledger, record)
        if found is not None and found.far_outputs is not None:
            return _example(findings, found, found.far_outputs)
    return None


def scores_of(findings: Findings, record: TrialRecord | None) -> str | None:
    """The task's scores of the baseline and of a record; None where one was not taken."""
    base = findings.baseline
    return task_words(
        None if base is None else base.record.task, None if record is None else record.task
    )


def _example(findings: Findings, record: TrialRecord, level: str) -> str | None:
    """Where the two part in one prompt, so that a reader sees whether it still makes sense."""
    base = findings.baseline
    if base is None:
        return None
    sides = [findings.windows(each, level_of(level)) for each in (base, Measured(record, None))]
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
