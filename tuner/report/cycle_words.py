"""The section "Where a cycle goes" and the reason why speculation loses, as Markdown."""

from tuner.measure.statistics import Interval
from tuner.report.cycle_advice import advice
from tuner.report.cycles import Cycles, Taken, streams_of
from tuner.report.findings import NO_SPECULATION, Findings
from tuner.report.text import MISSING, code, count, interval, markdown_table, number
from tuner.sweep.level import Level, at
from tuner.sweep.point import Point

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


def why_it_loses(findings: Findings) -> str | None:
    """Cycle against accept length of the best candidate, where it is shown to be slower.

    Of a difference that noise may have made there is no reason.
    """
    best, cycles = findings.best, Cycles(findings)
    if best is None or findings.winner is not findings.baseline:
        return None
    several = len(findings.levels) > 1
    told = []
    for level in cycles.levels:
        bounds, taken = best.speedups.get(level), cycles.taken(best, level)
        if bounds is not None and (bounds.high or 1.0) < 1 and taken is not None:
            told.append((f"{at(level)} " if several else "") + _lost(cycles, taken))
    return f"Why: {' '.join(_capital(told))}" if told else None


def _lost(cycles: Cycles, taken: Taken) -> str:
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


def _hopeless(cycles: Cycles, taken: Taken) -> str:
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


def cycle_section(findings: Findings) -> list[str]:
    """Paragraphs, tables and a list of flags; [] where no cycle can be held against a plain one."""
    cycles = Cycles(findings)
    if not cycles.levels:
        return []
    parts = []
    for level in cycles.levels:
        if len(cycles.levels) > 1:
            parts.append(f"### Cycles {at(level)}")
        parts.append(_table(cycles, level))
    parts += [words for words in (_split_words(cycles), _unmeasured(cycles)) if words]
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


def _split_words(cycles: Cycles) -> str | None:
    """The best candidate's cycle at the lowest concurrency, in words."""
    level, best = cycles.levels[0], cycles.findings.best
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
    lacking = cycles.model(level).missing(point, streams_of(level), part)
    if lacking is None or cycles.findings.sweep.workload.request_rate is None:
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
