"""Landscapes: what each point of a space would give, without launching anything.

A landscape is a YAML file, see benchmarks/README.md: parameters of the simulated engine's
performance model with rules on top, or a table of measured results (a run's trials.jsonl). It is
asked two things: what is true of a point, and what one launch would measure of it.
"""

import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, product
from operator import mul
from pathlib import Path
from typing import Any

import yaml

from tuner.analysis.winner import complexity, is_tied
from tuner.config.dimensions import MAX_AUTO_TOKENS, auto_tokens, tree_bound
from tuner.config.point import Point
from tuner.config.schema import ObjectiveSpec
from tuner.config.space import Space
from tuner.core.errors import UserError
from tuner.runs.records import TrialRecord, read_record
from tuner.search.objective import objective
from tuner.search.observation import LevelFigures, Observation
from tuner.simulator.acceptance import expected_length
from tuner.simulator.performance import Performance, SimulatedMachine, Speculation
from tuner.simulator.presets import load_preset

FOLDER = Path(__file__).parent / "landscapes"
KEYS = {
    "description", "misleading", "preset", "overrides", "table", "space", "rules", "noise",
    "workload", "algorithm", "step_switch",
}  # fmt: skip
SPACE_KEYS = {"num_steps", "eagle_topk", "num_draft_tokens", "draft_tp", "env", "flags"}
RULE_KEYS = {"when", "outcome", "cycle", "accept"}
PROMPT_TOKENS = 256
TEXT_NOISE = 0.003
"""Relative standard deviation of what a launch accepts beyond the bonus: with greedy decoding all
launches decode the same texts, so that little is left to luck."""


@dataclass(frozen=True)
class Load:
    """What is sent to each server."""

    concurrency: tuple[int, ...] = (1,)
    requests: int = 16
    output_tokens: int = 256
    repeats: int = 3
    kind: str = "chat"


@dataclass(frozen=True)
class Level:
    """What is true of a point at one concurrency."""

    cycle_ms: float
    chances: tuple[float, ...]
    """Of each position, given those before it; () without speculation."""
    tok_s: float
    """All streams together, prefill included."""


@dataclass(frozen=True)
class Truth:
    """What is true of a point: a failure label, or its levels."""

    failure: str | None
    levels: Mapping[int, Level] = field(default_factory=dict)
    value: float = 0.0
    """The objective: ratio to the baseline, 0 of what cannot run."""
    hours: float = 0.0
    """Launching and measuring it, in model time."""
    measuring: float = 0.0
    """What of `hours` is measuring."""


@dataclass(frozen=True)
class Row:
    """A line of a table."""

    found: Mapping[int, Level] | str
    """By concurrency, or the failure's label."""
    launch_hours: float
    """Of the launch that measured it, whatever else that measured."""
    record: TrialRecord


@dataclass(frozen=True)
class Rule:
    """What holds of the points that fit `when`, on top of the performance model."""

    when: Mapping[str, Any]
    outcome: str | None = None
    cycle: float = 1.0
    accept: float = 1.0

    def fits(self, point: Point) -> bool:
        """All of `when` holds; a speculation's rule never holds of the baseline."""
        return all(_holds(want, _value(point, name)) for name, want in self.when.items())


class Landscape:
    """One file. `points` are the space's; any other point can be asked for as well."""

    def __init__(self, path: Path) -> None:
        """Raises UserError where the file is none."""
        self.name = path.stem
        self._path = path
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        self._require(data, KEYS, "")
        self.description = str(data.get("description", ""))
        self.misleading = bool(data.get("misleading", False))
        self.noise = float(data.get("noise", 0.005))
        self._algorithm = str(data.get("algorithm", "EAGLE3"))
        self._step_switch = bool(data.get("step_switch", False))
        work = dict(data.get("workload", {}))
        work["concurrency"] = tuple(work.get("concurrency", [1]))
        self.load = Load(**work)
        self._rules = tuple(self._rule(each) for each in data.get("rules", ()))
        self._truths: dict[Point | None, Truth] = {}
        if "table" in data:
            self._table = _read_table(path.parent / data["table"], self.load.concurrency)
            self.space = _space_of_points([p for p in self._table if p is not None])
            return
        self._table = {}
        self._machine: SimulatedMachine = load_preset(str(data["preset"]), data.get("overrides"))
        self._require(data["space"], SPACE_KEYS, "space.")
        self.space = _space(data["space"], self._machine.tp)

    def _require(self, data: Mapping[str, Any], known: set[str], prefix: str) -> None:
        for key in data:
            if key not in known:
                words = f"there is no key '{prefix}{key}', there are {', '.join(sorted(known))}"
                raise UserError(words, self._path)

    def _rule(self, data: Mapping[str, Any]) -> Rule:
        self._require(data, RULE_KEYS, "rules.")
        return Rule(**data)

    @property
    def points(self) -> tuple[Point, ...]:
        return self.space.points

    @cached_property
    def best(self) -> float:
        """The highest true objective; 1 where no speculation is the best."""
        return max(1.0, *(self.truth(point).value for point in self.points))

    def truth(self, point: Point | None) -> Truth:
        """What is true of a point; None: the baseline."""
        if point not in self._truths:
            self._truths[point] = self._table_truth(point) if self._table else self._model(point)
        return self._truths[point]

    def has(self, point: Point) -> bool:
        """False for a point that a table does not have."""
        return not self._table or point in self._table

    def together(self, point: Point) -> tuple[Point, ...]:
        """What one launch measures: the point first, then the other chain lengths, if any."""
        if not self._step_switch or point.eagle_topk != 1:
            return (point,)
        alike = (each for each in self.points if each.family == point.family)
        return (point, *(each for each in alike if each.eagle_topk == 1 and each != point))

    def is_simpler_equal(self, point: Point, of: Point) -> bool:
        """Whether a run answers with `point` though the search takes `of` for the fastest: the two
        are tied by the table's intervals (`tuner.analysis.winner`). A model has none."""
        row, other = self._table.get(point), self._table.get(of)
        if row is None or other is None or complexity(point) > complexity(of):
            return False
        return is_tied(other.record, row.record, ObjectiveSpec())

    @property
    def has_model(self) -> bool:
        """False of a table, which knows its points alone."""
        return not self._table

    @property
    def tp(self) -> int:
        return self._machine.tp

    def is_off_nccl(self, point: Point) -> bool:
        """SGLang's own kernels carry the point's all-reduces."""
        own_off = bool(dict(point.flags).get("disable-custom-all-reduce"))
        played = Performance(self._machine, self.tp, disable_custom_all_reduce=own_off)
        return played.has_custom_all_reduce

    def all_reduce_ms(self, env: Mapping[str, str], tokens: int) -> float | str:
        """What NCCL takes of one verify pass under these variables, or the failure's label.

        A rule on variables and tokens is about all-reduces, so what it adds to a cycle is theirs.
        """
        spec = Speculation(self._algorithm, tokens - 1, 1, tokens, 1)
        at = Point(None, None, tokens, None, tuple(sorted(env.items())))
        of_comm = [rule for rule in self._rules if {*rule.when} <= {*env, "num_draft_tokens"}
                   and {*rule.when} != {"num_draft_tokens"} and rule.fits(at)]  # fmt: skip
        if (failed := next((r.outcome for r in of_comm if r.outcome), None)) is not None:
            return failed
        played = Performance(self._machine, self.tp, spec, env, disable_custom_all_reduce=True)
        cycle = played.cycle(1)
        added = (math.prod(rule.cycle for rule in of_comm) - 1) * cycle.total_ms
        return max(0.05 * cycle.all_reduce_ms, cycle.all_reduce_ms + added)

    def measure(self, point: Point | None, seed: int) -> Observation:
        """What one launch shows: the truth with the luck of this seed and point."""
        truth = self.truth(point)
        if truth.failure is not None:
            return Observation("infeasible", reason=truth.failure)
        base = self._shown(None, seed)
        shown = base if point is None else self._shown(point, seed)
        ratios = {level: shown[level][1] / base[level][1] for level in shown}
        return Observation(
            "ok",
            1.0 if point is None else objective(ratios, ObjectiveSpec()),
            levels={level: figures for level, (figures, _) in shown.items()},
            spread=self.noise * math.sqrt(2),
        )

    def throughput(self, point: Point | None, seed: int, number: int = 0) -> dict[int, float]:
        """Tokens a second that one of a point's launches shows, by level: `measure` tells of the
        first one, 0."""
        return {level: speed for level, (_, speed) in self._shown(point, seed, number).items()}

    def line(self, point: Point | None) -> TrialRecord | None:
        """A table's line of a point; None where it has none."""
        row = self._table.get(point)
        return None if row is None else row.record

    def _shown(
        self, point: Point | None, seed: int, number: int = 0
    ) -> dict[int, tuple[LevelFigures, float]]:
        """Figures and throughput of one launch, by level."""
        again = f":{number}" if number else ""
        draw = random.Random(f"{self.name}:{seed}:{point.key if point else ''}{again}")
        luck = math.exp(draw.gauss(0, self.noise))
        found = {}
        for level, true in self.truth(point).levels.items():
            own = luck * math.exp(draw.gauss(0, self.noise / 3))
            text = draw.gauss(0, TEXT_NOISE)
            length = expected_length(true.chances)
            reached = [x * math.exp(text) for x in accumulate(true.chances, mul)]
            seen = 1 + sum(reached)
            chain = point is not None and point.eagle_topk == 1
            figures = LevelFigures(
                true.cycle_ms * own,
                None if point is None else seen,
                tuple(min(1.0, each) for each in reached) if chain else (),
            )
            found[level] = figures, true.tok_s * seen / length / own
        return found

    def _model(self, point: Point | None) -> Truth:
        fitting = [rule for rule in self._rules if point is not None and rule.fits(point)]
        speculation = None
        if point is not None:
            speculation = self._speculation(point)
            if speculation.draft_tokens > speculation.most_draft_tokens:
                return Truth("GRAPH_CAPTURE", hours=self._launch_hours(False))
        for rule in fitting:
            if rule.outcome is not None:
                return Truth(rule.outcome, hours=self._launch_hours(point is None))
        env, flags = (dict(point.env), dict(point.flags)) if point else ({}, {})
        machine = self._machine
        own_off = bool(flags.get("disable-custom-all-reduce"))
        served = Performance(
            machine, machine.tp, speculation, env, disable_custom_all_reduce=own_off
        )
        levels = {}
        for level in self.load.concurrency:
            cycle = served.cycle(level).total_ms * math.prod(r.cycle for r in fitting)
            accept = math.prod(r.accept for r in fitting)
            chances = tuple(min(0.99, c * accept) for c in served.conditional(self.load.kind))
            length = expected_length(chances)
            out = self.load.output_tokens
            wall = served.prefill_ms(PROMPT_TOKENS) + out / length * cycle
            levels[level] = Level(cycle, chances, 1000 * level * out / wall)
        measuring = self._measure_hours(levels)
        hours = self._launch_hours(point is None) + measuring
        return Truth(None, levels, self._value(point, levels), hours, measuring)

    def _value(self, point: Point | None, levels: Mapping[int, Level]) -> float:
        if point is None:
            return 1.0
        base = self.truth(None).levels
        return objective({n: levels[n].tok_s / base[n].tok_s for n in levels}, ObjectiveSpec())

    def _speculation(self, point: Point) -> Speculation:
        tp = self._machine.tp
        steps, topk = point.num_steps or 1, point.eagle_topk or 1
        tokens = point.num_draft_tokens or steps + 1
        draft_tp = tp if point.draft_tp in (None, "target") else int(point.draft_tp)
        return Speculation(self._algorithm, steps, topk, tokens, draft_tp)

    def _launch_hours(self, plain: bool) -> float:
        t = self._machine.startup
        seconds = t.init_s + t.load_weight_s + t.kv_cache_s + t.warmup_s
        if plain:
            return (seconds + t.capture_decode_s) / 3600
        drafts = t.load_draft_s + t.capture_draft_s + t.capture_extend_s
        return (seconds + t.capture_verify_s + drafts) / 3600

    def _measure_hours(self, levels: Mapping[int, Level]) -> float:
        load = self.load
        return sum(
            load.repeats * max(load.requests, n) * load.output_tokens / each.tok_s
            for n, each in levels.items()
        ) / 3600  # fmt: skip

    def _table_truth(self, point: Point | None) -> Truth:
        row = self._table.get(point)
        if row is None:
            return Truth("NOT_MEASURED")
        if isinstance(row.found, str):
            return Truth(row.found, hours=row.launch_hours)
        measuring = self._measure_hours(row.found)
        value = self._value(point, row.found)
        return Truth(None, row.found, value, row.launch_hours + measuring, measuring)


def all_landscapes(folder: Path = FOLDER) -> list[Landscape]:
    """Every landscape of a folder, by name."""
    return [Landscape(path) for path in sorted(folder.glob("*.yaml"))]


def _space(spec: Mapping[str, Any], tp: int) -> Space:
    """`num_draft_tokens: bound` is every power of two from steps + 1 up to the tree's bound."""
    steps, topk = tuple(spec["num_steps"]), tuple(spec.get("eagle_topk", [1]))
    sizes = spec.get("num_draft_tokens", "auto")
    dimensions: dict[str, tuple[Any, ...]] = {"num_steps": steps, "eagle_topk": topk}
    if max(topk) > 1:
        powers = [2**n for n in range(1, MAX_AUTO_TOKENS.bit_length())]
        dimensions["num_draft_tokens"] = tuple(powers if isinstance(sizes, str) else sizes)
    dimensions["draft_tp"] = tuple(spec.get("draft_tp", ["target"]))
    for kind in ("env", "flags"):
        for name, values in spec.get(kind, {}).items():
            words = [str(v) if kind == "env" else v for v in values]
            dimensions[f"{kind}.{name}"] = tuple(words)
    whole = Space(dimensions, (), {}, {}, False, tp)
    points: dict[Point, None] = {}
    left_out: dict[Point, str] = {}
    for values in product(*dimensions.values()):
        point = whole.at(dict(zip(dimensions, values, strict=True)))
        if isinstance(point, str):
            continue
        if _is_wanted(point, sizes):
            points[point] = None
        else:
            left_out[point] = "no size of this landscape"
    return Space(dimensions, tuple(points), {}, {}, False, tp, left_out)


def _is_wanted(point: Point, sizes: Any) -> bool:
    steps, topk, tokens = point.num_steps or 0, point.eagle_topk or 1, point.num_draft_tokens or 0
    if topk == 1:
        return True
    if sizes == "auto":
        return tokens in auto_tokens(steps, topk)
    return steps + 1 <= tokens <= tree_bound(steps, topk)


def _space_of_points(points: list[Point]) -> Space:
    """The smallest space that has a table's points; the rest of it is left out."""
    names = {f"env.{n}" for p in points for n, _ in p.env}
    flags = {f"flags.{n}" for p in points for n, _ in p.flags}
    dimensions: dict[str, tuple[Any, ...]] = {
        name: tuple(sorted({getattr(p, name) for p in points}, key=repr))
        for name in ("num_steps", "eagle_topk", "num_draft_tokens", "draft_tp")
    }
    for name in sorted(names | flags):
        kind, _, key = name.partition(".")
        nothing: Any = "unset" if kind == "env" else False
        found = {dict(getattr(p, kind)).get(key, nothing) for p in points}
        dimensions[name] = tuple(sorted(found, key=repr))
    whole = Space(dimensions, tuple(points), {}, {}, False, 0)
    left_out = {}
    for values in product(*dimensions.values()):
        point = whole.at(dict(zip(dimensions, values, strict=True)))
        if isinstance(point, Point) and point not in points:
            left_out[point] = "the table does not have it"
    return Space(dimensions, tuple(points), {}, {}, False, 0, left_out)


def _read_table(path: Path, levels: tuple[int, ...]) -> dict[Point | None, Row]:
    """A ledger as a table: what was measured is taken as true."""
    table: dict[Point | None, Row] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        record = json.loads(line)
        point = Point.from_json(record["point"]) if record["point"] else None
        if record["role"] in ("confirm", "plain") or (point is None and None in table):
            continue
        launch = (record["launch_s"] or 0.0) / 3600
        measured = read_record(line, f"{path}:{number}")
        if record["outcome"] != "ok":
            table[point] = Row(str(record["failure"]), launch, measured)
            continue
        found = {level: _level(record["metrics"][str(level)]) for level in levels}
        table[point] = Row(found, launch, measured)
    return table


def _level(metrics: Mapping[str, Any]) -> Level:
    reached = metrics.get("accept_rate_by_position") or []
    chances = [b / a if a else 0.0 for a, b in zip([1.0, *reached], reached, strict=False)]
    if not chances and metrics.get("accept_length") is not None:
        chances = list(_as_chances(metrics["accept_length"]))
    return Level(metrics["cycle_ms"], tuple(chances), metrics["output_tok_s"])


def _as_chances(length: float) -> Iterator[float]:
    """Chances that give an accept length, where the table has no positions."""
    left = length - 1
    while left > 0:
        yield min(1.0, left)
        left -= 1


def _value(point: Point, name: str) -> Any:
    if name in ("num_steps", "eagle_topk", "num_draft_tokens", "draft_tp"):
        return getattr(point, name)
    return {**dict(point.env), **dict(point.flags)}.get(name, "unset")


def _holds(want: Any, value: Any) -> bool:
    """A value, a list of them, or `{at_least: x, at_most: y}`."""
    if isinstance(want, Mapping):
        return bool(
            value is not None
            and value >= want.get("at_least", -math.inf)
            and value <= want.get("at_most", math.inf)
        )
    if isinstance(want, list):
        return any(_holds(each, value) for each in want)
    return str(value) == str(want) if isinstance(value, str) else bool(value == want)
