"""Markdown notes of the dashboard. Text of users and servers is escaped."""

from collections.abc import Mapping
from math import inf
from typing import Any

from tuner.analysis.winner import read_objective
from tuner.config.load_level import at, axis, parse_level
from tuner.config.schema import Sweep
from tuner.core.formatting import interval
from tuner.core.markdown import block, code, escaped, markdown_table
from tuner.metrics.catalogue import MetricEntry, entries_in
from tuner.runs.latency_limits import describe_broken_limits
from tuner.runs.ledger import is_simulated
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run
from tuner.server.base import Command
from tuner.server.launch_script import launch_script

_ROLES = {
    "baseline": "The baseline: no speculation. Every speed-up is a ratio to it.",
    "candidate": "A candidate.",
    "confirm": "The winner, measured again on a server of its own.",
    "plain": "The winner's settings without speculation.",
    "abreast": "The baseline on all slots at once: how much they slow each other down.",
}


def trial_note(record: TrialRecord, sweep: Sweep) -> str:
    """Describe a trial: its result, the reason for its launch, its checks and its command."""
    what = "" if record.at is None else f" {code(record.at.label())}"
    parts = [f"{_ROLES[record.role]}{what}"]
    value = read_objective(record, sweep.search.objective)
    if record.role != "baseline" and value is not None:
        parts.append(f"**{value:.3f} times the baseline** ({_kind(sweep)}).")
    if record.failure is not None:
        kind = "It cannot be served" if record.outcome == "infeasible" else "It failed"
        parts.append(f"**{kind}: {escaped(record.failure)}.** {escaped(record.message or '')}")
    if record.broken:
        broken = escaped(describe_broken_limits(record.broken, record.metrics))
        parts.append(f"**It breaks limits:** {broken}.")
    if record.metrics:
        parts.append(_figures(record.metrics))
    if record.decision is not None:
        parts.append(f"Why it was launched ({record.decision.stage}): {_why(record)}")
    if record.warm_steps:
        steps = ", ".join(map(str, record.warm_steps))
        parts.append(f"Its server was switched between chain lengths: {steps} steps.")
    if record.checks:
        parts.append("\n".join(f"- {_check(check)}" for check in record.checks))
    if record.command is not None:
        script = launch_script(Command.from_json(record.command)).partition("\nset -eu\n")[2]
        parts.append(f"The launch:\n\n{block(script, 'bash')}")
    return "\n\n".join(parts)


def _figures(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    entries = entries_in("dashboard")
    rows = [
        [level, *(_cell(entry, figures) for entry in entries)] for level, figures in metrics.items()
    ]
    heading = axis([parse_level(level) for level in metrics])
    return markdown_table([heading, *(entry.label for entry in entries)], rows, 0)


def _cell(entry: MetricEntry, figures: Mapping[str, Any]) -> str:
    """Return the metric of a level; a speed-up with its interval."""
    value = figures.get(entry.name)
    if entry.name != "speedup":
        return entry.text(value)
    return interval(value, figures.get("speedup_low"), figures.get("speedup_high"), 3, inf)


def _why(record: TrialRecord) -> str:
    decision = record.decision
    assert decision is not None
    words = escaped(decision.why)
    if decision.predicted is None:
        return words
    expected = interval(decision.predicted, decision.predicted_low, decision.predicted_high, 3)
    return f"{words}; {expected} times the baseline was expected"


def _check(check: Mapping[str, str]) -> str:
    words = f"{check.get('check', '')}: {check.get('message', '')}"
    return f"{'**Doubt**, ' if check.get('level') == 'doubt' else ''}{escaped(words)}"


def study_note(run: Run, sweep: Sweep, answer: str) -> str:
    """Describe a run: its model, the answer so far, how to read the study, and the baseline."""
    model, baseline = sweep.model, run.ledger().baseline
    simulated = is_simulated(run.records(), sweep)
    draft = f", draft {code(model.draft)}" if model.draft else ""
    parts = [
        f"Run {code(run.id)} of sweep {code(sweep.name)}: {code(model.target)}{draft}, "
        f"{escaped(model.speculation)}.",
        *(["**Simulated: a performance model made the figures.**"] if simulated else []),
        f"**The answer so far:** {escaped(answer)}. Optuna's best trial has the highest figure. "
        "The answer can differ: it is a simpler trial if the two are tied, and it excludes trials "
        "with divergent outputs or a failed confirmation. It uses all launches of the baseline; "
        "the figures of the trials use the first one.",
        f"The objective is the speed-up over the baseline, trial 0 ({_kind(sweep)}). The baseline "
        "has 1. User attributes hold the figures: `c8.output_tok_s` is at concurrency 8. A "
        "parameter of 0 means no speculation. The note of an infeasible trial gives the reason. "
        "This study is made from the ledger, `trials.jsonl`.",
    ]
    if baseline is not None:
        parts.append(f"The baseline:\n\n{_figures(baseline.metrics)}")
    return "\n\n".join(parts)


def _kind(sweep: Sweep) -> str:
    spec = sweep.search.objective
    over = f"{spec.over} over all" if spec.level is None else at(spec.level)
    return f"{code(spec.metric)}, {over}"
