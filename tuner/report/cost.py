"""What the sweep cost against what its answer saves."""

from tuner.answer.objectives import held_out_objective, objective_of
from tuner.ledger.spent import spent
from tuner.report.findings import Findings
from tuner.report.text import count, duration


def cost_words(findings: Findings) -> str | None:
    """GPU-hours spent, and after how long they are paid back; None where no time is known."""
    found = spent(findings.ledger, findings.sweep)
    if found is None:
        return None
    least = "at least " if found.unknown else ""
    words = f"The sweep took {least}{duration(found.hours * 3600)} of servers"
    if found.gpus:
        words += f" on {count(found.gpus, 'GPU')}, {_two_digits(found.gpu_hours)} GPU-hours"
    if found.unknown:
        words += f" ({count(found.unknown, 'launch')} without a time not counted)"
    if findings.simulated:
        words += ", launches in model time"
    gain, which = _gain(findings)
    after = None if gain is None else found.paid_back_after(gain)
    if gain is None or after is None:
        return f"{words}. It saves none where no speculation is served."
    if (why := _no_work(findings)) is not None:
        return f"{words}. After how much serving it is paid back is not told: {why}."
    return (
        f"{words}. At {gain:.3f} times the baseline ({which}) it is paid back after "
        f"{duration(after * 3600)} of serving at full load: each such hour does the work of "
        f"{gain:.2f} without it."
    )


def _two_digits(hours: float) -> str:
    return f"{hours:.2g}" if hours < 10 else f"{hours:,.0f}"


def _no_work(findings: Findings) -> str | None:
    """Why the objective is not the work of a server at full load; None where it is."""
    sweep = findings.sweep
    if sweep.workload.request_rate is not None:
        return "requests came at a given rate, which both servers answer as long as they keep up"
    if sweep.search.objective.metric != "output_tok_s":
        return "the objective is the speed of decoding alone, not a server's throughput"
    return None


def _gain(findings: Findings) -> tuple[float | None, str]:
    """The winner's objective by the measurement that is to be expected again."""
    best, spec = findings.result.best, findings.sweep.search.objective
    if best is None:
        return None, ""
    again = findings.result.confirmed
    unseen = None if again is None else held_out_objective(again, spec)
    if unseen is not None:
        return unseen, "on other prompts"
    own = None if again is None else objective_of(again, spec)
    if own is not None:
        return own, "with a launch of its own"
    return objective_of(best, spec), "its first measurement"
