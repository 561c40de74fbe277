"""What a run has found, in the order in which a report tells it: baseline, best, the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tuner.analysis.best_per_level import record_speedups
from tuner.analysis.prompt_categories import KindFound, kinds_found
from tuner.analysis.summary import summarise_run
from tuner.analysis.winner import objectives, read_objective
from tuner.config.load_level import Level, at, level_in, listed
from tuner.config.loader import LoadedSweep
from tuner.config.point import Point
from tuner.config.space import Space
from tuner.config.synthetic import artificial
from tuner.config.yaml_document import read_document
from tuner.core.errors import UserError
from tuner.engines import make_engine
from tuner.metrics.samples import Window
from tuner.metrics.statistics import Interval, Metric
from tuner.runs.ledger import is_simulated
from tuner.runs.raw_samples import RawSamples
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run
from tuner.server.base import Checked
from tuner.server.memory import without_misfits

NO_SPECULATION = "no speculation"
NEIGHBOURS = 4
"""Configurations in the figure of acceptance by position."""


@dataclass(frozen=True)
class Result:
    """A trial that gave numbers."""

    record: TrialRecord
    value: float | None
    """The objective; None for the baseline, and where a level was not measured."""

    @cached_property
    def point(self) -> Point | None:
        """None: no speculation, or an endpoint as it is."""
        return self.record.at

    @property
    def label(self) -> str:
        """What tables and figures call it."""
        return self.record.label

    def metrics(self, level: Level) -> Mapping[str, Any]:
        """The figures at one concurrency; empty where there are none."""
        return self.record.metrics.get(str(level), {})

    def metric(self, level: Level, name: str) -> float | None:
        """One figure; None where it was not measured."""
        value = self.metrics(level).get(name)
        return None if value is None else float(value)

    @cached_property
    def speedups(self) -> Mapping[Level, Interval]:
        """Ratio to the run's baseline by concurrency, as far as it was measured; {} of itself."""
        return {} if self.record.role == "baseline" else record_speedups(self.record)


class RunView:
    """A run, read once. Raises UserError where its files cannot be read."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.sweep = run.sweep()
        self._samples = RawSamples(run)
        self.result = summarise_run(run, self._samples)
        self._spec = self.sweep.search.objective
        self.settled = self.result.settled
        self.ledger = self.settled.ledger
        self.records = self.ledger.records
        base = self.ledger.baseline
        self.baseline = None if base is None else Result(base, None)

    @property
    def simulated(self) -> bool:
        """Numbers of this run come from a performance model, whoever started the server."""
        return is_simulated(self.records, self.sweep)

    @property
    def metric(self) -> Metric:
        """The throughput that the run maximised."""
        return self.sweep.search.objective.metric

    @cached_property
    def levels(self) -> list[Level]:
        """Concurrency levels that anything was measured at."""
        named: dict[str, Mapping[str, Mapping[str, Any]]] = {}
        for each in self.records:
            for name in each.metrics:
                named.setdefault(name, each.metrics)
        return sorted(level_in(name, metrics) for name, metrics in named.items())

    @cached_property
    def ranked(self) -> tuple[Result, ...]:
        """Every candidate that gave numbers, the best first; those that say something else than
        the baseline or break a limit, then those without an objective, last."""
        spec = self.sweep.search.objective
        pairs = zip(self.ledger.candidates, objectives(self.ledger, spec), strict=True)
        found = [Result(record, value) for record, value in pairs if record.metrics]
        fastest = self.result.fastest  # goes before a higher figure that was refuted
        first = fastest.trial if fastest else None
        far = {record.trial for record in self.result.far} | self.result.limits.trials

        def order(each: Result) -> tuple[bool, bool, bool, float]:
            trial, value = each.record.trial, each.value
            return trial != first, value is None, trial in far, -(value or 0.0)

        return tuple(sorted(found, key=order))

    @property
    def best(self) -> Result | None:
        """The best candidate, whether or not it beats the baseline."""
        return self.ranked[0] if self.ranked else None

    @cached_property
    def plain(self) -> Result | None:
        """No speculation under the best candidate's settings; None where not measured."""
        plain = self.result.plain
        return None if plain is None else Result(plain, read_objective(plain, self._spec))

    @property
    def winner(self) -> Result | None:
        """What to run: the best candidate where it beats the baseline, else the baseline; `plain`
        where that beats both.

        None where no candidate has numbers to compare: a baseline alone beats nothing.
        """
        if self.result.fastest is None:
            return None
        if self.result.best is None:
            return self.baseline
        return self.plain if self.result.best.role == "plain" else self.best

    @property
    def failed(self) -> list[TrialRecord]:
        """Trials that gave no numbers."""
        return [record for record in self.records if record.outcome != "ok"]

    @property
    def space(self) -> Space:
        """The space with what was dropped and collapsed."""
        return self.checked.loaded.space

    @property
    def release(self) -> str | None:
        """The engine's version as the last trial that says it has it."""
        versions = [r.engine_version for r in self.records if r.engine_version]
        known = [version for version in versions if version != "unknown"]
        return known[-1] if known else None

    @cached_property
    def checked(self) -> Checked:
        """The sweep as the engine of that release sees it, and what it says about it."""
        file, text = self.run.sweep_file, self.run.sweep_text()
        space = Space.from_sweep(self.sweep, read_document(text, str(file)))
        loaded = LoadedSweep(self.sweep, space, (), file, text)
        if self.release is None:
            return Checked(loaded)
        try:
            engine = make_engine(self.sweep, self.release)
            found = [gpu.get("memory_gib") for gpu in self.run.machine().get("gpus", [])]
            known = [gib for gib in found if isinstance(gib, int | float)]
            memory = engine.estimate_memory(self.sweep, max(known)) if known else None
            return without_misfits(engine.check(loaded), memory)
        except UserError:  # an earlier specbench measured what this one refuses
            return Checked(loaded)

    def artificial(self) -> list[str]:
        """What makes this another thing than the model: dummy weights, simulated acceptance."""
        return artificial(self.sweep, self.run.machine().get("env", {}))

    def gpus(self) -> str:
        """`2 x NVIDIA H200, 139.8 GiB`, or `none`."""
        found = self.run.machine().get("gpus", [])
        names = [f"{gpu.get('name')}, {gpu.get('memory_gib')} GiB" for gpu in found]
        return "; ".join(f"{names.count(n)} x {n}" for n in dict.fromkeys(names)) or "none"

    def versions(self) -> list[str]:
        """Engine versions that the trials name; more than one is a doubt."""
        return sorted({r.engine_version for r in self.records if r.engine_version})

    @cached_property
    def kinds(self) -> Mapping[Level, Sequence[KindFound]]:
        """Kinds of prompts at each concurrency, of the best candidate; an endpoint's too."""
        if self.result.by_kind or self.best is None:
            return self.result.by_kind
        spec = self.sweep.search.objective
        return kinds_found(self.ledger, self.best.record, self._samples, spec)

    def windows(self, measured: Result, level: Level) -> list[Window]:
        """Raw samples of a trial at one concurrency; [] where none are on disk."""
        return self._samples.of(measured.record).get(level, [])

    def ratio(self, one: Result, other: Result, level: Level) -> Interval | None:
        """`other` over `one` at one concurrency; None where samples are missing."""
        return self.settled.ratio(one.record, other.record, level, self.metric)

    def history(self) -> list[tuple[int, float | None]]:
        """(trial, objective) of each candidate in the order measured; None without a value."""
        spec = self.sweep.search.objective
        trials = (record.trial for record in self.ledger.candidates)
        return list(zip(trials, objectives(self.ledger, spec), strict=True))

    def describe_objective(self) -> str:
        """What `history` holds: `output_tok_s, geometric mean of concurrency 1, 8`."""
        spec = self.sweep.search.objective
        only = self.levels[0] if len(self.levels) == 1 else spec.level
        only = next((level for level in self.levels if level == only), only)  # it says of what
        if only is not None:
            return f"{self.metric} {at(only)}"
        mean = "lowest" if spec.over == "min" else "geometric mean"
        return f"{self.metric}, {mean} of {listed(self.levels)}"

    def neighbours(self) -> list[Result]:
        """The best candidate, then those nearest to it in num_steps, other dimensions alike.

        Where the space was sampled too thinly for that, others come after them.
        """
        if self.best is None or self.best.point is None:
            return []
        best = self.best.point

        def distance(each: Result) -> tuple[bool, int]:
            assert each.point is not None
            steps = abs((each.point.num_steps or 0) - (best.num_steps or 0))
            return each.point.family != best.family, steps

        return [self.best, *sorted(self.ranked[1:], key=distance)][:NEIGHBOURS]
