"""One line of trials.jsonl: a trial and everything that a report needs to know of it."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from tuner.errors import UserError
from tuner.sweep.model import Strict
from tuner.sweep.point import Point

FORMAT = 1
"""Format 1: the first one."""

Role = Literal["baseline", "candidate", "confirm"]
Outcome = Literal["ok", "infeasible", "failed", "pruned"]


class TrialRecord(Strict):
    """A trial as the ledger keeps it. `metrics` is keyed by concurrency, as text."""

    format: Literal[1] = 1
    trial: int
    role: Role
    point: dict[str, Any] | None
    """`Point.to_json()`; None for the server without speculation."""
    outcome: Outcome
    failure: str | None
    """A label of `errors.Failure` where the outcome is infeasible or failed."""
    message: str | None = None
    """The sentence that goes with the failure."""
    engine: str
    engine_version: str | None
    launch_id: int
    launch_s: float | None
    command: dict[str, Any] | None = None
    """`{argv, env, unset}` of the launch, PORT standing for the port; None where none was."""
    started: str
    """UTC, ISO 8601 with Z."""
    measured_s: float | None = None
    """Seconds of load, warm-up included."""
    metrics: dict[str, dict[str, Any]]
    checks: list[dict[str, str]] = Field(default_factory=list)
    """Doubts about the numbers: `{check, level, message}`."""
    samples: str | None
    """Path of the raw samples, relative to the run folder."""

    @property
    def at(self) -> Point | None:
        """The point itself."""
        return None if self.point is None else Point.from_json(self.point)


def read_record(data: Mapping[str, Any], where: str) -> TrialRecord:
    """A ledger line's object as a record. Raises UserError at `where`, FILE:LINE."""
    if isinstance(found := data.get("format"), int) and found > FORMAT:
        raise UserError(
            f"this line has format {found}, this specbench reads up to {FORMAT}: upgrade it", where
        )
    try:
        return TrialRecord.model_validate(dict(data))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(f"this is no line of a ledger: {place}: {first['msg']}", where) from error
