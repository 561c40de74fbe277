"""What to try next, by where a cycle goes: only what the run's own measurements do not refute."""

from tuner.engine.sglang.all_reduce import THROUGH_NCCL, logged_backend
from tuner.measure.checks.speculation import LOW_ACCEPT_RATE
from tuner.measure.statistics import Interval
from tuner.report.cycles import Cycles, Taken
from tuner.report.findings import Findings, Measured
from tuner.report.text import change, code, count, interval, number
from tuner.sweep.level import Level, at

LARGE_SHARE = 0.10
"""Of a cycle, from which on a quicker draft is worth a try."""
LARGE_ONCE = 0.25
"""Of a cycle, from which on what comes once in it is worth a look."""


def advice(cycles: Cycles) -> list[str]:
    """A line each, of the best candidate at the lowest and the highest level."""
    ends = list(dict.fromkeys([cycles.levels[0], cycles.levels[-1]]))
    found = list(dict.fromkeys(flag for level in ends for flag in _flags(cycles, level)))
    found += [words for words in (_draft(cycles, ends), _placement(cycles)) if words]
    return found


def _at(cycles: Cycles, level: Level) -> Taken | None:
    best = cycles.findings.best
    return cycles.taken(best, level) if best else None


def _where(cycles: Cycles, level: Level) -> str:
    return f" {at(level)}" if len(cycles.levels) > 1 else ""


def _flags(cycles: Cycles, level: Level) -> list[str]:
    taken, where = _at(cycles, level), _where(cycles, level)
    if taken is None:
        return []
    found = (_once(taken), _last_step(cycles, taken))
    flags = [f"{words[0]}{where}{words[1]}" for words in found if words]
    first = taken.measured.metric(level, "accept_rate_first")
    has_draft = cycles.findings.sweep.model.algorithm != "NGRAM"
    if has_draft and first is not None and first < LOW_ACCEPT_RATE:
        flags.append(
            f"acceptance is {100 * first:.0f} % at position 1{where}: check the hidden-state "
            "wiring of the draft before anything is tuned around it"
        )
    return flags


Flag = tuple[str, str]
"""What is so, and what to try; the concurrency stands between."""


def _once(taken: Taken) -> Flag | None:
    if taken.split is None or taken.split.once is None:
        return None
    more, whole = taken.split.once.value - taken.even.plain_ms, taken.split.cycle.value
    if more < LARGE_ONCE * whole:
        return None
    return (
        f"{number(more, 2)} of the modelled {number(whole, 2)} ms of a cycle come once in it, "
        "beyond a plain step, whatever is drafted",
        ": neither fewer steps nor another placement takes them away; look at what a verify pass "
        "does otherwise (communication settings, attention back-end, CUDA graphs, overlap)",
    )


def _draft(cycles: Cycles, levels: list[Level]) -> str | None:
    """What drafting takes of a cycle, where that is most; only while no other placement of the
    draft was asked for."""
    findings = cycles.findings
    asked = {each.draft_tp for each in findings.space.points}
    asked |= {each.at.draft_tp for each in findings.ledger.candidates if each.at}
    if findings.sweep.model.tp < 2 or asked != {"target"}:
        return None
    shares = list[tuple[float, Level, float, float]]()
    for level in levels:
        taken = _at(cycles, level)
        split = None if taken is None else taken.split
        if split is not None and split.draft is not None and split.draft.value > 0:
            draft, whole = split.draft.value, split.cycle.value
            shares.append((draft / whole, level, draft, whole))
    if not shares:
        return None
    share, level, draft, whole = max(shares, key=lambda each: each[0])
    if share < LARGE_SHARE:
        return None
    took = f"{number(draft, 2)} of the modelled {number(whole, 2)} ms"
    return (
        f"drafting is {100 * share:.0f} % of the cycle ({took})"
        f"{_where(cycles, level)}{_other_placement(findings)}"
    )


def _other_placement(findings: Findings) -> str:
    """Worth a launch where the draft's all-reduces cost much: through NCCL."""
    base = findings.baseline
    log = None if base is None else findings.run.log_file(base.record.launch_id)
    if log is not None and logged_backend(log) in THROUGH_NCCL:
        return ": try draft_tp 1, which drafts without all-reduces; here they go through NCCL"
    return ": draft_tp 1, which drafts without all-reduces, may shorten that on slow links (PCIe)"


def _placement(cycles: Cycles) -> str | None:
    """What the draft's placement changes; in the model it does so at every concurrency."""
    found = cycles.placement(cycles.levels[0])
    if found is None:
        return None
    best, other, longer = found
    words = f"a cycle of {code(other.label)} against one of {code(best.label)}: {longer.value:+.2f}"
    if longer.low is None or longer.high is None:
        return f"{words} ms, by the model; too few cycles for an interval"
    told = "" if longer.low > 0 or longer.high < 0 else ": not told apart"
    return f"{words} ({longer.low:+.2f} to {longer.high:+.2f}) ms, by the model{told}"


def _last_step(cycles: Cycles, taken: Taken) -> Flag | None:
    """Whether the last drafted token pays for itself; advice only where nobody measured it."""
    point, split, even = taken.measured.point, taken.split, taken.even
    rates = taken.measured.metrics(taken.level).get("accept_rate_by_position")
    if point is None or split is None or split.per_step is None or not rates:
        return None
    if split.per_step.value <= 0:  # nothing measurable, so nothing to advise
        return None
    if point.eagle_topk != 1 or not point.num_steps or len(rates) < point.num_steps:
        return None
    steps, costs, brings = point.num_steps, split.per_step.value, rates[point.num_steps - 1]
    before = rates[steps - 2] if steps > 1 else 1.0
    next_brings = brings * brings / before if before else 0.0  # accepted as often as the last one
    pays = costs * even.accept_length / even.cycle_ms
    chains = {e.point.num_steps: e for e in cycles.block if e.point and e.point.eagle_topk == 1}
    advice = ""
    if brings < pays and steps > 1:
        advice = _fewer(cycles, taken, chains.get(steps - 1))
    elif next_brings > pays and steps + 1 not in chains:
        # A longer one that was measured and is slower refutes "more", not one step more.
        longer = [cycles.taken(e, taken.level) for n, e in chains.items() if (n or 0) > steps]
        slower = any(each is not None and each.even.gain < even.gain for each in longer)
        more = count(steps + 1, "step") if slower else "more steps"
        advice = f": {more} may pay"
        if not even.may_win(costs, next_brings, brings / before if before else 0.0):
            advice = f": {more} make a less bad chain, not a winning one"
    words = f"each further drafted token costs {_ms(split.per_step)} ms, and the last of {steps} "
    return f"{words}brings {brings:.2f} tokens ({pays:.2f} would pay for it)", advice


def _fewer(cycles: Cycles, taken: Taken, shorter: Measured | None) -> str:
    """What follows for a chain whose last step does not pay, beside the one a step shorter."""
    if shorter is None:
        return ": fewer steps"
    found = cycles.findings.ratio(taken.measured, shorter, taken.level)
    name = code(shorter.label)
    if found is None or found.includes_one is not False:
        return f": fewer steps, though {name} is not told apart there"
    if found.value < 1:
        return f", yet {name} was measured slower there"
    return f": fewer steps, as {name} shows, which is {change(found)} there"


def _ms(found: Interval) -> str:
    return interval(found.value, found.low, found.high, 2)
