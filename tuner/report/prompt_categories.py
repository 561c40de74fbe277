"""The report's tables of kinds and lengths of prompts."""

from tuner.analysis.prompt_categories import KindFound
from tuner.analysis.summary import NO_SPECULATION, RunSummary
from tuner.config.load_level import at
from tuner.core.formatting import MISSING, number, percent
from tuner.core.markdown import code, escaped, markdown_table
from tuner.metrics.statistics import Interval
from tuner.runs.records import TrialRecord

HEADER = (
    "kind", "requests", "accept length", "accept rate", "first accepted", "decode tok/s",
    "without speculation", "speed-up", "fastest for this kind",
)  # fmt: skip


OF_A_LENGTH = (
    "prompt tokens", "requests", "accept length", "accept rate", "first accepted", "decode tok/s",
    "without speculation", "TTFT p50, ms", "TTFT p50 without speculation, ms",
)  # fmt: skip


def kind_tables(summary: RunSummary) -> list[tuple[str, str]]:
    """For each concurrency what the table shows, and the table; [] without a candidate, and where
    all prompts are of one kind: the other tables have that."""
    best = summary.best_candidate
    if best is None:
        return []
    found = summary.kinds
    tables = []
    for level, kinds in found.items():
        if len(kinds) < 2:
            continue
        where = f" {at(level)}" if len(found) > 1 else ""
        words = f"By kind of prompt{where}, decode speed of one stream, of {code(best.label)}:"
        rows = [_row(each, best.record) for each in kinds]
        tables.append((words, markdown_table(list(HEADER), rows)))
    return tables


def length_tables(summary: RunSummary) -> list[tuple[str, str]]:
    """The same by prompt length; [] where all prompts are of one part."""
    best, tables = summary.best_candidate, list[tuple[str, str]]()
    for level in summary.levels if best is not None else ():
        own = best.metrics(level).get("by_length") or {} if best is not None else {}
        base = summary.no_speculation
        below = (base.metrics(level).get("by_length") or {}) if base is not None else {}
        if len(own) < 2 or best is None:
            continue
        rows = [
            [
                escaped(name),
                str(told.get("requests", MISSING)),
                number(told.get("accept_length"), 2),
                percent(told.get("accept_rate")),
                percent(told.get("accept_rate_first")),
                number(told.get("decode_tok_s")),
                number(below.get(name, {}).get("decode_tok_s")),
                number(told.get("ttft_ms_p50")),
                number(below.get(name, {}).get("ttft_ms_p50")),
            ]
            for name, told in sorted(own.items(), key=lambda pair: int(pair[0].split("-")[0]))
        ]
        where = f" {at(level)}" if len(summary.levels) > 1 else ""
        words = f"By prompt tokens{where}, of {code(best.label)}:"
        tables.append((words, markdown_table(list(OF_A_LENGTH), rows)))
    return tables


def _row(found: KindFound, best: TrialRecord) -> list[str]:
    told = found.figures
    fastest = "this one"
    if found.fastest.role == "baseline":
        fastest = NO_SPECULATION
    elif found.fastest is not best:
        point = found.fastest.at
        fastest = code(point.label()) if point else MISSING
        if found.fastest_speedup is not None:
            fastest += f" ({_ratio(found.fastest_speedup)})"
    return [
        escaped(found.kind),
        str(told.get("requests", MISSING)),
        number(told.get("accept_length"), 2),
        percent(told.get("accept_rate")),
        percent(told.get("accept_rate_first")),
        number(told.get("decode_tok_s")),
        number(found.below.get("decode_tok_s")),
        MISSING if found.speedup is None else _ratio(found.speedup),
        fastest,
    ]


def _ratio(ratio: Interval) -> str:
    spread = "" if ratio.low is None else f", {ratio.low:.2f} to {ratio.high:.2f}"
    return f"{ratio.value:.3f}{spread}"
