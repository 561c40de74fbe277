"""run.json: what a run was begun with beside its sweep file."""

from pathlib import Path
from typing import Final, Literal
from uuid import uuid4

from pydantic import Field, ValidationError

from tuner import __version__
from tuner.config.field_types import Strict
from tuner.config.point import Point
from tuner.core.errors import UserError
from tuner.core.files import read_bytes, read_json, write_json
from tuner.runs.run_folder import RunFolder, describe_missing_run


class WorkerSettings(Strict):
    """What a run keeps if it is one of several workers on a search."""

    study: str
    """Name of the Optuna study; the storage's URL is not kept."""
    name: str
    """Name of this worker among all."""


class OtherWorker(Strict):
    """Another worker of the search, as this one last saw it."""

    name: str
    candidates: int
    """Number of candidates that it had measured."""
    best: str | None = None
    """Label of its fastest candidate; None if no candidate had a figure."""
    best_value: float | None = None
    """Speed-up of that candidate against the worker's own baseline."""

    def also(self, point: Point, value: float | None) -> "OtherWorker":
        """Return a copy with one candidate more."""
        update: dict[str, object] = {"candidates": self.candidates + 1}
        if value is not None and value > (self.best_value or 0.0):
            update |= {"best": point.label(), "best_value": value}
        return self.model_copy(update=update)


class FleetLine(Strict):
    """A worker's place in a shared search."""

    study: str
    """The name of the Optuna study."""
    worker: str
    """Name of this worker."""
    others: list[OtherWorker] = Field(default_factory=list)

    def with_others(self, others: list[OtherWorker]) -> "FleetLine":
        """Return a copy with these workers."""
        return self.model_copy(update={"others": others})

    @property
    def elsewhere(self) -> int:
        """Number of candidates that others had measured."""
        return sum(other.candidates for other in self.others)

    @property
    def first(self) -> OtherWorker | None:
        """Return the other worker with the fastest candidate. Returns None if none has a figure."""
        known = [other for other in self.others if other.best_value is not None]
        return max(known, key=lambda other: other.best_value or 0.0, default=None)

    def faster(self, value: float | None) -> str | None:
        """Report that another worker has a faster candidate than `value` and than the baseline.

        Returns None if none has. The sentence has no names, which Markdown could interpret.
        """
        first = self.first
        if first is None or (first.best_value or 0.0) <= max(value or 0.0, 1.0):
            return None
        return (
            f"another worker has a faster candidate, {first.best_value:.3f} times its own "
            "baseline: the answer is in its run"
        )

    def words(self, candidates: int) -> str:
        """Describe for a report who measured what; `candidates` were measured in this run."""
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
    """Write the line to the run folder. Raises OSError."""
    write_json(run.fleet_file, line.model_dump())


def read_fleet(path: Path) -> FleetLine | None:
    """Read what `write_fleet` wrote. Returns None if the run is not a worker's.

    Raises UserError if the file is broken.
    """
    try:
        return FleetLine.model_validate_json(read_bytes(path))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        message = "this is not what a worker wrote, remove it: nothing but the report reads it"
        raise UserError(message, path) from error


FORMAT: Final = 1
"""Of run.json; trials.jsonl has its own."""


class RunSettings(Strict):
    """run.json: what the command line and the prompts added to the sweep file."""

    format: Literal[1] = FORMAT
    specbench: str = __version__
    """The version that began the run."""
    identity: str = Field(default_factory=lambda: uuid4().hex)
    """Random: tells this run from another one that began in the same second elsewhere."""
    engine: str | None = None
    """`--engine`, where it was given."""
    worker: WorkerSettings | None = None
    """Where the run is a worker's."""
    trials: int
    """Candidates that the run was begun with; samplers plan by it, so it never changes."""
    extended_to: int | None = None
    """Candidates wanted since `--trials +N`."""
    prompts: str
    """Content hash of the prompts."""
    prompts_there: int | None = None
    """How many of them there are; None in a run of an older version."""
    prompts_read: str | None = None
    """How a file of prompts was read: its shape, how many of each kind, what was left out."""
    task: str | None = None
    """Content hash of the task; None without one."""
    beside: str | None = None
    """The folder that the sweep file lay in, where a file of prompts is looked for."""
    models: dict[str, dict[str, str | None]] = Field(default_factory=dict)
    """`target` and `draft` as they lay here: `{name, source, revision, digest}`, see
    engine/sglang/revisions.py; {} where nothing was known."""

    @property
    def wanted(self) -> int:
        """Candidates to measure in all."""
        return self.extended_to or self.trials


def read_settings(path: Path) -> RunSettings:
    """Those of the run in that folder. Raises UserError where it is none or of a newer version."""
    settings_file = path / "run.json"
    try:
        data = read_json(settings_file)
    except FileNotFoundError as error:
        raise UserError(describe_missing_run(path), path) from error
    except OSError as error:
        raise UserError(f"{error.strerror}, give the path of a run folder", path) from error
    except (ValueError, RecursionError) as error:
        raise UserError("this is not JSON, restore it or begin a new run", settings_file) from error
    found = data.get("format") if isinstance(data, dict) else None
    if isinstance(found, bool):  # true is 1 to Python
        raise UserError("format is no number, restore it or begin a new run", settings_file)
    if isinstance(found, int) and found > FORMAT:
        message = f"the run has format {found}, this specbench reads up to {FORMAT}: upgrade it"
        raise UserError(message, settings_file)
    try:
        return RunSettings.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        message = f"this is not what specbench wrote: {place}: {first['msg']}"
        raise UserError(message, settings_file) from error
