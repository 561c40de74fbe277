"""What takes part in a comparison: a run, or another benchmark's file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

from tuner.analysis.cycle_breakdown import Cycles
from tuner.analysis.summary import NO_SPECULATION, RunSummary, TrialResult, summarise_run
from tuner.compare.columns import Memory, RowFigures, metric_names
from tuner.compare.comparability import best_at, confirmed, speaks_against
from tuner.compare.external.reader import is_foreign, read_foreign
from tuner.compare.external.record import ForeignRecord, ForeignRun
from tuner.config.load_level import Level
from tuner.config.point import Point
from tuner.core.errors import printable
from tuner.metrics.samples import Window
from tuner.metrics.statistics import Interval, Metric, throughput_interval
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run
from tuner.sglang.log_parser import read_sizes
from tuner.sglang.memory.fit import kv_cache_gib

BEST = "best candidate"
THE_SERVER = "the server as it is"


@dataclass(frozen=True)
class SourceEntry:
    """One server at one concurrency."""

    configuration: str
    tok_s: Interval | None
    figures: RowFigures
    windows: Sequence[Window]
    lacking: str
    """Why there is no interval, where there is none."""
    prompts: str | None = None
    """Which they were; entries of different ones are not held against each other."""


class Source(Protocol):
    """A run or a file by what a comparison asks of it."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> Path: ...
    @property
    def engine(self) -> str: ...
    @property
    def gpus(self) -> str: ...
    @property
    def best(self) -> str | None: ...
    @property
    def model(self) -> str | None: ...
    @property
    def simulated(self) -> bool: ...
    @property
    def levels(self) -> Sequence[Level]:
        """Concurrencies that were measured."""
        ...

    @property
    def asked(self) -> Sequence[Level]:
        """Concurrencies that were to be measured."""
        ...

    def entry(self, what: str, level: Level, metric: Metric) -> SourceEntry | None:
        """The server of one kind; None where it was not measured."""
        ...


@dataclass(frozen=True)
class RunSource:
    """A run of specbench."""

    summary: RunSummary
    _memory: dict[int, Memory | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """`sweep name/run id`."""
        return f"{self.summary.sweep.name}/{self.summary.run.id}"

    @property
    def path(self) -> Path:
        return self.summary.run.path

    @property
    def engine(self) -> str:
        version = ", ".join(self.summary.versions())
        return f"{self.summary.sweep.engine.kind} {version}".strip()

    @property
    def gpus(self) -> str:
        return self.summary.gpus()

    @property
    def best(self) -> str | None:
        """The best candidate over all concurrencies; what the run's answer is if that is something
        else is among the notes."""
        return self.summary.best_candidate.label if self.summary.best_candidate else None

    @property
    def model(self) -> str | None:
        return self.summary.sweep.model.target

    @property
    def simulated(self) -> bool:
        return self.summary.simulated

    @property
    def levels(self) -> Sequence[Level]:
        return self.summary.levels

    @property
    def asked(self) -> Sequence[Level]:
        return self.summary.sweep.workload.levels

    @property
    def attached(self) -> bool:
        """Of a server that already ran."""
        return not self.summary.sweep.engine.launches_servers

    def points(self, level: Level) -> dict[Point, TrialResult]:
        """Candidates measured at a concurrency, the best first; each by its confirming launch."""
        found: dict[Point, TrialResult] = {}
        for each in self.summary.ranked:
            if each.point is not None and each.metrics(level):
                found.setdefault(each.point, confirmed(self.summary, each))
        return found

    def entry(self, what: str, level: Level, metric: Metric) -> SourceEntry | None:
        measured = self._measured(what, level)
        return None if measured is None else self.told(measured, level, metric)

    def _measured(self, what: str, level: Level) -> TrialResult | None:
        if what == NO_SPECULATION:
            return self.summary.no_speculation
        if what == THE_SERVER:
            return self.summary.best_candidate or self.summary.no_speculation
        return best_at(self.summary, level)

    def told(self, measured: TrialResult, level: Level, metric: Metric) -> SourceEntry | None:
        """A trial's entry; None where it was not measured at this concurrency."""
        value = measured.metric(level, metric)
        if value is None:
            return None
        bounds = (measured.metric(level, f"{metric}_{end}") for end in ("low", "high"))
        doubt = speaks_against(self.summary, measured)
        return SourceEntry(
            configuration=measured.label,
            tok_s=Interval(value, *bounds),
            figures=self._figures(measured, level),
            windows=self.summary.windows(measured, level) if doubt is None else (),
            lacking=doubt or "no raw samples, so no interval",
        )

    @cached_property
    def _cycles(self) -> Cycles:
        return Cycles(self.summary)

    def _figures(self, measured: TrialResult, level: Level) -> RowFigures:
        taken = self._cycles.taken(measured, level)
        found = measured.metrics(level)
        return RowFigures(
            metrics={name: found.get(name) for name in metric_names()},
            cycle_parts=tuple(taken.parts) if taken is not None else (),
            launch_s=measured.record.launch_s,
            memory=self._held(measured.record),
        )

    def _held(self, record: TrialRecord) -> Memory | None:
        """What the launch's log says; a launch is read once."""
        if record.launch_id not in self._memory:
            log = self.summary.run.log_file(record.launch_id)
            self._memory[record.launch_id] = _memory(log) if log.exists() else None
        return self._memory[record.launch_id]


def _memory(log: Path) -> Memory | None:
    said = read_sizes(log)
    found = Memory(said.target, said.draft, kv_cache_gib(said), said.tokens, said.free)
    return found if any(value is not None for value in vars(found).values()) else None


@dataclass(frozen=True)
class FileSource:
    """A workload of another benchmark's file."""

    run: ForeignRun

    @property
    def name(self) -> str:
        return printable(f"{self.path.name}: {self.run.workload}")

    @property
    def path(self) -> Path:
        return self.run.path

    @property
    def engine(self) -> str:
        versions = sorted({each.version for each in self.run.records if each.version})
        return " ".join([self.run.tool, *versions])

    @property
    def gpus(self) -> str:
        return "not in the file"

    @property
    def best(self) -> str | None:
        return None

    @property
    def model(self) -> str | None:
        return self.run.model

    @property
    def simulated(self) -> bool:
        return any(each.simulated for each in self.run.records)

    @property
    def levels(self) -> Sequence[Level]:
        return self.run.levels

    @property
    def asked(self) -> Sequence[Level]:
        return self.run.levels

    def entry(self, what: str, level: Level, metric: Metric) -> SourceEntry | None:
        """The fastest of the kind; one that may or may not speculate counts as a candidate."""
        if metric != "output_tok_s":  # files have no other throughput
            return None
        found = [
            each
            for each in self.run.records
            if each.concurrency == level
            and (what == THE_SERVER or (each.speculates is False) == (what == NO_SPECULATION))
        ]
        found.sort(key=lambda each: (-(each.output_tok_s or 0.0), -(each.accept_length or 0.0)))
        return self._told(found[0]) if found else None

    def _told(self, record: ForeignRecord) -> SourceEntry:
        value, file = record.output_tok_s, self.path.name
        bounds = throughput_interval(record.windows) if record.windows else None
        lacking = f"no interval in {file}" if value is not None else f"no tok/s in {file}"
        return SourceEntry(
            configuration=record.configuration,
            tok_s=None if value is None else _around(value, bounds),
            figures=RowFigures(record.metrics()),
            windows=record.windows,
            lacking=lacking,
            prompts=record.prompts or str(self.path),
        )


def _around(value: float, bounds: Interval | None) -> Interval:
    low, high = (None, None) if bounds is None else (bounds.low, bounds.high)
    return Interval(value, low, high)


def open_sources(path: Path) -> list[Source]:
    """The run, or the workloads of the file, at `path`. Raises UserError where it is neither."""
    if is_foreign(path):
        return [FileSource(run) for run in read_foreign(path)]
    return [RunSource(summarise_run(Run.open(path)))]
