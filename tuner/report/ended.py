"""That a run ended early, as its report says it."""

from tuner.ledger.ended import read_ended
from tuner.report.findings import Findings
from tuner.report.text import code, escaped


def ended_words(findings: Findings) -> str | None:
    """None of a run that finished, of one that another specbench is at work on, and where nothing
    is known."""
    run = findings.run
    ended = read_ended(run)
    if ended is None or ended.finished or (ended.why is None and run.is_being_written):
        return None
    done, points = len(findings.ledger.candidates), len(findings.space.points)
    every = findings.sweep.search.sampler == "grid"
    wanted = points if every else min(points, run.settings.wanted)
    why = "it ended without a word" if ended.why is None else ended.why
    missing = "; closing launches missing" if ended.closing else ""
    where = f" at {done} of {wanted} candidates" if findings.sweep.engine.kind != "endpoint" else ""
    return (
        f"**Ended early{where}** ({escaped(why)}){missing}; go on with {code(run.resume_command)}."
    )
