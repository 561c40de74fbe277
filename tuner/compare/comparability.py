"""Which runs may be held against each other, and what a reader must know where they differ."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Protocol

from tuner.analysis.summary import RunSummary, TrialResult
from tuner.analysis.winner import divergent_outputs, is_refuted
from tuner.config.load_level import Level, Rate, listed
from tuner.core.errors import NotComparable
from tuner.runs.records import TrialRecord
from tuner.runs.slot_interference import describe_slots
from tuner.sglang.models import is_commit, is_comparable

MISSING = "not recorded"


def refuse_unlike(runs: Sequence[RunSummary]) -> None:
    """Raises NotComparable, with the reason, where a run asks another question than the first."""
    first = runs[0]
    for other in runs[1:]:
        if reason := _unlike(first, other):
            raise NotComparable(f"not comparable with {first.run.path}: {reason}", other.run.path)


class RunConditions(Protocol):
    """What a run or another benchmark's file says of the question that it answers."""

    @property
    def path(self) -> Path: ...
    @property
    def model(self) -> str | None: ...
    @property
    def simulated(self) -> bool: ...
    @property
    def levels(self) -> Sequence[Level]: ...


def refuse_unlike_file(first: RunConditions, other: RunConditions) -> None:
    """Raises NotComparable, with the reason, where one of two is a file and they differ in what a
    file may say."""
    reason = None
    levels = [listed(each.levels) for each in (first, other)]
    if first.simulated != other.simulated:
        words = [_engine(each) for each in (first, other)]
        reason = f"one is {words[0]}, the other {words[1]}"
    elif first.model and other.model and _model_name(first.model) != _model_name(other.model):
        reason = f"the model is {first.model} in the first and {other.model} here"
    elif not set(first.levels) & set(other.levels):
        reason = f"no level in common ({levels[0]} in the first and {levels[1]} here)"
    if reason is not None:
        raise NotComparable(f"not comparable with {first.path}: {reason}", other.path)


def _model_name(given: str) -> str:
    """The model's own name, whoever keeps it and wherever it lies."""
    parts = [part for part in given.replace("\\", "/").split("/") if part]
    cached = [part for part in parts if part.startswith("models--")]
    return (cached[-1].split("--")[-1] if cached else parts[-1] if parts else given).lower()


def _unlike(first: RunSummary, other: RunSummary) -> str | None:
    if first.simulated != other.simulated:
        words = [_engine(each) for each in (first, other)]
        return f"one is {words[0]}, the other {words[1]}"
    one, two = _question(first), _question(other)
    for name, value in one.items():
        if two[name] != value:
            return f"{name} is {value} in the first run and {two[name]} here"
    levels = first.sweep.workload.levels, other.sweep.workload.levels
    if not set(levels[0]) & set(levels[1]):
        words = [listed(each) for each in levels]
        return f"no level in common ({words[0]} in the first run and {words[1]} here)"
    return None


def _engine(of: RunConditions | RunSummary) -> str:
    return "simulated" if of.simulated else "measured on hardware"


def _question(summary: RunSummary) -> dict[str, object]:
    """What must be equal for two numbers to answer the same question.

    Not the algorithm and its draft: which of them is faster is what people ask.
    """
    model, load = summary.sweep.model, summary.sweep.workload
    at_rates = isinstance(load.levels[0], Rate)
    return {
        "engine.kind": summary.sweep.engine.kind,
        "model.target": model.target,
        "model.tp": model.tp,
        "the prompts' content": summary.run.settings.prompts,
        "the answers before later turns": summary.run.conversations_hash,
        "workload.turns": load.turns,
        "workload.request_rate": "levels" if at_rates else load.request_rate,
        "workload.concurrency of the rates": load.concurrency[0] if at_rates else None,
        "workload.output_tokens": load.output_tokens,
        "workload.temperature": load.temperature,
        "workload.ignore_eos": load.ignore_eos,
    }


def differences(runs: Sequence[RunSummary], names: Sequence[str]) -> list[str]:
    """What differs and may explain a ratio: `driver: A 550.54, B 570.10`."""
    told = [_circumstances(each) for each in runs]
    lines = []
    for what in told[0] if told else ():
        values = [each[what] for each in told]
        if _others_among(values) if what.endswith("'s files") else len(set(values)) > 1:
            pairs = (f"{name} {value}" for name, value in zip(names, values, strict=True))
            lines.append(f"{what}: {', '.join(pairs)}")
    return lines


def _others_among(files: Sequence[str]) -> bool:
    """Some are other files than some: those that a run did not see say nothing, nor do digests of
    two formats of each other."""
    known = sorted({each for each in files if each != MISSING})
    return any(
        is_commit(one) or is_commit(other) or is_comparable(one, other)
        for one, other in combinations(known, 2)
    )


def best_at(summary: RunSummary, level: Level) -> TrialResult | None:
    """A run's best candidate at one concurrency, by the launch that confirmed it where one did.

    It is the run's answer, unless another candidate is faster there by more than the noise.
    """
    best, found = summary.best_candidate, summary.by_level.get(level)
    if best is None:
        return None
    if found is not None and found.record.role == "candidate":
        other = TrialResult(found.record, None)
        ahead = summary.ratio(best, other, level)
        if ahead is not None and ahead.low is not None and ahead.low > 1:
            best = other
    return confirmed(summary, best)


def confirmed(summary: RunSummary, measured: TrialResult) -> TrialResult:
    """A candidate by the launch that was made to confirm it, else by its first one.

    The first was picked for its figure, and may have been shared with other chain lengths.
    """
    again = summary.ledger.confirmation(measured.record)
    return TrialResult(again, None) if again is not None and _is_usable(again) else measured


def speaks_against(summary: RunSummary, measured: TrialResult) -> str | None:
    """Why a server's figures are held against none; None where nothing speaks against them."""
    again = summary.ledger.confirmation(measured.record)
    if again is not None and again.outcome != "ok":
        return "a launch of its own failed"
    another = divergent_outputs(summary.ledger, measured.record)
    if another is None:
        return None
    if another.divergent_outputs is not None:
        return "its outputs are far from the baseline's, so its speed is that of wrong tokens"
    return "the task's score is clearly lower than without speculation"


def launch_notes(summary: RunSummary, name: str) -> list[str]:
    """What to know of the launches that the best candidates' figures are of."""
    if summary.best_candidate is None:
        return []
    sides = [f"{name}, measured side by side: {each}" for each in describe_slots(summary.ledger)]
    used: dict[int, tuple[TrialResult, list[Level]]] = {}
    for level in summary.levels:
        shown = best_at(summary, level)
        if shown is None or not shown.metrics(level):
            continue
        first = next(each for each in summary.ranked if each.point == shown.point)
        used.setdefault(first.record.trial, (first, []))[1].append(level)
    notes = []
    for best, levels in used.values():
        where = "" if len(levels) == len(summary.levels) else f" at {listed(levels)}"
        if (note := _launch_note(summary, best)) is not None:
            notes.append(f"{name}, {best.label}{where}: {note}")
    return notes + sides + _answer_notes(summary, name)


def _answer_notes(summary: RunSummary, name: str) -> list[str]:
    """That the run recommends something else than its best candidate for another reason than its
    figure, which the rows show."""
    best = summary.best_candidate
    if best is None or summary.winner is best:
        return []
    if summary.winner is summary.settings_only and summary.settings_only is not None:
        return [
            f"{name}: the run's answer is {summary.settings_only.label}; {best.label} is not faster"
        ]
    if is_refuted(summary.ledger, best.record, summary.sweep.search.objective):
        return [f"{name}: the run's answer is no speculation; {best.label} does not stand"]
    return []


def _launch_note(summary: RunSummary, best: TrialResult) -> str | None:
    again = summary.ledger.confirmation(best.record)
    shared = _shared(best) if _is_shared(best) else None
    first = f"trial {best.record.trial}" + ("" if shared is None else f", {shared}")
    if again is not None and not _is_usable(again):
        why = again.failure or again.outcome
        return f"{first}; a launch of its own failed (trial {again.trial}: {why})"
    if again is not None:
        return (
            f"the figures are those of its second launch (trial {again.trial}), which it was not "
            f"picked for, not of its first ({first})"
        )
    return None if shared is None else f"{shared}, not confirmed by a launch of its own"


def _is_usable(again: TrialRecord) -> bool:
    return again.outcome == "ok" and bool(again.metrics)


def _is_shared(measured: TrialResult) -> bool:
    return bool(measured.record.warm_steps)


def _shared(measured: TrialResult) -> str:
    lengths = ", ".join(map(str, measured.record.warm_steps))
    return f"measured on a server that switches between chains of {lengths} steps"


def _launch(summary: RunSummary) -> str:
    if summary.best_candidate is None:
        return "none"
    used = confirmed(summary, summary.best_candidate)
    return "shared by several chain lengths" if _is_shared(used) else "its own"


def _circumstances(summary: RunSummary) -> dict[str, str]:
    sweep, machine = summary.sweep, summary.run.machine()
    load = sweep.workload
    env = machine.get("env") or {}
    draft = f" with {sweep.model.draft}" if sweep.model.draft else ""
    return {
        "speculation": f"{sweep.model.speculation}{draft}",
        "engine version": ", ".join(summary.versions()) or MISSING,
        **{f"{role}'s files": _files(summary, role) for role in ("target", "draft")},
        "simulated preset": str(sweep.engine.preset),
        "simulated overrides": str(sweep.engine.overrides),
        "host": str(machine.get("hostname") or MISSING),
        "GPUs": summary.gpus(),
        "driver": str(machine.get("driver") or MISSING),
        "CUDA of the driver": str(machine.get("cuda") or MISSING),
        "inherited variables": " ".join(f"{k}={v}" for k, v in sorted(env.items())) or "none",
        "server flags": _pairs(sweep.server.flags),
        "server variables": _pairs(sweep.server.env),
        "best candidate's launch": _launch(summary),
        "baseline flags": _pairs(sweep.baseline.flags),
        "baseline variables": _pairs(sweep.baseline.env),
        "requests": str(load.requests),
        "order of prompts (seed)": str(load.seed),
        "windows": str(sweep.measure.windows),
        "objective": f"{sweep.search.objective.metric}, {sweep.search.objective.over}",
        "specbench": summary.run.settings.specbench,
    }


def _files(summary: RunSummary, role: str) -> str:
    """The commit or digest that the run began with: a name on the hub is many models."""
    facts = summary.run.settings.models.get(role, {})
    return facts.get("revision") or facts.get("digest") or MISSING


def _pairs(values: dict[str, object] | dict[str, str] | object) -> str:
    assert isinstance(values, dict)
    return " ".join(f"{name}={value}" for name, value in sorted(values.items())) or "none"
