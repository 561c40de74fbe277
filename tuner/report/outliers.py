"""Windows and requests that stand out, as a table; every figure of the report contains them."""

from collections.abc import Sequence

from tuner.measure.outliers import Off, requests_off, robust_spread, standing_out, windows_off
from tuner.report.findings import Findings, Measured
from tuner.report.text import MISSING, code, count, escaped, markdown_table, number
from tuner.report.top_table import TOP
from tuner.sweep.level import Level, at, axis

MAX_ROWS = 5


def outliers(findings: Findings) -> str | None:
    """Of the configurations that the tables show; None where no launch has three windows."""
    words, far = list[str](), list[tuple[Measured, Level, Off]]()
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


def _conclusion(far: Sequence[tuple[Measured, Level, Off]]) -> str:
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


def _shown(findings: Findings) -> list[Measured]:
    found = [Measured(each, None) for each in findings.ledger.baselines]
    found += findings.ranked[:TOP]
    again = None if findings.best is None else findings.ledger.confirmation(findings.best.record)
    found += [Measured(again, None)] if again is not None and again.outcome == "ok" else []
    return [*found, *([findings.plain] if findings.plain else [])]


def _rows(far: Sequence[tuple[Measured, Level, Off]]) -> list[tuple[float, list[str]]]:
    """How far off, and the cells: one row for a window, whatever stands out in it that way."""
    found: dict[tuple[int, Level, int, bool], list[tuple[Measured, Level, Off]]] = {}
    for each, level, off in far:
        key = (each.record.trial, level, off.window, off.by > 0)
        found.setdefault(key, []).append((each, level, off))
    return [_row(together) for together in found.values()]


def _row(together: Sequence[tuple[Measured, Level, Off]]) -> tuple[float, list[str]]:
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
