"""The parts of report.md after the answer, as Markdown; None or "" where there is nothing."""

import shlex

from tuner.ledger.record import TrialRecord
from tuner.report.back_end import nccl_doubt
from tuner.report.findings import NO_SPECULATION, Findings
from tuner.report.searched import launches_without_trial
from tuner.report.text import (
    MISSING,
    again_command,
    code,
    count,
    duration,
    escaped,
    markdown_table,
)
from tuner.report.top_table import has_energy, is_cut
from tuner.sweep.document import read_document
from tuner.sweep.level import Rate, at, axis
from tuner.sweep.model import SearchSpec
from tuner.sweep.trusted import trusted_code

MAX_FAILURES = 30


def simulated_words(findings: Findings) -> str | None:
    """What a reader must know of a simulated run before any number."""
    if not findings.simulated:
        return None
    if findings.sweep.engine.kind != "simulated":
        words = "The server said that it is a simulated one: every number here comes from a "
        return words + "performance model, none was measured on hardware."
    preset = findings.sweep.engine.preset
    named = f"preset {code(preset)}" if preset else "its default preset"
    return (
        f"Every number here comes from the simulated engine's performance model ({named}); "
        "none was measured on hardware."
    )


def artificial_words(findings: Findings) -> str | None:
    """That weights or acceptance are not the model's, where they are not."""
    found = findings.artificial()
    if not found:
        return None
    return (
        f"{'; '.join(map(escaped, found))}. Compute and communication are real, the accept length "
        "is not: a speed-up here holds for a draft that accepts as much as was set."
    )


def launch_words(findings: Findings) -> str:
    """The line above the launch command."""
    files = "`best.sh` launches it (port from `PORT`, 30000 without)"
    if findings.best is None:
        return files + ":"
    what = "it" if findings.winner is findings.best else "the best candidate"
    return (
        f"{files}; `best.yaml` measures {what} again with {again_command(findings.run.best_yaml)}:"
    )


def workload(findings: Findings) -> str:
    """What was sent; no speed-up means anything without it."""
    load, measure = findings.sweep.workload, findings.sweep.measure
    settings = findings.run.settings
    read = f"; read as {settings.prompts_read}" if settings.prompts_read else ""
    if (answers := findings.run.conversations_hash) is not None:
        read += f"; those answers are in conversations.jsonl, content {answers}"
    cut = any(is_cut(findings, level) for level in findings.levels)
    fewer = " (fewer where a column has them)" if cut else ""
    return (
        f"Prompts {code(load.prompts)} (content {code(settings.prompts)}{escaped(read)}), "
        f"{count(load.requests, 'request')} of {load.output_tokens} tokens at temperature "
        f"{load.temperature:g}, {count(measure.windows, 'window')} per "
        f"{axis(findings.levels)}{fewer}, "
        + ("warmed up before" if measure.warmup_requests else "without a warm-up")
        + (
            ""
            if load.request_rate is None
            else f"; {_who_comes(findings)} a second (Poisson, the same times for every "
            f"configuration), and wait where {_most_open(findings)} are open"
        )
        + (
            "; every request runs to its full length."
            if load.ignore_eos
            else "; requests may stop early."
        )
        + _repeated_prompts(findings)
        + (
            " Energy is what NVML counts for the boards of the server's GPUs, all together."
            if any(has_energy(findings, level) for level in findings.levels)
            else ""
        )
    )


def _repeated_prompts(findings: Findings) -> str:
    """Where a window sends a prompt more than once; "" where it does not, or no samples say so."""
    base, told = findings.baseline or findings.best, list[str]()
    for level in findings.levels if base is not None else ():
        windows = findings.windows(base, level) if base is not None else []
        sent = [sample.prompt_id for sample in windows[0].samples] if windows else []
        different = len(set(sent))
        if different and len(sent) > different:
            times = f"{len(sent) / different:.1f}".removesuffix(".0")
            told.append(f"{at(level)} each of the {different} prompts {times} times")
    if not told:
        return ""
    return f" A window sends {'; '.join(told)}: a file of your own with more gives each once."


def doubts(findings: Findings) -> str:
    """What casts doubt on the numbers, one line for each kind of doubt."""
    found: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for record in findings.records:
        for check in record.checks:
            kind = (check.get("level", ""), check.get("check", ""))
            words = "; ".join(check[part] for part in ("message", "remedy") if check.get(part))
            found.setdefault(kind, []).append((words, record.trial))
    lines = []
    for (level, name), told in found.items():
        trials = list(dict.fromkeys(trial for _, trial in told))
        others = len({message for message, _ in told}) > 1
        example = f"trial {told[0][1]}: " if others else ""
        lines.append(
            f"- {escaped(level)} {code(name)}, {_trials(trials)}: {example}{escaped(told[0][0])}"
        )
    said = (findings.ledger.note, nccl_doubt(findings))
    lines += [f"- {escaped(words)}" for words in said if words is not None]
    if len(versions := findings.versions()) > 1:
        lines.append(
            f"- the engine changed during the run: {', '.join(map(code, versions))}; its "
            "trials are not alike"
        )
    return "\n".join(lines)


def failures(findings: Findings) -> str | None:
    """Trials without numbers, by label, with their messages and logs."""
    failed = sorted(findings.failed, key=lambda r: (r.failure or r.outcome, r.trial))
    if not failed:
        return None
    rows = [
        [
            code(record.failure or record.outcome),
            str(record.trial),
            code(record.at.label()) if record.at else NO_SPECULATION,
            escaped(record.message or MISSING),
            _log(findings, record),
        ]
        for record in failed[:MAX_FAILURES]
    ]
    table = markdown_table(["label", "trial", "configuration", "what happened", "log"], rows, 5)
    if (more := len(failed) - MAX_FAILURES) > 0:
        table += f"\n\n{count(more, 'failure')} more; `trials.jsonl` has all."
    return table


def _log(findings: Findings, record: TrialRecord) -> str:
    path = findings.run.log_file(record.launch_id)
    return code(findings.run.relative(path)) if path.exists() else MISSING


def left_out(findings: Findings) -> str | None:
    """Combinations of the file that are no point of their own, with the reason."""
    space = findings.space
    rows = [[escaped(why), "not tried", str(n)] for why, n in space.dropped.items()]
    rows += [[escaped(why), "the same as another", str(n)] for why, n in space.collapsed.items()]
    return markdown_table(["reason", "what", "combinations"], rows, 2) if rows else None


def alike(findings: Findings) -> str | None:
    """What every server got alike and what differed between them, as a list."""
    notes = findings.checked.notes
    return "\n".join(f"- {escaped(note)}" for note in notes) or None


def facts(findings: Findings) -> str:
    """Model, engine, machine and time spent, as a table."""
    model, machine = findings.sweep.model, findings.run.machine()
    engines = {record.engine for record in findings.records} or {findings.sweep.engine.kind}
    shown = {
        "target": code(model.target),
        "draft": code(model.draft) if model.draft else MISSING,
        "algorithm": f"{model.speculation}, target TP {model.tp}",
        "engine": ", ".join(sorted(engines)),
        "engine version": ", ".join(map(code, findings.versions())) or MISSING,
        "GPUs": escaped(findings.gpus()),
        "driver": escaped(machine.get("driver") or MISSING),
        "CUDA of the driver": escaped(machine.get("cuda") or MISSING),
        "CPU": f"{escaped(machine.get('cpu', MISSING))}, {machine.get('cores', MISSING)} cores",
        "system": escaped(machine.get("os", MISSING)),
        "host": escaped(machine.get("hostname", MISSING)),
        "specbench": escaped(findings.run.settings.specbench),
        "time spent": time_spent(findings),
    }
    if (worker := findings.result.worker) is not None:
        shown["workers"] = escaped(worker.words(findings.result.trials))
    if (trusted := trusted_code(findings.sweep)) is not None:
        shown["code"] = escaped(trusted)
    if findings.simulated:
        shown = {
            k: f"{v} (of this machine, not of the one that is simulated)" if k == "GPUs" else v
            for k, v in shown.items()
        }
    return markdown_table(["what", "value"], [[k, v] for k, v in shown.items()], 2)


def time_spent(findings: Findings) -> str:
    """Launches and hours; the simulated engine's launches are in model time."""
    launches = {record.launch_id: record.launch_s for record in findings.records}
    known = [seconds for seconds in launches.values() if seconds is not None]
    measured = [r.measured_s for r in findings.records if r.measured_s is not None]
    model_time = " of model time" if findings.sweep.engine.kind == "simulated" else ""
    words = (
        f"{count(findings.result.launches, 'launch')} for {count(len(findings.records), 'trial')}"
    )
    if lost := launches_without_trial(findings):
        words += f" ({count(len(lost), 'launch')} ended without one: tried again, or cut off)"
    if known:
        words += f"; launching {duration(sum(known))}{model_time}"
    if measured:
        words += f"; load {duration(sum(measured))}"
    return words


def inherited(findings: Findings) -> str | None:
    """NCCL variables that came from outside and that no one decided on here."""
    found = {
        name: value
        for name, value in findings.run.machine().get("env", {}).items()
        if name.startswith("NCCL_")
    }
    if not found:
        return None
    pairs = ", ".join(code(f"{name}={value}") for name, value in sorted(found.items()))
    return (
        f"{pairs} came from the environment that specbench was started in, and every server got "
        "them except where a configuration sets or unsets them. `best.sh` does not set them."
    )


def command(findings: Findings) -> str:
    """The command that makes this run again."""
    settings = findings.run.settings
    words = ["specbench", "sweep", str(findings.run.sweep_file)]
    if settings.engine is not None:
        words += ["--engine", settings.engine]
    text, file = findings.run.sweep_text(), str(findings.run.sweep_file)
    search = read_document(text, file).value.get("search") or {}
    asked = search.get("trials", SearchSpec().trials)
    if findings.sweep.search.sampler != "grid" and settings.wanted != asked:
        words += ["--trials", str(settings.wanted)]
    return shlex.join(words)


def _trials(trials: list[int]) -> str:
    shown = ", ".join(map(str, trials[:8])) + (", ..." if len(trials) > 8 else "")
    return f"trial{'s' if len(trials) > 1 else ''} {shown}"


def _who_comes(findings: Findings) -> str:
    """`they come at 4`, `conversations come at 4, 8 or 16`."""
    load = findings.sweep.workload
    asked = load.request_rate
    shown = [f"{each:g}" for each in (asked if isinstance(asked, list) else [asked or 0.0])]
    rates = " or ".join(each for each in (", ".join(shown[:-1]), shown[-1]) if each)
    return f"{'conversations' if load.turns == 'all' else 'they'} come at {rates}"


def _most_open(findings: Findings) -> str:
    load = findings.sweep.workload
    at_rates = isinstance(load.levels[0], Rate)
    return str(load.concurrency[0]) if at_rates else "as many as the concurrency"
