"""Which runs may be held against each other, and what a reader must know where they differ."""

from collections.abc import Sequence

from tuner.errors import NotComparable
from tuner.ledger.record import TrialRecord
from tuner.report.findings import Findings, Measured

MISSING = "not recorded"


def refuse_unlike(runs: Sequence[Findings]) -> None:
    """Raises NotComparable, with the reason, where a run asks another question than the first."""
    first = runs[0]
    for other in runs[1:]:
        if reason := _unlike(first, other):
            raise NotComparable(f"not comparable with {first.run.path}: {reason}", other.run.path)


def _unlike(first: Findings, other: Findings) -> str | None:
    if first.simulated != other.simulated:
        words = [_engine(each) for each in (first, other)]
        return f"one is {words[0]}, the other {words[1]}"
    one, two = _question(first), _question(other)
    for name, value in one.items():
        if two[name] != value:
            return f"{name} is {value} in the first run and {two[name]} here"
    levels = first.sweep.workload.concurrency, other.sweep.workload.concurrency
    if not set(levels[0]) & set(levels[1]):
        return f"no concurrency in common ({levels[0]} in the first run and {levels[1]} here)"
    return None


def _engine(findings: Findings) -> str:
    return "simulated" if findings.simulated else "measured on hardware"


def _question(findings: Findings) -> dict[str, object]:
    """What must be equal for two numbers to answer the same question.

    Not the algorithm and its draft: which of them is faster is what people ask.
    """
    model, load = findings.sweep.model, findings.sweep.workload
    return {
        "model.target": model.target,
        "model.tp": model.tp,
        "the prompts' content": findings.run.settings.prompts,
        "workload.output_tokens": load.output_tokens,
        "workload.temperature": load.temperature,
        "workload.ignore_eos": load.ignore_eos,
    }


def differences(runs: Sequence[Findings], names: Sequence[str]) -> list[str]:
    """What differs and may explain a ratio: `driver: A 550.54, B 570.10`."""
    told = [_circumstances(each) for each in runs]
    lines = []
    for what in told[0]:
        values = [each[what] for each in told]
        if len(set(values)) > 1:
            pairs = (f"{name} {value}" for name, value in zip(names, values, strict=True))
            lines.append(f"{what}: {', '.join(pairs)}")
    return lines


def best_measured(findings: Findings) -> Measured | None:
    """The best candidate by the launch that was made to confirm it, else by its first one.

    The first was picked for its figure, and may have been shared with other chain lengths.
    """
    best = findings.best
    again = None if best is None else _confirmed(findings, best)
    return best if again is None else Measured(again, None)


def launch_note(findings: Findings, name: str) -> str | None:
    """What to know of the launch that the best candidate's figures are of; None for nothing."""
    best = findings.best
    if best is None:
        return None
    again = findings.ledger.confirmation(best.record)
    if again is not None and _confirmed(findings, best) is None:
        why = again.failure or again.outcome
        return f"{name}: {_shared(best)}; a launch of its own failed (trial {again.trial}: {why})"
    if again is not None:
        return (
            f"{name}: measured again with a launch of its own (trial {again.trial}), whose figures "
            f"these are; first {_shared(best)} (trial {best.record.trial})"
        )
    return f"{name}: {_shared(best)}, not confirmed by one of its own" if _is_shared(best) else None


def _confirmed(findings: Findings, best: Measured) -> TrialRecord | None:
    again = findings.ledger.confirmation(best.record)
    return again if again is not None and again.outcome == "ok" and again.metrics else None


def _is_shared(measured: Measured) -> bool:
    return bool(measured.record.warm_steps)


def _shared(measured: Measured) -> str:
    if not _is_shared(measured):
        return "measured on a server of its own"
    lengths = ", ".join(map(str, measured.record.warm_steps))
    return f"measured on a server that switches between chains of {lengths} steps"


def _launch(findings: Findings) -> str:
    used = best_measured(findings)
    if used is None:
        return "none"
    return "shared by several chain lengths" if _is_shared(used) else "its own"


def _circumstances(findings: Findings) -> dict[str, str]:
    sweep, machine = findings.sweep, findings.run.machine()
    load = sweep.workload
    env = machine.get("env") or {}
    draft = f" with {sweep.model.draft}" if sweep.model.draft else ""
    return {
        "speculation": f"{sweep.model.algorithm}{draft}",
        "engine": sweep.engine.kind,
        "engine version": ", ".join(findings.versions()) or MISSING,
        "simulated preset": str(sweep.engine.preset),
        "simulated overrides": str(sweep.engine.overrides),
        "host": str(machine.get("hostname") or MISSING),
        "GPUs": findings.gpus(),
        "driver": str(machine.get("driver") or MISSING),
        "CUDA of the driver": str(machine.get("cuda") or MISSING),
        "inherited variables": " ".join(f"{k}={v}" for k, v in sorted(env.items())) or "none",
        "server flags": _pairs(sweep.server.flags),
        "server variables": _pairs(sweep.server.env),
        "best candidate's launch": _launch(findings),
        "baseline flags": _pairs(sweep.baseline.flags),
        "baseline variables": _pairs(sweep.baseline.env),
        "requests": str(load.requests),
        "order of prompts (seed)": str(load.seed),
        "windows": str(sweep.measure.repeats),
        "objective": f"{sweep.search.objective.metric}, {sweep.search.objective.over}",
        "specbench": findings.run.settings.specbench,
    }


def _pairs(values: dict[str, object] | dict[str, str] | object) -> str:
    assert isinstance(values, dict)
    return " ".join(f"{name}={value}" for name, value in sorted(values.items())) or "none"
