"""The section "Where a cycle goes" and the reason why speculation loses, as Markdown."""

from tuner.analysis.cycle_breakdown import Cycles, CycleTimes, concurrent_streams
from tuner.analysis.summary import NO_SPECULATION, RunSummary, TrialResult
from tuner.config.load_level import Level, at
from tuner.config.point import Point
from tuner.core.formatting import MISSING, change, count, interval, number
from tuner.core.markdown import code, markdown_table
from tuner.metrics.statistics import Interval
from tuner.metrics.warnings.speculation import LOW_ACCEPT_RATE
from tuner.sglang.log_parser import THROUGH_NCCL, logged_backend

CUT_OFF = 0.99
"""Share of a cycle's tokens that reach the client, below which the rest is worth a word."""

HEADER = [
    "configuration",
    "cycle, ms",
    "once a cycle",
    "drafted tokens",
    "of it draft",
    "of it verify",
    "accept length",
    "needed",
]


def why_it_loses(summary: RunSummary) -> str | None:
    """Cycle against accept length of the best candidate, where it is shown to be slower.

    Of a difference that noise may have made there is no reason.
    """
    best, cycles = summary.best_candidate, Cycles(summary)
    if best is None or summary.winner is not summary.no_speculation:
        return None
    several = len(summary.levels) > 1
    told = []
    for level in cycles.levels:
        bounds, taken = best.speedups.get(level), cycles.taken(best, level)
        if bounds is not None and (bounds.high or 1.0) < 1 and taken is not None:
            told.append((f"{at(level)} " if several else "") + _lost(cycles, taken))
    return f"Why: {' '.join(_capital(told))}" if told else None


def _lost(cycles: Cycles, taken: CycleTimes) -> str:
    even = taken.even
    costs = (
        f"a cycle of it takes {even.needed:.2f} times a plain decode step "
        f"({number(even.cycle_ms, 2)} against {number(even.plain_ms, 2)} ms)"
    )
    brings = f"{even.accept_length:.2f} tokens"
    if even.delivered < CUT_OFF * even.accept_length:
        brings += f" ({even.delivered:.2f} without those that the ends of answers cut off)"
    if even.gain > 1:
        return (
            f"{costs} and brings {brings}, so decoding alone is "
            f"{100 * (even.gain - 1):.1f} % faster than without speculation: what it loses, it "
            "loses outside decoding, in prefill and queueing."
        )
    words = (
        f"{costs} and brings {brings}: speculation needs an accept length "
        f"above {even.needed:.2f} here, or a cycle below "
        f"{number(even.accept_length * even.plain_ms, 2)} ms."
    )
    return f"{words}{_hopeless(cycles, taken)}"


def _hopeless(cycles: Cycles, taken: CycleTimes) -> str:
    """That no draft can make this chain win, and what could: a longer one as far as the run's own
    measurements do not refute it; "" where a draft can."""
    even, steps = taken.even, taken.even.num_steps
    if not even.hopeless or steps is None:
        return ""
    words = (
        f" With {count(steps, 'step')} even a draft that is always right brings {steps + 1} tokens "
        "and does not win: at that length no better draft helps, only a shorter cycle"
    )
    longer = [each for each in cycles.shown(taken.level) if (each.even.num_steps or 0) > steps]
    if not longer:
        return f"{words} or more steps."
    able = next((each for each in longer if not each.even.hopeless), None)
    best = able or longer[-1]
    name, gain = code(best.measured.label), number(best.even.gain, 3)
    if able is None:
        return f"{words}; the same holds for {name}, which decoded {gain} times as fast."
    return (
        f"{words}. {name} could win with a better draft; with this one it decoded {gain} times as "
        "fast as no speculation."
    )


def _capital(sentences: list[str]) -> list[str]:
    """Of the second and later ones."""
    return [s if i == 0 else s[0].upper() + s[1:] for i, s in enumerate(sentences)]


def cycle_section(summary: RunSummary) -> list[str]:
    """Paragraphs, tables and a list of flags; [] where no cycle can be held against a plain one."""
    cycles = Cycles(summary)
    if not cycles.levels:
        return []
    parts = []
    for level in cycles.levels:
        if len(cycles.levels) > 1:
            parts.append(f"### Cycles {at(level)}")
        parts.append(_table(cycles, level))
    parts += [words for words in (_describe_split(cycles), _unmeasured(cycles)) if words]
    if found := advice(cycles):
        parts.append("\n".join(f"- {each}" for each in found))
    return parts


def _table(cycles: Cycles, level: Level) -> str:
    shown = cycles.shown(level)
    plain = shown[0].even.plain_ms
    rows = [[f"**{NO_SPECULATION}**", number(plain, 2), *[MISSING] * 4, "1", MISSING]]
    for each in shown:
        split = each.split
        parts = (split.once, split.drafted, split.draft, split.tokens) if split else [None] * 4
        rows.append(
            [
                code(each.measured.label),
                number(each.even.cycle_ms, 2),
                *map(_ms, parts),
                number(each.even.accept_length, 2),
                number(each.even.needed, 2),
            ]
        )
    return markdown_table(HEADER, rows)


def _ms(found: Interval | None) -> str:
    return MISSING if found is None else interval(found.value, found.low, found.high, 2)


def _describe_split(cycles: Cycles) -> str | None:
    """The best candidate's cycle at the lowest concurrency, in words."""
    level, best = cycles.levels[0], cycles.summary.best_candidate
    if cycles.scattered is not None:
        return (
            "No split is given: the measured cycles do not follow the number of steps and tokens "
            f"(a model of them misses by {100 * cycles.scattered:.0f} %). Something else may have "
            "used the machine during a part of the run; measure again when it does not."
        )
    taken = cycles.taken(best, level) if best else None
    if taken is None or taken.split is None or best is None or best.point is None:
        return None
    split, plain = taken.split, taken.even.plain_ms
    where = f" {at(level)}" if len(cycles.levels) > 1 else ""
    words = f"A plain decode step takes {number(plain, 2)} ms{where}. "
    if split.once is None or split.drafted is None:
        rest = taken.even.cycle_ms - plain
        if split.tokens is not None:
            rest -= split.tokens.value
            words += f"The verify of what {code(best.label)} drafts takes {_ms(split.tokens)} ms. "
        words += (
            f"What the further {number(max(0.0, rest), 2)} ms of a cycle of "
            f"{code(best.label)} go into is not told apart by these measurements"
        )
        lacking = _lacking(cycles, level, best.point, "drafted")
        return f"{words}{f'; it takes {lacking}' if lacking else ''}."
    more = split.once.value - plain
    words += f"A cycle of {code(best.label)} takes {_ms(split.once)} ms whatever it drafts, "
    words += (
        f"{number(more, 2)} ms more than that step (a verify pass of its own kind, the draft's "
        "extend, the host)"
        if more > 0
        else "no more than that step"
    )
    words += f"; its drafted tokens add {_ms(split.drafted)} ms, draft and verify together"
    if split.draft is not None and split.tokens is not None:
        words += f": {_ms(split.draft)} ms draft steps, {_ms(split.tokens)} ms verify"
    elif lacking := _lacking(cycles, level, best.point, "draft"):
        words += f". To tell the draft from the verify of what it drafted takes {lacking}"
    error = cycles.model(level).error
    if error is None:
        return f"{words}. There are too few cycles for intervals."
    return f"{words}. The model behind this misses a measured cycle by {100 * error:.1f} %."


def _lacking(cycles: Cycles, level: Level, point: Point, part: str) -> str | None:
    """What to measure besides; at a rate nobody says how many streams were in a batch."""
    lacking = cycles.model(level).missing(point, concurrent_streams(level), part)
    if lacking is None or cycles.summary.sweep.workload.request_rate is None:
        return lacking
    other = "a run without request_rate at two concurrencies"
    return lacking.replace("a second concurrency", other)


def _unmeasured(cycles: Cycles) -> str | None:
    level = cycles.levels[0]
    told = [
        f"{code(each.point.label())} {number(each.decode_tok_s.value)} tok/s "
        + (
            ""
            if each.decode_tok_s.low is None or each.decode_tok_s.high is None
            else f"({number(each.decode_tok_s.low)} to {number(each.decode_tok_s.high)}) "
        )
        + f"at an accept length of {each.accept_length.value:.2f}"
        for each in cycles.unmeasured(level)
    ]
    if not told:
        return None
    where = f" {at(level)}" if len(cycles.levels) > 1 else ""
    return f"Not measured, but predicted{where}, decoding alone: {'; '.join(told)}."


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


def _at(cycles: Cycles, level: Level) -> CycleTimes | None:
    best = cycles.summary.best_candidate
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
    has_draft = cycles.summary.sweep.model.algorithm != "NGRAM"
    if has_draft and first is not None and first < LOW_ACCEPT_RATE:
        flags.append(
            f"acceptance is {100 * first:.0f} % at position 1{where}: check the hidden-state "
            "wiring of the draft before anything is tuned around it"
        )
    return flags


Flag = tuple[str, str]
"""What is so, and what to try; the concurrency stands between."""


def _once(taken: CycleTimes) -> Flag | None:
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
    summary = cycles.summary
    asked = {each.draft_tp for each in summary.space.points}
    asked |= {each.at.draft_tp for each in summary.ledger.candidates if each.at}
    if summary.sweep.model.tp < 2 or asked != {"target"}:
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
        f"{_where(cycles, level)}{_other_placement(summary)}"
    )


def _other_placement(summary: RunSummary) -> str:
    """Worth a launch where the draft's all-reduces cost much: through NCCL."""
    base = summary.no_speculation
    log = None if base is None else summary.run.log_file(base.record.launch_id)
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


def _last_step(cycles: Cycles, taken: CycleTimes) -> Flag | None:
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
    cost = _rounded_ms(split.per_step)
    words = f"each further drafted token costs {cost} ms, and the last of {steps} "
    return f"{words}brings {brings:.2f} tokens ({pays:.2f} would pay for it)", advice


def _fewer(cycles: Cycles, taken: CycleTimes, shorter: TrialResult | None) -> str:
    """What follows for a chain whose last step does not pay, beside the one a step shorter."""
    if shorter is None:
        return ": fewer steps"
    found = cycles.summary.ratio(taken.measured, shorter, taken.level)
    name = code(shorter.label)
    if found is None or found.includes_one is not False:
        return f": fewer steps, though {name} is not told apart there"
    if found.value < 1:
        return f", yet {name} was measured slower there"
    return f": fewer steps, as {name} shows, which is {change(found)} there"


def _rounded_ms(found: Interval) -> str:
    return interval(found.value, found.low, found.high, 2)
