"""The parts of report.md after the answer, as Markdown; None or "" where there is nothing."""

import shlex
from collections.abc import Sequence

from tuner.analysis.summary import NO_SPECULATION, RunSummary, TrialResult
from tuner.analysis.winner import held_out_objective, read_objective
from tuner.config.load_level import Level, Rate, at, axis
from tuner.config.schema import SearchSpec
from tuner.config.synthetic import trusted_code
from tuner.core.formatting import MISSING, count, duration, number
from tuner.core.markdown import code, escaped, markdown_table
from tuner.metrics.outliers import Off, requests_off, robust_spread, standing_out, windows_off
from tuner.report.nccl import nccl_warning
from tuner.report.results_table import TOP, has_energy, is_cut
from tuner.report.search_history import launches_without_trial
from tuner.runs.gpu_lock import spent
from tuner.runs.records import TrialRecord

MAX_FAILURES = 30


def workload(summary: RunSummary) -> str:
    """What was sent; no speed-up means anything without it."""
    load, measure = summary.sweep.workload, summary.sweep.measure
    settings = summary.run.settings
    read = f"; read as {settings.prompts_read}" if settings.prompts_read else ""
    if (answers := summary.run.conversations_hash) is not None:
        read += f"; those answers are in conversations.jsonl, content {answers}"
    cut = any(is_cut(summary, level) for level in summary.levels)
    fewer = " (fewer where a column has them)" if cut else ""
    return (
        f"Prompts {code(load.prompts)} (content {code(settings.prompts)}{escaped(read)}), "
        f"{count(load.requests, 'request')} of {load.output_tokens} tokens at temperature "
        f"{load.temperature:g}, {count(measure.windows, 'window')} per "
        f"{axis(summary.levels)}{fewer}, "
        + ("warmed up before" if measure.warmup_requests else "without a warm-up")
        + (
            ""
            if load.request_rate is None
            else f"; {_who_comes(summary)} a second (Poisson, the same times for every "
            f"configuration), and wait where {_most_open(summary)} are open"
        )
        + (
            "; every request runs to its full length."
            if load.ignore_eos
            else "; requests may stop early."
        )
        + _repeated_prompts(summary)
        + (
            " Energy is what NVML counts for the boards of the server's GPUs, all together."
            if any(has_energy(summary, level) for level in summary.levels)
            else ""
        )
    )


def _repeated_prompts(summary: RunSummary) -> str:
    """Where a window sends a prompt more than once; "" where it does not, or no samples say so."""
    base, told = summary.no_speculation or summary.best_candidate, list[str]()
    for level in summary.levels if base is not None else ():
        windows = summary.windows(base, level) if base is not None else []
        sent = [sample.prompt_id for sample in windows[0].samples] if windows else []
        different = len(set(sent))
        if different and len(sent) > different:
            times = f"{len(sent) / different:.1f}".removesuffix(".0")
            told.append(f"{at(level)} each of the {different} prompts {times} times")
    if not told:
        return ""
    return f" A window sends {'; '.join(told)}: a file of your own with more gives each once."


def doubts(summary: RunSummary) -> str:
    """What casts doubt on the numbers, one line for each kind of doubt."""
    found: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for record in summary.ledger.records:
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
    said = (summary.ledger.note, nccl_warning(summary))
    lines += [f"- {escaped(words)}" for words in said if words is not None]
    if len(versions := summary.versions()) > 1:
        lines.append(
            f"- the engine changed during the run: {', '.join(map(code, versions))}; its "
            "trials are not alike"
        )
    return "\n".join(lines)


def failures(summary: RunSummary) -> str | None:
    """Trials without numbers, by label, with their messages and logs."""
    failed = sorted(summary.failed, key=lambda r: (r.failure or r.outcome, r.trial))
    if not failed:
        return None
    rows = [
        [
            code(record.failure or record.outcome),
            str(record.trial),
            code(record.at.label()) if record.at else NO_SPECULATION,
            escaped(record.message or MISSING),
            _log(summary, record),
        ]
        for record in failed[:MAX_FAILURES]
    ]
    table = markdown_table(["label", "trial", "configuration", "what happened", "log"], rows, 5)
    if (more := len(failed) - MAX_FAILURES) > 0:
        table += f"\n\n{count(more, 'failure')} more; `trials.jsonl` has all."
    return table


def _log(summary: RunSummary, record: TrialRecord) -> str:
    path = summary.run.log_file(record.launch_id)
    return code(summary.run.relative(path)) if path.exists() else MISSING


def left_out(summary: RunSummary) -> str | None:
    """Combinations of the file that are no point of their own, with the reason."""
    space = summary.space
    rows = [[escaped(why), "not tried", str(n)] for why, n in space.dropped.items()]
    rows += [[escaped(why), "the same as another", str(n)] for why, n in space.collapsed.items()]
    return markdown_table(["reason", "what", "combinations"], rows, 2) if rows else None


def alike(summary: RunSummary) -> str | None:
    """What every server got alike and what differed between them, as a list."""
    notes = summary.checked.notes
    return "\n".join(f"- {escaped(note)}" for note in notes) or None


def facts(summary: RunSummary) -> str:
    """Model, engine, machine and time spent, as a table."""
    model, machine = summary.sweep.model, summary.run.machine()
    engines = {record.engine for record in summary.ledger.records} or {summary.sweep.engine.kind}
    shown = {
        "target": code(model.target),
        "draft": code(model.draft) if model.draft else MISSING,
        "algorithm": f"{model.speculation}, target TP {model.tp}",
        "engine": ", ".join(sorted(engines)),
        "engine version": ", ".join(map(code, summary.versions())) or MISSING,
        "GPUs": escaped(summary.gpus()),
        "driver": escaped(machine.get("driver") or MISSING),
        "CUDA of the driver": escaped(machine.get("cuda") or MISSING),
        "CPU": f"{escaped(machine.get('cpu', MISSING))}, {machine.get('cores', MISSING)} cores",
        "system": escaped(machine.get("os", MISSING)),
        "host": escaped(machine.get("hostname", MISSING)),
        "specbench": escaped(summary.run.settings.specbench),
        "time spent": time_spent(summary),
    }
    if (worker := summary.worker) is not None:
        shown["workers"] = escaped(worker.words(summary.trials))
    if (trusted := trusted_code(summary.sweep)) is not None:
        shown["code"] = escaped(trusted)
    if summary.simulated:
        shown = {
            k: f"{v} (of this machine, not of the one that is simulated)" if k == "GPUs" else v
            for k, v in shown.items()
        }
    return markdown_table(["what", "value"], [[k, v] for k, v in shown.items()], 2)


def time_spent(summary: RunSummary) -> str:
    """Launches and hours; the simulated engine's launches are in model time."""
    launches = {record.launch_id: record.launch_s for record in summary.ledger.records}
    known = [seconds for seconds in launches.values() if seconds is not None]
    measured = [r.measured_s for r in summary.ledger.records if r.measured_s is not None]
    model_time = " of model time" if summary.sweep.engine.is_simulated else ""
    words = f"{count(summary.launches, 'launch')} for {count(len(summary.ledger.records), 'trial')}"
    if lost := launches_without_trial(summary):
        words += f" ({count(len(lost), 'launch')} ended without one: tried again, or cut off)"
    if known:
        words += f"; launching {duration(sum(known))}{model_time}"
    if measured:
        words += f"; load {duration(sum(measured))}"
    return words


def command(summary: RunSummary) -> str:
    """The command that makes this run again."""
    settings = summary.run.settings
    words = ["specbench", "sweep", str(summary.run.sweep_file)]
    if settings.engine is not None:
        words += ["--engine", settings.engine]
    search = summary.run.document.value.get("search") or {}
    asked = search.get("trials", SearchSpec().trials)
    if summary.sweep.search.sampler != "grid" and settings.wanted != asked:
        words += ["--trials", str(settings.wanted)]
    return shlex.join(words)


def _trials(trials: list[int]) -> str:
    shown = ", ".join(map(str, trials[:8])) + (", ..." if len(trials) > 8 else "")
    return f"trial{'s' if len(trials) > 1 else ''} {shown}"


def _who_comes(summary: RunSummary) -> str:
    """`they come at 4`, `conversations come at 4, 8 or 16`."""
    load = summary.sweep.workload
    asked = load.request_rate
    shown = [f"{each:g}" for each in (asked if isinstance(asked, list) else [asked or 0.0])]
    rates = " or ".join(each for each in (", ".join(shown[:-1]), shown[-1]) if each)
    return f"{'conversations' if load.turns == 'all' else 'they'} come at {rates}"


def _most_open(summary: RunSummary) -> str:
    load = summary.sweep.workload
    at_rates = isinstance(load.levels[0], Rate)
    return str(load.concurrency[0]) if at_rates else "as many as the concurrency"


def describe_cost(summary: RunSummary) -> str | None:
    """GPU-hours spent, and after how long they are paid back; None where no time is known."""
    found = spent(summary.ledger, summary.sweep)
    if found is None:
        return None
    least = "at least " if found.unknown else ""
    words = f"The sweep took {least}{duration(found.hours * 3600)} of servers"
    if found.gpus:
        words += f" on {count(found.gpus, 'GPU')}, {_two_digits(found.gpu_hours)} GPU-hours"
    if found.unknown:
        words += f" ({count(found.unknown, 'launch')} without a time not counted)"
    if summary.simulated:
        words += ", launches in model time"
    gain, which = _gain(summary)
    after = None if gain is None else found.paid_back_after(gain)
    if gain is None or after is None:
        return f"{words}. It saves none where no speculation is served."
    if (why := _no_work(summary)) is not None:
        return f"{words}. After how much serving it is paid back is not told: {why}."
    return (
        f"{words}. At {gain:.3f} times the baseline ({which}) it is paid back after "
        f"{duration(after * 3600)} of serving at full load: each such hour does the work of "
        f"{gain:.2f} without it."
    )


def _two_digits(hours: float) -> str:
    return f"{hours:.2g}" if hours < 10 else f"{hours:,.0f}"


def _no_work(summary: RunSummary) -> str | None:
    """Why the objective is not the work of a server at full load; None where it is."""
    sweep = summary.sweep
    if sweep.workload.request_rate is not None:
        return "requests came at a given rate, which both servers answer as long as they keep up"
    if sweep.search.objective.metric != "output_tok_s":
        return "the objective is the speed of decoding alone, not a server's throughput"
    return None


def _gain(summary: RunSummary) -> tuple[float | None, str]:
    """The winner's objective by the measurement that is to be expected again."""
    best, spec = summary.best, summary.sweep.search.objective
    if best is None:
        return None, ""
    again = summary.confirmed
    unseen = None if again is None else held_out_objective(again, spec)
    if unseen is not None:
        return unseen, "on other prompts"
    own = None if again is None else read_objective(again, spec)
    if own is not None:
        return own, "with a launch of its own"
    return read_objective(best, spec), "its first measurement"


MAX_ROWS = 5


def outliers(summary: RunSummary) -> str | None:
    """Of the configurations that the tables show; None where no launch has three windows."""
    words, far = list[str](), list[tuple[TrialResult, Level, Off]]()
    for level in summary.levels:
        trials = [(each, summary.windows(each, level)) for each in _shown(summary)]
        for name, off in (("windows", windows_off), ("requests", requests_off)):
            found = [(each, off(windows, summary.metric)) for each, windows in trials]
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
        f"Robust spread of {summary.metric} beside the same launch's other windows (1.4826 times "
        f"the median absolute deviation): {', '.join(words)}."
    )
    rows = _rows(far)
    if not rows:
        return f"{told} Nothing stands out."
    rows.sort(key=lambda each: -each[0])
    header = [
        "configuration",
        "trial",
        axis(summary.levels),
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


def _conclusion(far: Sequence[tuple[TrialResult, Level, Off]]) -> str:
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


def _shown(summary: RunSummary) -> list[TrialResult]:
    found = [TrialResult(each, None) for each in summary.ledger.baselines]
    found += summary.ranked[:TOP]
    again = (
        None
        if summary.best_candidate is None
        else summary.ledger.confirmation(summary.best_candidate.record)
    )
    found += [TrialResult(again, None)] if again is not None and again.outcome == "ok" else []
    return [*found, *([summary.settings_only] if summary.settings_only else [])]


def _rows(far: Sequence[tuple[TrialResult, Level, Off]]) -> list[tuple[float, list[str]]]:
    """How far off, and the cells: one row for a window, whatever stands out in it that way."""
    found: dict[tuple[int, Level, int, bool], list[tuple[TrialResult, Level, Off]]] = {}
    for each, level, off in far:
        key = (each.record.trial, level, off.window, off.by > 0)
        found.setdefault(key, []).append((each, level, off))
    return [_row(together) for together in found.values()]


def _row(together: Sequence[tuple[TrialResult, Level, Off]]) -> tuple[float, list[str]]:
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
