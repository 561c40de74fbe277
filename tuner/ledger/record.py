"""One line of trials.jsonl: a trial and everything that a report needs to know of it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_serializer,
    field_validator,
    model_validator,
)

from tuner.errors import UserError
from tuner.ledger.asked import AskedLine, PlaceLine
from tuner.ledger.figures import Later
from tuner.ledger.judged import BrokenLimit, OutputsLine, PathInRun, TaskLine
from tuner.ledger.metrics_read import refuse_odd_metrics
from tuner.sweep.fields import Strict
from tuner.sweep.point import FlagValue, Point

FORMAT = 1
"""Format 1: the first one."""

SIMULATED = "simulated"
"""The `engine` of a record whose server said that it plays one, whoever started it."""

SLOWER: Final = "slower"
"""The check of a trial with windows left out at a level because it was clearly slower there."""

Role = Literal["baseline", "candidate", "confirm", "plain", "abreast"]
"""`plain`: no speculation under a winner's own variables and flags. `abreast`: the baseline's
server in every place at once, which shows what places do to each other."""
TrialNumber = Annotated[str, Field(pattern=r"\A[0-9]+\z")]
Outcome = Literal["ok", "infeasible", "failed", "pruned"]


class PointShape(Strict):
    """What `Point.to_json` writes."""

    num_steps: int | None = Field(ge=1)
    eagle_topk: int | None = Field(ge=1)
    num_draft_tokens: int | None = Field(ge=1)
    draft_tp: int | Literal["target"] | None
    env: dict[str, str]
    flags: dict[str, FlagValue]


class CommandShape(BaseModel):
    """What `engine.base.Command.from_json` reads."""

    model_config = ConfigDict(strict=True)

    argv: list[str]
    env: dict[str, str]
    unset: list[str]


class DecisionLine(Strict):
    """Why a point was launched, as the search said it then."""

    stage: str
    """anchors, model, check, sampler or confirm."""
    why: str
    predicted: float | None = None
    """The objective expected of it, with its 95 % interval."""
    predicted_low: float | None = None
    predicted_high: float | None = None
    excluded: dict[str, int] = Field(default_factory=dict)
    """Reason -> unmeasured points that were not launched then for it."""


class HeldOut(Strict):
    """The same server on prompts that no candidate was chosen on."""

    prompts: int = Field(ge=1)
    """How many different ones."""
    metrics: dict[str, dict[str, Any]]
    """As a trial's, by concurrency."""
    samples: PathInRun
    """Path of the raw samples, relative to the run folder."""

    @field_validator("metrics")
    @classmethod
    def _are_numbers(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        return refuse_odd_metrics(value)


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
    """`{argv, env, unset}` of the point's own launch, PORT standing for the port; None where there
    is none. Where the server was shared, this is not how it was started: see `warm_steps`."""
    started: str
    """UTC, ISO 8601 with Z."""
    measured_s: float | None = None
    """Seconds of load, warm-up included."""
    metrics: dict[str, dict[str, Any]]
    checks: list[dict[str, str]] = Field(default_factory=list)
    """Doubts about the numbers: `{check, level, message}`."""
    samples: PathInRun | None
    """Path of the raw samples, relative to the run folder."""
    warm_steps: list[int] = Field(default_factory=list)
    """Chain lengths that the server was switched between while this one was measured; []: the
    launch was for this point alone. Lines of one shared launch have the same `launch_id`."""
    proposed: bool = True
    """The search proposed it; False: measured along with one that it did."""
    switch_failure: str | None = None
    """Why the shared launch that this point was in failed, where it did: from then on each of its
    chain lengths has a launch of its own."""
    decision: DecisionLine | None = None
    """Why the search launched this point; None without stages."""
    broken: list[BrokenLimit] = Field(default_factory=list)
    """Limits of `search.limits` that it breaks; such a candidate is not recommended."""
    outputs: dict[str, OutputsLine] = Field(default_factory=dict)
    """By concurrency, as text; {} of a baseline, an endpoint, and in older ledgers."""
    held_out: HeldOut | None = None
    """Of a baseline and of what confirms a winner; None where it was not measured."""
    place: PlaceLine | None = None
    """Where it was measured; None where the run has one place only."""
    smoothed: dict[TrialNumber, Annotated[float, Field(gt=0)]] | None = None
    """Of the first launch that confirms: each candidate's objective by all measurements together,
    as the search had it then, by trial, as text. None elsewhere, where the search had no model that
    held, and in older ledgers."""
    asked: AskedLine | None = None
    """What the search knew when it proposed this point; None where that is all that stands above
    this line."""

    @field_validator("point")
    @classmethod
    def _is_a_point(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        return _shaped(PointShape, value)

    @field_validator("command")
    @classmethod
    def _is_a_command(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        return _shaped(CommandShape, value)

    @field_validator("started")
    @classmethod
    def _is_a_time(cls, value: str) -> str:
        datetime.fromisoformat(value)
        return value

    @field_validator("metrics")
    @classmethod
    def _are_numbers(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        return refuse_odd_metrics(value)

    @field_serializer("metrics")
    def _whole_metrics(self, value: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        return {level: dict(figures) for level, figures in value.items()}

    @field_serializer("command")
    def _whole_command(self, value: Mapping[str, Any] | None) -> dict[str, Any] | None:
        return None if value is None else dict(value)

    @field_serializer("outputs")
    def _whole_outputs(self, value: Mapping[str, OutputsLine]) -> dict[str, Any]:
        return {level: each.model_dump() for level, each in value.items()}

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.role in ("baseline", "abreast") and self.point is not None:
            raise ValueError("point: a baseline has none, write null")
        return self

    @property
    def fell_behind(self) -> bool:
        """Windows of it were left out because it was clearly slower than another one."""
        return any(check.get("check") == SLOWER for check in self.checks)

    task: TaskLine | None = None
    """Of the baseline and of confirmations, where `workload.task` names a file."""

    @property
    def is_another(self) -> bool:
        """What it says speaks against it: outputs far from the baseline's, or a lower score."""
        return self.far_outputs is not None or (self.task is not None and self.task.stops)

    @property
    def far_outputs(self) -> str | None:
        """The first concurrency at which its outputs speak against it; None where none do."""
        if isinstance(self.outputs, Later):  # those that speak against it are not left in the line
            return None
        return next((level for level, each in self.outputs.items() if each.stops), None)

    @property
    def at(self) -> Point | None:
        """The point itself."""
        return None if self.point is None else Point.from_json(self.point)

    @property
    def label(self) -> str:
        """What tables call it."""
        if self.role == "abreast":
            where = "" if self.place is None else f" on {self.place.name}"
            return f"no speculation{where}, others beside it"
        if self.at is None:
            return "no speculation" if self.role == "baseline" else "the server as it is"
        return f"no speculation, {self.at.label()}" if self.role == "plain" else self.at.label()


def _shaped(shape: type[BaseModel], value: dict[str, Any] | None) -> dict[str, Any] | None:
    """`value` itself. Raises ValueError where it has not this shape."""
    if value is not None:
        try:
            shape.model_validate(value)
        except ValidationError as error:
            raise ValueError(_first_of(error)) from error
    return value


def _first_of(error: ValidationError) -> str:
    """`place: what is wrong` of the first mistake."""
    first = error.errors()[0]
    place, what = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    return f"{place}: {what}" if place else what


def read_record(data: Mapping[str, Any], where: str) -> TrialRecord:
    """A ledger line's object as a record. Raises UserError at `where`, FILE:LINE."""
    if isinstance(found := data.get("format"), bool):  # true is 1 to Python
        raise UserError("format is no number, restore the line or remove it", where)
    if isinstance(found, int) and found > FORMAT:
        raise UserError(
            f"this line has format {found}, this specbench reads up to {FORMAT}: upgrade it", where
        )
    try:
        return TrialRecord.model_validate(dict(data))
    except ValidationError as error:
        raise UserError(f"this is no line of a ledger: {_first_of(error)}", where) from error
