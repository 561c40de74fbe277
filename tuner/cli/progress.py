"""Progress that can be trusted: a live line in a terminal, plain lines anywhere else."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.status import Status

from tuner.config.load_level import at, listed
from tuner.config.loader import LoadedSweep
from tuner.config.point import Point
from tuner.config.schema import Sweep
from tuner.core.formatting import spell_time
from tuner.execution.progress import Phase, Progress, SweepProgress
from tuner.metrics.catalogue import metric_heading
from tuner.metrics.statistics import Metric
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run


@contextmanager
def watch(loaded: LoadedSweep, run: Run, *, to_stderr: bool) -> Iterator["ProgressLine"]:
    """Show a run's progress while the block runs."""
    console = Console(stderr=to_stderr, highlight=False, soft_wrap=True, markup=False)
    simulated = " (simulated engine)" if loaded.sweep.engine.is_simulated else ""
    console.print(f"{loaded.sweep.name}{simulated}: {run.path}")
    status = Status("starting", console=console) if console.is_terminal else None
    watch = ProgressLine(console, status, loaded)
    if status is None:
        yield watch
        return
    with status:
        yield watch


@dataclass
class ProgressLine(Progress):
    """Listener that prints what a run does; see `Progress`."""

    console: Console
    status: Status | None
    loaded: LoadedSweep
    began: float = field(default_factory=time.monotonic)
    standing: SweepProgress | None = None
    measured: int = 0
    """Trials that ended in this call: what the time left is reckoned from."""
    places: dict[str, str] = field(default_factory=dict)
    """What goes on in each, where several measure."""

    def phase(self, phase: Phase) -> None:
        """The live line; without a terminal only a trial's beginning is a line of its own."""
        if phase.doing == "over":
            self.places.pop(phase.place or "", None)
            return
        doing: str = phase.doing
        if doing == "measuring" and phase.window is not None:
            doing = f"measuring {phase.window}/{phase.windows}"
        level = "" if phase.concurrency is None else f" {at(phase.concurrency)}"
        plain = "no speculation, " if phase.role == "plain" else ""
        where = f"trial {phase.trial}" if phase.place is None else phase.place
        trial = f"{where}, {plain}{self._name(phase.point)}"
        if phase.doing == "launching" and phase.sharing > 1:
            trial += f" and {phase.sharing - 1} more in one launch"
        if phase.doing == "answering":
            trial, doing = "no speculation", "writing the answers between turns"
            doing += " (conversations.jsonl)"
        if phase.again is not None and phase.doing in ("launching", "answering"):
            self.console.print(f"{trial}: trying again: {phase.again}")
        if self._endpoint is not None and phase.doing == "launching":
            trial, doing = f"trial {phase.trial}", f"measuring {self._endpoint}"
        text = f"{trial}: {doing}{level}{self._so_far()}"
        if self.status is not None:
            self.status.update(self._beside(phase, f"{trial}: {doing}{level}"))
        elif phase.doing in ("launching", "answering"):
            self.console.print(text)

    def _beside(self, phase: Phase, text: str) -> str:
        """The live text: a line for each place where several measure."""
        if phase.place is None:
            self.places.clear()
            return text + self._so_far()
        self.places[phase.place] = text
        return "\n".join(sorted(self.places.values())) + self._so_far()

    def recorded(self, record: TrialRecord, standing: SweepProgress) -> None:
        """One line for each trial that ended."""
        self.standing = standing
        self.measured += 1
        count = f" [{standing.done}/{standing.wanted}]" if record.role == "candidate" else ""
        name = self._name(record.at)
        name = record.label if record.role in ("plain", "abreast") else name
        name += " with a launch of its own" if record.role == "confirm" else ""
        self.console.print(f"trial {record.trial}{count}, {name}: {self._outcome(record)}")

    def _outcome(self, record: TrialRecord) -> str:
        return outcome(record, self.loaded.sweep.search.objective.metric)

    def step(self, message: str) -> None:
        """The live line; a line of its own without a terminal."""
        if self.status is not None:
            self.status.update(message)
        else:
            self.console.print(message)

    def note(self, message: str) -> None:
        """A sentence of its own."""
        self.console.print(f"note: {message}")

    @property
    def _endpoint(self) -> str | None:
        """What somebody else's server is called; None where this run launches its own."""
        engine = self.loaded.sweep.engine
        return None if engine.launches_servers else f"the server at {engine.url}"

    def _name(self, point: Point | None) -> str:
        """What the lines call a trial; an endpoint's point is known when it has answered."""
        if self._endpoint is None:
            return point_name(point)
        return self._endpoint if point is None else f"{self._endpoint} ({point.label()})"

    def _so_far(self) -> str:
        if self.standing is None:
            return ""
        parts = []
        if self.standing.best_value is not None:
            alike = self.standing.alike
            among = f", not told apart from {alike} other{'s' * (alike > 1)}" if alike else ""
            over = over_levels(self.loaded.sweep)
            parts.append(f"best so far {self.standing.best_value:.3f}x{over}{among}")
        left = self.standing.wanted - self.standing.done
        if self.measured and left > 0:
            each = (time.monotonic() - self.began) / self.measured
            parts.append(f"about {spell_time(each * left)} left")
        return f" ({', '.join(parts)})" if parts else ""


def point_name(point: Point | None) -> str:
    """A point's label; the server without a point is the baseline."""
    return "baseline" if point is None else point.label()


def over_levels(sweep: Sweep) -> str:
    """What one ratio of several levels is: `, geometric mean over concurrency 1, 8`; "" of one."""
    levels, spec = sweep.workload.levels, sweep.search.objective
    if len(levels) < 2:
        return ""
    if spec.level is not None:
        return f" {at(spec.level)}"
    mean = "the lowest of" if spec.over == "min" else "geometric mean over"
    return f", {mean} {listed(levels)}"


def outcome(record: TrialRecord, metric: Metric) -> str:
    """`concurrency 1: 94.1 output tok/s, 1.05x; 8: ...`, the level's name where there are several,
    or why there is no number. `metric`: whose ratio the speed-up is."""
    if record.outcome != "ok":
        return f"{record.outcome}, {record.failure}: {record.message}"
    shown = []
    for number, (level, figures) in enumerate(record.metrics.items()):
        name = level if number or "/s" in level else f"concurrency {level}"
        at = f"{name}: " if len(record.metrics) > 1 else ""
        ratio = figures.get("speedup")
        speed = figures.get(metric)
        told = (
            f"no {metric_heading(metric)}"
            if speed is None
            else f"{speed:.1f} {metric_heading(metric)}"
        )
        shown.append(f"{at}{told}" + (f", {ratio:.3f}x" if ratio else ""))
    return "; ".join(shown)
