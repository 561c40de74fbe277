"""What a run would answer after a search on a landscape, by the functions that a run answers by.

A landscape has no servers, so a ledger's lines and their windows are made up of what it says: each
launch has its luck, each of its windows some of its own, each prompt is accepted as in every other
window of the launch. The baseline is launched before the candidates and after them, as
`baseline.launches: 2` does; then the winner once more. Intervals come from these windows
(`tuner.measure`), what is launched once more from `tuner.analysis.winner`, the answer from
`tuner.analysis.winner`.
Of a table the lines are the table's, with their own intervals, and a second launch is the first.

Not played: racing, prompts that are held out, the winner's settings without speculation.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.landscape import TEXT_NOISE, Landscape
from tuner.analysis.baselines import speedup_figures
from tuner.analysis.equivalence import Ratio, by_lines
from tuner.analysis.winner import (
    MAX_CONFIRMED,
    Recommended,
    find_answer,
    next_confirmation,
    pooled_figures,
)
from tuner.config.load_level import Level
from tuner.config.point import Point
from tuner.config.schema import ObjectiveSpec
from tuner.metrics.drift import Baselines, Launched
from tuner.metrics.samples import RequestSample, Window
from tuner.metrics.statistics import Interval
from tuner.runs.ledger import Ledger
from tuner.runs.records import DecisionLine, Role, TrialRecord
from tuner.search.decision import Decision

METRIC = "output_tok_s"


@dataclass(frozen=True)
class Server:
    """One launch of a point; None: of the baseline."""

    point: Point | None
    number: int
    """Of this point's launches."""
    at: float
    """When it began: the number of launches before it."""


@dataclass
class Answering:
    """A run on one landscape, with the luck of one seed."""

    landscape: Landscape
    seed: int
    spec: ObjectiveSpec = field(default_factory=ObjectiveSpec)
    _servers: list[Server] = field(default_factory=list)
    """By trial."""
    _shown: dict[tuple[Server, int], tuple[Window, ...]] = field(default_factory=dict)

    def answer(
        self, launches: Sequence[Sequence[Point]], recommended: Recommended | None, *, confirm: bool
    ) -> Point | None:
        """What to run after these launches, points that were measured together in one; None: no
        speculation. `recommended`: by the search, with its decision; `confirm`: the stage is on."""
        base = self._at(None, 0, 0.0)
        lines: list[tuple[Role, Server, Decision | None]] = [("baseline", base, None)]
        for at, points in enumerate(launches, 1):
            lines += [("candidate", self._at(point, 0, float(at)), None) for point in points]
        end = len(launches) + 1
        lines.append(("baseline", self._at(None, 1, float(end)), None))
        ledger, ratio = self._settled(lines)
        while confirm and end < len(launches) + 1 + MAX_CONFIRMED:
            confirmed = {each.point for role, each, _ in lines if role == "confirm"}
            found = next_confirmation(ledger, self.spec, ratio, recommended)
            if found is None or found[0].at in confirmed:
                break
            end += 1
            lines.append(("confirm", self._at(found[0].at, 1, float(end)), found[1]))
            ledger, ratio = self._settled(lines)
        pooled = pooled_figures(ledger, recommended if confirm else None)
        best, _ = find_answer(ledger, self.spec, ratio, pooled)
        return None if best is None else best.at

    def _at(self, point: Point | None, number: int, at: float) -> Server:
        return Server(point, number if self.landscape.has_model else 0, at)

    def _settled(
        self, lines: Sequence[tuple[Role, Server, Decision | None]]
    ) -> tuple[Ledger, Ratio]:
        """The ledger over all launches of the baseline (`tuner.analysis.baselines`), and how
        its candidates compare."""
        if not self.landscape.has_model:
            kept = (
                record.model_copy(update={"trial": trial, "role": role, "decision": _line(why)})
                for trial, (role, each, why) in enumerate(lines)
                if (record := self.landscape.line(each.point)) is not None
            )
            return Ledger(tuple(kept)), by_lines
        bases = [each for role, each, _ in lines if role == "baseline"]
        levels: dict[Level, Baselines] = {
            level: Baselines(tuple(self._launched(each, level) for each in bases), METRIC)
            for level in self.landscape.load.concurrency
        }
        servers = [each for _, each, _ in lines]
        records = tuple(
            self._record(trial, role, each, why, levels)
            for trial, (role, each, why) in enumerate(lines)
        )

        def ratio(one: TrialRecord, other: TrialRecord, level: Level) -> Interval | None:
            first, second = (self._launched(servers[e.trial], int(level)) for e in (one, other))
            return levels[level].ratio(first, second)

        return Ledger(records), ratio

    def _record(
        self,
        trial: int,
        role: Role,
        server: Server,
        why: Decision | None,
        levels: Mapping[Level, Baselines],
    ) -> TrialRecord:
        """Intervals of speed-ups are left out: `ratio` has windows for all that are compared."""
        failure = self.landscape.truth(server.point).failure
        metrics: dict[str, dict[str, float | None]] = {}
        if failure is None and role != "baseline":
            shown = self.landscape.throughput(server.point, self.seed, server.number)
            for level, known in levels.items():
                weighed = zip(known.weights(server.at), known.figures, strict=True)
                plain = math.fsum(weight * math.log(each) for weight, each in weighed)
                value = shown[int(level)] / math.exp(plain)
                metrics[str(level)] = speedup_figures(Interval(value, None, None))
        return TrialRecord(
            trial=trial,
            role=role,
            point=None if server.point is None else server.point.to_json(),
            outcome="ok" if failure is None else "infeasible",
            failure=failure,
            engine="simulated",
            engine_version=None,
            launch_id=int(server.at),
            launch_s=None,
            started="2026-01-01T00:00:00Z",
            metrics=metrics,
            samples=None,
            decision=_line(why),
        )

    def _launched(self, server: Server, level: int) -> Launched:
        key = server, level
        if key not in self._shown:
            self._shown[key] = self.windows(server.point, server.number, level)
        return Launched(server.at, self._shown[key])

    def windows(self, point: Point | None, number: int, level: int) -> tuple[Window, ...]:
        """Windows whose pooled figure is what the launch shows. Their luck is what the landscape
        gives a level of a launch, that of prompts what it gives the launch's texts."""
        landscape, load = self.landscape, self.landscape.load
        key = "" if point is None else point.key
        draw = random.Random(f"{landscape.name}:{self.seed}:{key}:{number}:{level}:windows")
        prompts, tokens = max(load.requests, level), load.output_tokens
        speed = landscape.throughput(point, self.seed, number)[level]
        waves = _centred(draw, landscape.noise / 3 * math.sqrt(load.repeats), load.repeats)
        spread = 0.0 if point is None else TEXT_NOISE * math.sqrt(prompts)
        texts = _centred(draw, spread, prompts)
        return tuple(
            Window(
                level,
                prompts * tokens / speed * (1 + wave),
                0.0,
                tuple(
                    _sample(str(prompt), tokens, level * tokens / speed * (1 + wave) * (1 + text))
                    for prompt, text in enumerate(texts)
                ),
            )
            for wave in waves
        )


def _centred(draw: random.Random, deviation: float, count: int) -> list[float]:
    found = [draw.gauss(0, deviation) for _ in range(count)]
    mean = math.fsum(found) / count
    return [each - mean for each in found]


def _sample(prompt: str, tokens: int, seconds: float) -> RequestSample:
    return RequestSample(
        prompt_id=prompt,
        kind="",
        sent=0.0,
        chunk_times=(seconds,),
        chunk_tokens=(tokens,),
        ended=seconds,
        finish_reason="length",
        error=None,
        timed_out=False,
        prompt_tokens=None,
        engine_tokens=None,
        requested_tokens=tokens,
        spec=None,
    )


def _line(why: Decision | None) -> DecisionLine | None:
    return None if why is None else DecisionLine.model_validate(why.to_json())
