"""The parts of report.md after the answer, as Markdown; None or "" where there is nothing."""

import shlex
from collections.abc import Sequence

from tuner.analysis.run_results import NO_SPECULATION, Result, RunView
from tuner.analysis.winner import held_out_objective, read_objective
from tuner.config.load_level import Level, Rate, at, axis
from tuner.config.schema import SearchSpec
from tuner.config.synthetic import trusted_code
from tuner.config.yaml_document import read_document
from tuner.core.formatting import MISSING, count, duration, number
from tuner.core.markdown import code, escaped, markdown_table
from tuner.metrics.outliers import Off, requests_off, robust_spread, standing_out, windows_off
from tuner.report.nccl import nccl_warning
from tuner.report.results_table import TOP, has_energy, is_cut
from tuner.report.search_history import launches_without_trial
from tuner.report.winner_files import again_command
from tuner.runs.gpu_lock import spent
from tuner.runs.records import TrialRecord

MAX_FAILURES = 30


def describe_simulation(findings: RunView) -> str | None:
    """What a reader must know of a simulated run before any number."""
    if not findings.simulated:
        return None
    if not findings.sweep.engine.is_simulated:
        words = "The server said that it is a simulated one: every number here comes from a "
        return words + "performance model, none was measured on hardware."
    preset = findings.sweep.engine.preset
    named = f"preset {code(preset)}" if preset else "its default preset"
    return (
        f"Every number here comes from the simulated engine's performance model ({named}); "
        "none was measured on hardware."
    )


def describe_synthetic(findings: RunView) -> str | None:
    """That weights or acceptance are not the model's, where they are not."""
    found = findings.artificial()
    if not found:
        return None
    return (
        f"{'; '.join(map(escaped, found))}. Compute and communication are real, the accept length "
        "is not: a speed-up here holds for a draft that accepts as much as was set."
    )


def describe_launch(findings: RunView) -> str:
    """The line above the launch command."""
    files = "`best.sh` launches it (port from `PORT`, 30000 without)"
    if findings.best is None:
        return files + ":"
    what = "it" if findings.winner is findings.best else "the best candidate"
    return (
        f"{files}; `best.yaml` measures {what} again with {again_command(findings.run.best_yaml)}:"
    )


def workload(findings: RunView) -> str:
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


def _repeated_prompts(findings: RunView) -> str:
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


def doubts(findings: RunView) -> str:
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
    said = (findings.ledger.note, nccl_warning(findings))
    lines += [f"- {escaped(words)}" for words in said if words is not None]
    if len(versions := findings.versions()) > 1:
        lines.append(
            f"- the engine changed during the run: {', '.join(map(code, versions))}; its "
            "trials are not alike"
        )
    return "\n".join(lines)


def failures(findings: RunView) -> str | None:
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


def _log(findings: RunView, record: TrialRecord) -> str:
    path = findings.run.log_file(record.launch_id)
    return code(findings.run.relative(path)) if path.exists() else MISSING


def left_out(findings: RunView) -> str | None:
    """Combinations of the file that are no point of their own, with the reason."""
    space = findings.space
    rows = [[escaped(why), "not tried", str(n)] for why, n in space.dropped.items()]
    rows += [[escaped(why), "the same as another", str(n)] for why, n in space.collapsed.items()]
    return markdown_table(["reason", "what", "combinations"], rows, 2) if rows else None


def alike(findings: RunView) -> str | None:
    """What every server got alike and what differed between them, as a list."""
    notes = findings.checked.notes
    return "\n".join(f"- {escaped(note)}" for note in notes) or None


def facts(findings: RunView) -> str:
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


def time_spent(findings: RunView) -> str:
    """Launches and hours; the simulated engine's launches are in model time."""
    launches = {record.launch_id: record.launch_s for record in findings.records}
    known = [seconds for seconds in launches.values() if seconds is not None]
    measured = [r.measured_s for r in findings.records if r.measured_s is not None]
    model_time = " of model time" if findings.sweep.engine.is_simulated else ""
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


def inherited(findings: RunView) -> str | None:
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


def command(findings: RunView) -> str:
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


def _who_comes(findings: RunView) -> str:
    """`they come at 4`, `conversations come at 4, 8 or 16`."""
    load = findings.sweep.workload
    asked = load.request_rate
    shown = [f"{each:g}" for each in (asked if isinstance(asked, list) else [asked or 0.0])]
    rates = " or ".join(each for each in (", ".join(shown[:-1]), shown[-1]) if each)
    return f"{'conversations' if load.turns == 'all' else 'they'} come at {rates}"


def _most_open(findings: RunView) -> str:
    load = findings.sweep.workload
    at_rates = isinstance(load.levels[0], Rate)
    return str(load.concurrency[0]) if at_rates else "as many as the concurrency"


def describe_cost(findings: RunView) -> str | None:
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


def _no_work(findings: RunView) -> str | None:
    """Why the objective is not the work of a server at full load; None where it is."""
    sweep = findings.sweep
    if sweep.workload.request_rate is not None:
        return "requests came at a given rate, which both servers answer as long as they keep up"
    if sweep.search.objective.metric != "output_tok_s":
        return "the objective is the speed of decoding alone, not a server's throughput"
    return None


def _gain(findings: RunView) -> tuple[float | None, str]:
    """The winner's objective by the measurement that is to be expected again."""
    best, spec = findings.result.best, findings.sweep.search.objective
    if best is None:
        return None, ""
    again = findings.result.confirmed
    unseen = None if again is None else held_out_objective(again, spec)
    if unseen is not None:
        return unseen, "on other prompts"
    own = None if again is None else read_objective(again, spec)
    if own is not None:
        return own, "with a launch of its own"
    return read_objective(best, spec), "its first measurement"


MAX_ROWS = 5


def outliers(findings: RunView) -> str | None:
    """Of the configurations that the tables show; None where no launch has three windows."""
    words, far = list[str](), list[tuple[Result, Level, Off]]()
    for level in findings.levels:
        trials = [(each, findings.windows(each, level)) for each in _shown(findings)]
        for name, off in (("windows", windows_off), ("requests", requests_off)):
            found = [(each, off(windows, findings.metric)) for each, windows in trials]
            spread = robust_spread([one.by for _, every in found for one in every])
            if spread is None:
                continue
            words.append(f"{name} {at(level)} {spread:.2%}")
            far += [
                (each, level, one) for each, every in found for one in standing_out(every, spread)
            ]
    if not words:
        return None
    told = (
        f"Robust spread of {findings.metric} beside the same launch's other windows (1.4826 times "
        f"the median absolute deviation): {', '.join(words)}."
    )
    rows = _rows(far)
    if not rows:
        return f"{told} Nothing stands out."
    rows.sort(key=lambda each: -each[0])
    header = [
        "configuration",
        "trial",
        axis(findings.levels),
        "window",
        "prompt or requests",
        "of the others' speed",
    ]
    table = markdown_table(header, [row for _, row in rows[:MAX_ROWS]], 6)
    more = len(rows) - MAX_ROWS
    rest = f"\n\n{more} more." if more > 0 else ""
    lead = "These stand out" if more <= 0 else f"The {MAX_ROWS} that stand out most"
    return (
        f"{told} {_conclusion(far)} {lead}; they are in every figure, none was dropped:\n\n"
        f"{table}{rest}"
    )


def _conclusion(far: Sequence[tuple[Result, Level, Off]]) -> str:
    """What follows, in a sentence."""
    trials = sorted({each.record.trial for each, _, off in far if off.prompt is None})
    slow = sum(off.by < 0 for *_, off in far)
    if trials:
        names = f"trial{'s' * (len(trials) > 1)} {', '.join(map(str, trials))}"
        return (
            f"Whole windows of {names} ran at another speed than the others of the same launch: "
            "look whether something else used the machine then."
        )
    return (
        f"Single requests alone, {slow} slower and {len(far) - slow} faster than the same prompt's "
        "others, and no whole window: nothing that moved a figure as a whole."
    )


def _shown(findings: RunView) -> list[Result]:
    found = [Result(each, None) for each in findings.ledger.baselines]
    found += findings.ranked[:TOP]
    again = None if findings.best is None else findings.ledger.confirmation(findings.best.record)
    found += [Result(again, None)] if again is not None and again.outcome == "ok" else []
    return [*found, *([findings.plain] if findings.plain else [])]


def _rows(far: Sequence[tuple[Result, Level, Off]]) -> list[tuple[float, list[str]]]:
    """How far off, and the cells: one row for a window, whatever stands out in it that way."""
    found: dict[tuple[int, Level, int, bool], list[tuple[Result, Level, Off]]] = {}
    for each, level, off in far:
        key = (each.record.trial, level, off.window, off.by > 0)
        found.setdefault(key, []).append((each, level, off))
    return [_row(together) for together in found.values()]


def _row(together: Sequence[tuple[Result, Level, Off]]) -> tuple[float, list[str]]:
    each, level, first = together[0]
    prompts = [off for *_, off in together if off.prompt is not None]
    whole = [off for *_, off in together if off.prompt is None]
    ratios = sorted(off.ratio for off in whole or prompts)
    if whole:
        prompt = f"all; {count(len(prompts), 'request')} by themselves" if prompts else MISSING
    else:
        prompt = escaped(first.prompt or "") if len(prompts) == 1 else f"{len(prompts)} requests"
    speed = number(ratios[0], 3)
    if len(ratios) > 1:
        speed += f" to {number(ratios[-1], 3)}"
    cells = [code(each.label), str(each.record.trial), str(level), str(first.window), prompt]
    return max(abs(off.by) for *_, off in together), [*cells, speed]
