"""The answer for each concurrency: what is fastest there, and SGLang's file that has it."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tuner.analysis.summary import NO_SPECULATION, RunSummary, TrialResult
from tuner.analysis.winner import broken_at, is_refuted
from tuner.config.load_level import Level, Rate, at, axis, listed
from tuner.config.point import Point
from tuner.core.errors import UserError
from tuner.core.files import write_text
from tuner.core.formatting import MISSING, ratio
from tuner.core.markdown import block, code, markdown_table
from tuner.engines import make_engine
from tuner.metrics.catalogue import metric_heading
from tuner.report.answer import throughput
from tuner.search.objective import objective
from tuner.server.base import AdaptiveSpeculation, Command
from tuner.server.launch_script import launch_script


def levels_table(summary: RunSummary) -> str | None:
    """The fastest configuration at each concurrency; None where there is only one to tell of."""
    found = summary.by_level
    if len(found) < 2:
        return None
    rows = []
    for level, best in found.items():
        shown = TrialResult(best.record, None)
        same = [
            _name(TrialResult(each, None))
            + (" (breaks a limit)" if broken_at(summary.ledger, each, level) else "")
            for each in best.alike
        ]
        cells = [str(level), _name(shown), ", ".join(same) or MISSING]
        gain = "1" if best.record.role == "baseline" else ratio(best.speedup)
        rows.append([*cells, throughput(shown, level, summary.metric), gain])
    speed = metric_heading(summary.metric)
    header = [axis([*found]), "fastest there", "not told apart from it", speed, "speed-up"]
    table = markdown_table(header, rows, 3)
    return table + (_front(summary) if summary.sweep.search.sampler == "nsga2" else "")


def _front(summary: RunSummary) -> str:
    """The configurations that no other one equals or beats at every concurrency."""
    gains = {
        _name(each): [each.speedups[level].value for level in summary.by_level]
        for each in _standing(summary)
        if all(level in each.speedups for level in summary.by_level)
    }
    left = [
        f"{name} ({', '.join(f'{gain:.2f}' for gain in own)})"
        for name, own in gains.items()
        if not any(
            rival != own and all(a >= b for a, b in zip(rival, own, strict=True))
            for rival in gains.values()
        )
    ]
    where = axis([*summary.by_level])
    return f"\n\nNot beaten at every {where} by another one: {'; '.join(left)}." if left else ""


def _standing(summary: RunSummary) -> list[TrialResult]:
    """The candidates that may be recommended, the best first."""
    spec = summary.sweep.search.objective
    return [e for e in summary.ranked if not is_refuted(summary.ledger, e.record, spec)]


def _name(shown: TrialResult) -> str:
    return NO_SPECULATION if shown.point is None else code(shown.label)


@dataclass(frozen=True)
class Chains:
    """The measured chains that differ in their steps alone."""

    family: Point
    """Their point without steps and tokens."""
    measured: tuple[TrialResult, ...]

    def fastest(self, level: Level) -> TrialResult | None:
        """None where none was compared at this concurrency."""
        known = [each for each in self.measured if level in each.speedups]
        return max(known, key=lambda each: each.speedups[level].value, default=None)


@dataclass(frozen=True)
class Adaptive:
    """What adaptive.json says."""

    support: AdaptiveSpeculation
    content: Mapping[str, Any]
    steps: Mapping[int, int]
    """Chain length by concurrency."""
    longest: TrialResult
    """The trial of the longest chain in the file: such a server is launched with it."""
    unsaid: tuple[int, ...]
    """Levels where no speculation is faster and the release takes no 0."""


def adaptive(summary: RunSummary) -> Adaptive | str:
    """The file that one server would have, or why there is none.

    From the chains of one group of equal settings: the one that is best over all levels, each
    level with its own best length.
    """
    support = _adaptive_support(summary)
    if isinstance(support, str):
        return support
    groups = _groups(_standing(summary))
    if not groups:
        tried = any(each.point and each.point.eagle_topk == 1 for each in summary.ranked)
        return f"no chain (eagle_topk 1) {'stands' if tried else 'was measured'}"
    sweep = summary.sweep
    levels = [level for level in summary.by_level if not isinstance(level, Rate)]
    if not levels:
        return "batches have no one size at a request rate, measure at concurrencies for it"
    refusal: str | None = None
    found: list[tuple[float, Adaptive]] = []
    for group in groups:
        point = group.measured[0].point
        assert point is not None
        plain = _plain_gains(summary, group)
        made = support.refusal(point) or _of(group, levels, support, plain)
        if isinstance(made, str):
            refusal = refusal or made
            continue
        gains: dict[Level, float] = {
            level: _gain(group, level) if steps else plain.get(level, 1.0)
            for level, steps in made.steps.items()
        }
        found.append((objective(gains, sweep.search.objective), made))
    if not found:
        assert refusal is not None
        return refusal
    return max(found, key=lambda pair: pair[0])[1]


def _plain_gains(summary: RunSummary, group: Chains) -> Mapping[Level, float]:
    """Speed-ups of no speculation under the group's settings, where those were measured."""
    plain, its = summary.settings_only, group.family.settings
    if plain is None or its is None or plain.point != its or plain.record.is_disqualified:
        return {}
    return {level: each.value for level, each in plain.speedups.items()}


def _adaptive_support(summary: RunSummary) -> AdaptiveSpeculation | str:
    """Return the adaptive speculation of the measured release, or why it has none."""
    if summary.release is None:
        return "no server said which SGLang it is"
    try:
        return make_engine(summary.sweep, summary.release).adaptive_config(summary.sweep)
    except UserError as error:
        return error.message


def _groups(measured: Iterable[TrialResult]) -> list[Chains]:
    """Groups of chains, the one with the best candidate first."""
    groups: dict[Point, list[TrialResult]] = {}
    for each in measured:
        point = each.point
        if each.value is not None and point is not None and point.eagle_topk == 1:
            groups.setdefault(point.family, []).append(each)
    return [Chains(family, tuple(members)) for family, members in groups.items()]


def _of(
    group: Chains, levels: list[int], support: AdaptiveSpeculation, plain: Mapping[Level, float]
) -> Adaptive | str:
    """`plain`: speed-ups by concurrency of the group's settings without speculation."""
    steps: dict[int, int] = {}
    unsaid = []
    for level in levels:
        best = group.fastest(level)
        if best is None or best.point is None or best.point.num_steps is None:
            return f"no chain was measured {at(level)}"
        loses = best.speedups[level].value <= plain.get(level, 1.0)
        if loses and not support.takes_zero:
            unsaid.append(level)
        steps[level] = 0 if loses and support.takes_zero else best.point.num_steps
    content = support.content(steps)
    if isinstance(content, str):
        return content
    longest = max(steps.values())
    [launched] = [each for each in group.measured if each.point and each.point.num_steps == longest]
    return Adaptive(support, content, steps, launched, tuple(unsaid))


def _gain(group: Chains, level: Level) -> float:
    best = group.fastest(level)
    assert best is not None
    return best.speedups[level].value


def write_adaptive(summary: RunSummary) -> list[str]:
    """Write adaptive.json, or remove an earlier one. Returns what the report says of it."""
    if not summary.by_level:
        summary.run.adaptive_json.unlink(missing_ok=True)
        return []
    made = adaptive(summary)
    if isinstance(made, str):
        summary.run.adaptive_json.unlink(missing_ok=True)
        return [f"There is no `adaptive.json` (chain lengths by batch size): {made}."]
    text = json.dumps(made.content, indent=2)
    write_text(summary.run.adaptive_json, text + "\n")
    return [_told(made, summary), *_launch(made, summary)]


def _told(made: Adaptive, summary: RunSummary) -> str:
    release = made.support.release
    if len(set(made.steps.values())) == 1:
        words = "one length for all batch sizes, which `--speculative-num-steps` alone says as well"
    elif made.support.has_one_list:
        words = (
            f"{release} has one list for all batch sizes and chooses from it by acceptance, so a "
            "length need not be used where it was the best"
        )
    else:
        sizes = ", ".join(map(str, sorted(made.steps)))
        words = "; ".join(_slots(made.steps))
        words += f". Measured were batch sizes {sizes}; what lies between and beyond is assumed"
    told = f"`adaptive.json` has this for one server, in the form of {release}: {words}."
    told += _unsure(made, summary)
    if 0 in made.steps.values():
        told += " With 0 steps nothing is drafted, but the draft still follows each token."
    if made.unsaid:
        levels = ", ".join(map(str, made.unsaid))
        told += f" At concurrency {levels} no speculation is faster, but {release} takes no 0."
    return told + " A server that switches by itself was not measured."


def _unsure(made: Adaptive, summary: RunSummary) -> str:
    """At which sizes something else may as well be the fastest."""
    open_at = {
        level: best.alike
        for level, best in summary.by_level.items()
        if level in made.steps and best.alike
    }
    if not open_at or len(set(made.steps.values())) == 1:
        return ""
    plain = [n for n, each in open_at.items() if any(r.role == "baseline" for r in each)]
    plain = [n for n in plain if not isinstance(n, Rate) and made.steps[n]]
    words = f" At {listed([*open_at])} the fastest is not told apart from others (the table above)"
    return f"{words}, at {listed(plain)} not from no speculation either." if plain else f"{words}."


def _launch(made: Adaptive, summary: RunSummary) -> Iterator[str]:
    """The launch of such a server: the longest chain's with the file. None of a simulated run."""
    recorded = made.longest.record.command
    if recorded is None or summary.simulated or len(set(made.steps.values())) == 1:
        return
    command = Command.from_json(recorded)
    words = (*command.argv, *made.support.flags, str(summary.run.adaptive_json))
    script = launch_script(replace(command, argv=words)).partition("\nset -eu\n")[2]
    yield "Such a server is launched by:"
    yield block(script, "bash")


def _below(steps: Mapping[int, int], size: int) -> int | None:
    """The length of the next lower size; None of the lowest."""
    return next((steps[each] for each in sorted(steps, reverse=True) if each < size), None)


def _slots(steps: Mapping[int, int]) -> Iterator[str]:
    sizes = [size for size in sorted(steps) if steps[size] != _below(steps, size)]
    for index, size in enumerate(sizes):
        first = size if index else 1
        last = sizes[index + 1] - 1 if index + 1 < len(sizes) else None
        if last is None:
            where = f"from batch size {first} on"
        else:
            where = f"at batch size {first}" + (f" to {last}" if last > first else "")
        yield f"{steps[size]} step{'s' * (steps[size] != 1)} {where}"
