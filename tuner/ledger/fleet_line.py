"""fleet.json: that a run is one worker's part of a shared search, and what the others had done."""

from pathlib import Path

from pydantic import Field, ValidationError

from tuner.errors import UserError
from tuner.ledger.folder import RunFolder
from tuner.sweep.fields import Strict
from tuner.sweep.point import Point
from tuner.whole import read_bytes, write_json


class WorkerSettings(Strict):
    """Of a run that is one of several workers on a search."""

    study: str
    """Its name in the shared storage, whose URL is not kept."""
    name: str
    """Of this worker, among all."""


class OtherWorker(Strict):
    """Another worker of the search, as this one last saw it."""

    name: str
    candidates: int
    """That it had measured."""
    best: str | None = None
    """The label of its fastest one; None where none had a figure."""
    best_value: float | None = None
    """Its objective: times that worker's own baseline."""

    def also(self, point: Point, value: float | None) -> "OtherWorker":
        """The same with one candidate more."""
        update: dict[str, object] = {"candidates": self.candidates + 1}
        if value is not None and value > (self.best_value or 0.0):
            update |= {"best": point.label(), "best_value": value}
        return self.model_copy(update=update)


class FleetLine(Strict):
    """A worker's place in a shared search."""

    study: str
    """The name of the Optuna study."""
    worker: str
    """This one's name."""
    others: list[OtherWorker] = Field(default_factory=list)

    def with_others(self, others: list[OtherWorker]) -> "FleetLine":
        """The same, as it is now."""
        return self.model_copy(update={"others": others})

    @property
    def elsewhere(self) -> int:
        """Candidates that others had measured."""
        return sum(each.candidates for each in self.others)

    @property
    def first(self) -> OtherWorker | None:
        """Who has the fastest candidate of the others; None where none has a figure."""
        known = [each for each in self.others if each.best_value is not None]
        return max(known, key=lambda each: each.best_value or 0.0, default=None)

    def faster(self, value: float | None) -> str | None:
        """That another worker has a faster candidate than that, or than the baseline, in words
        without names that Markdown reads; None where none has."""
        first = self.first
        if first is None or (first.best_value or 0.0) <= max(value or 0.0, 1.0):
            return None
        return (
            f"another worker has a faster candidate, {first.best_value:.3f} times its own "
            "baseline: the answer is in its run"
        )

    def words(self, candidates: int) -> str:
        """For a report: who measured what; `candidates` are this run's own."""
        whose = f"one of {len(self.others) + 1} workers" if self.others else "the only worker"
        told = (
            f"{whose} on study {self.study} (this one is {self.worker}): {candidates} candidates "
            f"here, {self.elsewhere} elsewhere"
        )
        if (best := self.first) is not None:
            told += (
                f", the fastest of those {best.best} with {best.best_value:.3f} times the baseline "
                f"of {best.name}"
            )
        return told


def write_fleet(run: RunFolder, line: FleetLine) -> None:
    """Keep it in the run folder. Raises OSError."""
    write_json(run.fleet_file, line.model_dump())


def read_fleet(path: Path) -> FleetLine | None:
    """What `write_fleet` wrote; None where the run is no worker's. Raises UserError where the file
    is broken."""
    try:
        return FleetLine.model_validate_json(read_bytes(path))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        message = "this is not what a worker wrote, remove it: nothing but the report reads it"
        raise UserError(message, path) from error
