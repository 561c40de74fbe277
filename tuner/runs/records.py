"""One line of trials.jsonl: a trial and everything that a report needs to know of it."""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass

from tuner.config.dimensions import Dimension, with_dimensions
from tuner.config.field_types import FlagValue, Strict
from tuner.config.load_level import RATE, parse_level
from tuner.config.point import Point
from tuner.core.errors import UserError
from tuner.metrics.request_rate import SERVED


class PlaceLine(Strict):
    """One of several places that measure at the same time: a slot of this machine, another node."""

    name: str
    """`slot 0`."""
    host: str | None = None
    """None: the run's own."""
    gpus: list[str] | None = None
    """Its CUDA_VISIBLE_DEVICES; None where there are none to choose from."""
    numa: int | None = None
    """The NUMA node of its GPUs; None where they have several, or it is not known."""
    cpus: str | None = None
    """CPUs that its server and its load client were held to, `0-23,48-71`; None: any."""
    alone: bool = True
    """No other place could be at work meanwhile."""
    slots: int | None = Field(default=None, ge=1)
    """How many the machine was split into then; None for other places."""


def in_the_folder(value: str) -> str:
    """The path itself. Raises ValueError where it is none in the run folder."""
    odd = len(value) > 200 or "\0" in value or value.startswith("/") or ".." in value.split("/")
    if odd:
        raise ValueError("this is no path in the run folder")
    return value


PathInRun = Annotated[str, AfterValidator(in_the_folder)]
"""Of a file, relative to the run folder; `RunFolder.within` also looks where links lead."""


_RECORD_PART = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True, config=_RECORD_PART)
class OutputCounts:
    """What `measure.outputs.Comparison.to_json` writes."""

    prompts: int
    equal: int
    early: int
    looping: int
    off: int
    prefix: dict[str, int]
    """Tokens in common from the start, by percentile of the prompts."""
    tokens_to_part: float | None


@dataclass(frozen=True, slots=True, config=_RECORD_PART)
class OutputsLine:
    """Greedy outputs at one concurrency against the baseline's (docs/outputs.md)."""

    outcome: Literal["equal", "differ", "far", "not compared"]
    why: str | None = None
    """Of what was not compared."""
    stops: bool = False
    """Far, and `measure.outputs` says that such a candidate is not recommended."""
    found: OutputCounts | None = None
    itself: OutputCounts | None = None
    """The baseline's later windows against its first; None where it has one window."""
    across: OutputCounts | None = None
    """Its first windows at other concurrencies against this one; None with one concurrency."""


class TaskLine(Strict):
    """The score of `workload.task`."""

    marks: str = Field(pattern=r"^[01-]+$")
    """A letter a question, in the file's order: 1 right, 0 wrong, - no complete answer."""
    lost: int | None = None
    """Questions that the baseline has right and this has not; None of the baseline itself."""
    won: int | None = None
    """Questions that this has right and the baseline has not."""
    p: float | None = None
    """McNemar's exact test, one-sided: the chance that an equal one loses so many."""
    stops: bool = False
    """Clearly worse, and `measure.outputs` says that such a candidate is not recommended."""
    samples: PathInRun
    """Path of the answers, relative to the run folder."""

    @property
    def score(self) -> str:
        """`17 of 20`."""
        return f"{self.marks.count('1')} of {len(self.marks)}"


FAILED = "failed_share"
"""Failed requests by all that were sent, as a limit that is broken is called."""


class BrokenLimit(Strict):
    """A latency above its limit in `search.limits`; or `served_request_s` below the rate at which
    requests came, where no speculation keeps up with it; or a larger `failed_share` of the requests
    than without speculation."""

    concurrency: int | Annotated[str, Field(pattern=f"^{RATE}$")]
    """The level: a concurrency, or a rate such as `4/s`."""
    metric: str
    value: float
    limit: float = Field(gt=0)

    @property
    def excess(self) -> float:
        """How far the value is over the limit, as a share of it; under it, the other way round."""
        over = self.limit / max(self.value, 1e-9) if self.is_floor else self.value / self.limit
        return over - 1

    @property
    def is_floor(self) -> bool:
        """The value should be no lower than the limit; otherwise no higher."""
        return self.metric == SERVED


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


def _value_in_a_line(dimension: Dimension) -> tuple[Any, Any]:
    """A line that is older than a dimension lacks the key, which means None."""
    is_count = dimension.value_type is int
    return dimension.value_type | None, Field(default=None, ge=1) if is_count else None


_Dimensions = with_dimensions(_value_in_a_line)


class PointShape(_Dimensions):  # type: ignore[misc,valid-type]  # made from the table
    """What `Point.to_json` writes."""

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

    format: Annotated[int, Field(ge=1, le=FORMAT)] = FORMAT
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
    asked: dict[str, Any] | None = None
    """Written by older versions to repeat their proposals on a resume. Nothing reads it."""

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
    def is_disqualified(self) -> bool:
        """What it says speaks against it: outputs far from the baseline's, or a lower score."""
        return self.divergent_outputs is not None or (self.task is not None and self.task.stops)

    @property
    def divergent_outputs(self) -> str | None:
        """The first concurrency at which its outputs speak against it; None where none do."""
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


def read_record(line: bytes | str, where: str) -> TrialRecord:
    """Return the trial of a ledger line. Raises UserError at `where`, FILE:LINE."""
    try:
        return TrialRecord.model_validate_json(line)
    except ValidationError as error:
        raise UserError(_describe_broken_line(error), where) from error


def _describe_broken_line(error: ValidationError) -> str:
    """Return what is wrong with a line that is no trial, and the remedy."""
    for mistake in error.errors():
        if mistake["type"] == "json_invalid":
            return "this line is not JSON. Restore it or remove it."
        if mistake["type"] == "model_type":
            return "this line is not a JSON object. Restore it or remove it."
        found = mistake["input"]
        if mistake["loc"] == ("format",) and isinstance(found, int) and found > FORMAT:
            return (
                f"this line has format {found}, and this specbench reads up to format {FORMAT}. "
                "Upgrade specbench."
            )
    return f"this is not a line of a ledger: {_first_of(error)}"


LISTS = frozenset({"accept_rate_by_position"})
BY_NAME = frozenset({"by_kind", "by_length"})
_SEVERAL = LISTS | BY_NAME
"""Metrics that are not one number: a list of numbers, and numbers by the name of a part."""


def refuse_odd_metrics(metrics: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The metrics of a line themselves. Raises ValueError where they are none."""
    for level, figures in metrics.items():
        parse_level(level)
        _refuse_odd(figures)
    return metrics


def _refuse_odd(figures: Mapping[str, Any]) -> None:
    """Raises ValueError where they are not the figures of one concurrency."""
    for name, figure in figures.items():
        is_usual = type(figure) is float and math.isfinite(figure) and name not in _SEVERAL
        if not (figure is None or is_usual):
            _require_figure(name, figure)
    if figures.get("speedup") is not None and not {"speedup_low", "speedup_high"} <= {*figures}:
        raise ValueError("speedup has no speedup_low and speedup_high")


def _require_figure(name: str, figure: Any) -> None:
    """Raises ValueError for what is no finite number, or none of them where there are several."""
    if figure is None:
        return
    parts: list[Any] = [figure]
    if name in LISTS:
        if not isinstance(figure, list):
            raise ValueError(f"{name} is no list")
        parts = figure
    elif name in BY_NAME:
        if not isinstance(figure, dict) or not all(isinstance(x, dict) for x in figure.values()):
            raise ValueError(f"{name} is no object of objects")
        parts = [each for part in figure.values() for each in part.values() if each is not None]
    for part in parts:
        if not _is_number(part):
            raise ValueError(f"{name} is {str(part)[:40]!r}, not a number")


def _is_number(part: Any) -> bool:
    """Finite, and not larger than a float."""
    if isinstance(part, bool) or not isinstance(part, int | float):
        return False
    try:
        return math.isfinite(part)
    except OverflowError:
        return False
