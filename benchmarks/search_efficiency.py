"""How many launches each way of searching needs, over all landscapes, without launching anything.

    python -m benchmarks.search_efficiency --quick --json
    python -m benchmarks.search_efficiency --landscape kimi --method specbench --seeds 20
    python -m benchmarks.search_efficiency --folder MY_LANDSCAPES

A launch is any server start, the baseline's included, until the incumbent's true value is within
1 % of the best; with `step_switch` one launch measures all chain lengths of its settings, except
bench_speculative.py's. Confirmations and comm minutes count in hours only. The cap is 200 launches,
a miss counts 200. Success is the share of final recommendations within 1 % of the best. The answer
is what a run would give after these launches (`benchmarks/answering.py`), and its loss how far that
is below the best; SGLang's bench_speculative.py gives none. Every method begins with
the baseline and never launches a point twice, except bench_speculative.py, which does.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean, median

from benchmarks.answering import Answering
from benchmarks.comm import Stage, comm_stage
from benchmarks.landscape import FOLDER, Landscape
from tuner.analysis.winner import Recommended
from tuner.config.point import Point
from tuner.config.schema import SearchSpec
from tuner.search.observation import Observation
from tuner.search.optuna_study import Study
from tuner.search.samplers import missing_library

CAP = 200
WITHIN = 1.01
METHODS = ("specbench", "tpe", "gp", "random", "grid", "bench_speculative")
SEEDS = 20
QUICK_SEEDS = {"tpe": 3, "gp": 1}
"""Of the slow methods under --quick; TARGET has more."""
TARGET, TARGET_SEEDS = "kimi", 10
SB_STEPS, SB_TOPK, SB_TOKENS = (0, 1, 3, 5, 7), (0, 1, 2, 4, 8), (0, 2, 4, 8, 16, 32)
"""The lists and their order in SGLang's scripts/playground/bench_speculative.py."""


@dataclass(frozen=True)
class Search:
    """One search on one landscape with one seed."""

    launches: int
    hours: float
    """Until the incumbent was within 1 %, or until the end."""
    success: bool
    used: int
    """Launches until the method stopped by itself, or the cap."""
    loss: float | None = None
    """Share of the best by which the run's answer is slower; None of a method that gives none."""


class Clock:
    """Launches points, keeps the incumbent and counts."""

    def __init__(self, landscape: Landscape, seed: int) -> None:
        self._landscape = landscape
        self.seed = seed
        self.launches = 1
        self.baseline = landscape.measure(None, seed)
        self._hours = landscape.truth(None).hours
        self._best: Point | None = None
        self._chosen: Point | None = None
        self._value = 1.0
        self._found: tuple[int, float] | None = None
        self.known: set[Point] = set()
        """Points that a launch has measured."""
        self.launched: list[tuple[Point, ...]] = []
        """The same, by launch."""
        self.recommended: Recommended | None = None
        """What the search has chosen by all measurements together."""
        self._note()

    @property
    def is_over(self) -> bool:
        return self.launches >= CAP

    def launch(self, point: Point, alone: bool = False) -> dict[Point, Observation]:
        """What the launch shows: of the point, then of what it measures besides."""
        together = (point,) if alone else self._landscape.together(point)
        found = {each: self._landscape.measure(each, self.seed) for each in together}
        self.launches += 1
        self.launched.append(together)
        self._hours += self._landscape.truth(point).hours
        self._hours += sum(self._landscape.truth(each).measuring for each in together[1:])
        for each, verdict in found.items():
            self.known.add(each)
            if verdict.value is not None and verdict.value > self._value:
                self._best, self._value = each, verdict.value
        return found

    def spend(self, hours: float) -> None:
        """Time that no launch takes."""
        self._hours += hours

    def take(self, recommended: Recommended | None) -> None:
        """After a launch: what the method would recommend now; None: the highest figure."""
        self.recommended = recommended
        point, best = recommended[0] if recommended else None, self._best
        if point is not None and best is not None and self._landscape.is_simpler_equal(best, point):
            point = None
        self._chosen = point
        self._note()

    def result(self, *, answers: bool, confirm: bool) -> Search:
        """The end. A choice that is not the highest figure is confirmed with a launch.

        `answers`: a run ends so, with the stage `confirm` or without it."""
        if self._chosen is not None and self._chosen != self._best:
            self._hours += self._landscape.truth(self._chosen).hours
        launches, hours = self._found or (CAP, self._hours)
        success, loss = self._is_near(self._incumbent), None
        if answers:
            run = Answering(self._landscape, self.seed)
            answer = run.answer(self.launched, self.recommended, confirm=confirm)
            loss = max(0.0, 1 - self._true(answer) / self._landscape.best)
        return Search(launches, hours, success, self.launches, loss)

    @property
    def _incumbent(self) -> Point | None:
        return self._chosen or self._best

    def _note(self) -> None:
        if self._found is None and self._is_near(self._incumbent):
            self._found = self.launches, self._hours

    def _is_near(self, point: Point | None) -> bool:
        return self._true(point) * WITHIN >= self._landscape.best

    def _true(self, point: Point | None) -> float:
        return 1.0 if point is None else self._landscape.truth(point).value


def studied(spec: SearchSpec) -> Callable[[Landscape, Clock], None]:
    """A search by the study of a real run."""

    def search(landscape: Landscape, clock: Clock) -> None:
        start = Stage(landscape.space)
        if "comm" in spec.active_stages:
            start = comm_stage(landscape, clock.seed)
            clock.spend(start.hours)
        study = Study(start.space, spec, CAP, timed=start.timed)
        study.tell_baseline(clock.baseline.levels)
        while not clock.is_over and (proposal := study.propose()) is not None:
            verdicts = clock.launch(proposal.point)
            study.tell(proposal, verdicts.pop(proposal.point))
            for point, verdict in verdicts.items():
                study.add(point, verdict)
            clock.take(study.recommended())

    return search


def in_order(points: Iterable[Point], alone: bool = False) -> Callable[[Landscape, Clock], None]:
    """A search that launches points in a given order, less those that a launch had besides."""

    def search(landscape: Landscape, clock: Clock) -> None:
        for point in points:
            if clock.is_over:
                break
            if landscape.has(point) and (alone or point not in clock.known):
                clock.launch(point, alone)
                clock.take(None)

    return search


def bench_speculative() -> Iterator[Point]:
    """Its grid for one batch size, in its order, with its own filter and repetitions."""
    for steps, topk, tokens in product(SB_STEPS, SB_TOPK, SB_TOKENS):
        if 0 in (steps, topk, tokens) or steps * topk + 1 < tokens:
            continue
        yield Point(steps, topk, steps + 1 if topk == 1 else tokens, "target")


def run(landscape: Landscape, method: str, seed: int) -> Search | None:
    """One search; None where the method cannot run here."""
    clock = Clock(landscape, seed)
    if method == "specbench":
        studied(SearchSpec(seed=seed))(landscape, clock)
    elif method == "tpe":
        studied(SearchSpec(seed=seed, stages=[]))(landscape, clock)
    elif method == "gp":
        spec = SearchSpec(seed=seed, sampler="gp", stages=[])
        if missing_library(spec) is not None:
            return None
        studied(spec)(landscape, clock)
    elif method == "random":
        points = list(landscape.points)
        random.Random(seed).shuffle(points)
        in_order(points)(landscape, clock)
    elif method == "grid":
        in_order(landscape.points)(landscape, clock)
    else:
        in_order(bench_speculative(), alone=True)(landscape, clock)
    return clock.result(answers=method != "bench_speculative", confirm=method == "specbench")


FIGURES = (
    "median_launches",
    "median_hours",
    "success",
    "answer_within_1pct",
    "answer_loss_mean",
    "answer_loss_max",
)


def summarised(searches: list[Search | None]) -> dict[str, float | int | None]:
    """The medians and the share, as `--json` prints them; None where the method cannot run."""
    done = [each for each in searches if each is not None]
    if not done:
        return dict.fromkeys(FIGURES)
    losses = [each.loss for each in done if each.loss is not None]
    near = [(1 - loss) * WITHIN >= 1 for loss in losses]
    return {
        "median_launches": median(each.launches for each in done),
        "median_hours": round(median(each.hours for each in done), 3),
        "success": round(sum(each.success for each in done) / len(done), 3),
        "answer_within_1pct": round(mean(near), 3) if near else None,
        "answer_loss_mean": round(mean(losses), 4) if losses else None,
        "answer_loss_max": round(max(losses), 4) if losses else None,
    }


def compare(path: Path, methods: list[str], seeds: int, quick: bool) -> dict[str, object]:
    """All methods on one landscape."""
    landscape, found = Landscape(path), {}
    for method in methods:
        most = TARGET_SEEDS if landscape.name == TARGET else QUICK_SEEDS.get(method, seeds)
        count = min(seeds, most) if quick and method in QUICK_SEEDS else seeds
        found[method] = summarised([run(landscape, method, seed) for seed in range(count)])
    return dict(found)


def table(results: dict[str, dict[str, dict[str, float | None]]]) -> str:
    """Launches (success) of each method, as Markdown."""
    methods = list(next(iter(results.values())))
    lines = [f"| landscape | {' | '.join(methods)} |", "|---|" + "---:|" * len(methods)]
    for name, by_method in results.items():
        cells = []
        for each in by_method.values():
            launches, success = each["median_launches"], each["success"]
            cells.append("" if launches is None else f"{launches:g} ({100 * (success or 0):.0f} %)")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="landscape files")
    parser.add_argument("--landscape", action="append", help="only this one")
    parser.add_argument("--method", action="append", choices=METHODS, help="only this one")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--quick", action="store_true", help="fewer seeds of the slow methods")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args(words)
    paths = sorted(asked.folder.glob("*.yaml"))
    names = [path.stem for path in paths]
    if unknown := [each for each in asked.landscape or () if each not in names]:
        known = ", ".join(names) or "none"
        parser.error(f"there is no landscape {unknown[0]} in {asked.folder}, there is {known}")
    paths = [path for path in paths if not asked.landscape or path.stem in asked.landscape]
    methods = list(asked.method or METHODS)
    count = len(paths)
    with ProcessPoolExecutor(max_workers=asked.jobs) as pool:
        found = pool.map(
            compare, paths, [methods] * count, [asked.seeds] * count, [asked.quick] * count
        )
        results = {path.stem: each for path, each in zip(paths, found, strict=True)}
    print(json.dumps(results, indent=1) if asked.json else table(results))  # type: ignore[arg-type]
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
