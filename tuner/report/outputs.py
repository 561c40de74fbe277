"""Whether what is recommended says what the model says without speculation."""

from tuner.choice import far_outputs
from tuner.ledger.output_words import outputs_words
from tuner.ledger.record import OutputsLine, TrialRecord
from tuner.measure.outputs import example
from tuner.report.findings import Findings, Measured
from tuner.report.text import code
from tuner.result import outputs_of

WHY_THEY_DIFFER = (
    "Different is no fault by itself: verifying several tokens runs other kernels than decoding "
    "one, and so does another batch; where two tokens are all but equally likely, either may come."
)


def same_output(findings: Findings, best: Measured) -> str | None:
    """How the outputs of what to run compare; None where it is the baseline, or an older run."""
    if findings.winner is findings.baseline:
        return None
    outputs = outputs_of(findings.ledger, best.record)
    if not (words := outputs_words(outputs)):
        return None
    told = f"Greedy outputs against no speculation: {'. '.join(words)}."
    differing = [level for level, line in outputs.items() if line.outcome in ("differ", "far")]
    if not differing:
        return told
    if any(outputs[level].outcome == "far" for level in differing):
        told = f"**Not the baseline's outputs.** {told}"
    shown = _example(findings, best.record, differing[0])
    return " ".join([told, WHY_THEY_DIFFER, *([shown] if shown else [])])


def far_candidates(findings: Findings) -> list[str]:
    """A sentence for each candidate that was refused for its outputs, the faster first."""
    told = []
    for record in findings.result.far:
        found = far_outputs(findings.ledger, record)
        assert found is not None and found.far_outputs is not None and record.at is not None
        level = found.far_outputs
        line: OutputsLine = found.outputs[level]
        words = "".join(outputs_words({level: line}))
        shown = _example(findings, found, level)
        name = f"{code(record.at.label())} (trial {found.trial})"
        told.append(f"{name}, whose greedy outputs: {words}." + (f" {shown}" if shown else ""))
    return told


def _example(findings: Findings, record: TrialRecord, level: str) -> str | None:
    """Where the two part in one prompt, so that a reader sees whether it still makes sense."""
    base = findings.baseline
    if base is None:
        return None
    sides = [findings.windows(each, int(level)) for each in (base, Measured(record, None))]
    if not all(sides):
        return None
    found = example(sides[0][0], sides[1][0])
    if found is None:
        return None
    return (
        f"For instance prompt {code(found.prompt_id)} at concurrency {level}: after "
        f"{code(found.before)} the baseline says {code(found.baseline)}, this "
        f"{code(found.measured)}."
    )
