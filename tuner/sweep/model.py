"""The shape of a sweep file. Every class is strict and frozen; `door.load` reads a file into it.

Field descriptions end up in the JSON Schema that `specbench schema` prints.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from tuner.sweep import words
from tuner.sweep.durations import Seconds
from tuner.sweep.exclude import ExcludeSpec
from tuner.sweep.fields import EnvValue, FlagChoice, FlagName, Name, Strict, Url, VariableName

ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM")
STEP_SWITCHERS = ("EAGLE", "EAGLE3", "NEXTN")
"""Algorithms whose chain length a running server can switch (SGLang's adaptive speculation)."""
MAX_CONCURRENCY = 512


class FaultSpec(Strict):
    """A fault that the simulated engine plays, for rehearsals and tests."""

    kind: str
    """One of the names that `specbench simulate --help` lists."""
    launches: list[Annotated[int, Field(ge=0)]] | None = None
    """Launch numbers that have the fault, the baseline's being 0; default: every launch."""
    value: Annotated[float, Field(ge=0, le=1e9)] | None = None
    """The fault's number where it has one (`hang-after`: tokens, `slow-start`: seconds)."""


class EngineSpec(Strict):
    """What serves the model."""

    kind: Literal["sglang", "simulated", "endpoint"]
    """`sglang` launches SGLang, `simulated` plays it, `endpoint` measures a running server."""
    python: str | None = None
    """The interpreter that has SGLang; default: the one that runs specbench."""
    release: str | None = None
    """SGLang's version, such as 0.5.17, where `command` hides the interpreter from specbench;
    default: what `python` has. Simulated: the release that is played."""
    command: list[str] = []
    """Words put in front of the launch command: `[numactl, --cpunodebind=0]`, `[srun, -n1]`."""
    preset: str | None = None
    """The machine and model that the simulated engine plays."""
    startup_scale: Annotated[float, Field(ge=0, le=10)] = 0.001
    """Simulated: real seconds slept for each second of modelled start-up."""
    overrides: dict[str, Any] = {}
    """Simulated: numbers of the preset to change, such as `{acceptance: 0.19}`."""
    faults: list[FaultSpec] = []
    """Simulated: what goes wrong on purpose."""
    url: Url | None = None
    """Endpoint: where the server answers, such as `http://127.0.0.1:30000`."""

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Self:
        if self.kind == "endpoint" and self.url is None:
            raise ValueError("kind endpoint needs a url, such as url: http://127.0.0.1:30000")
        return self


class ModelSpec(Strict):
    """The target model, the draft that speculates for it, and how both are placed."""

    target: Annotated[str, Field(min_length=1)]
    draft: Annotated[str, Field(min_length=1)] | None = None
    algorithm: Literal["EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"]
    tp: Annotated[int, Field(ge=1, le=1024)] = 1
    """Tensor-parallel size of the target, in GPUs."""

    @model_validator(mode="after")
    def _has_its_draft(self) -> Self:
        if self.algorithm in ("EAGLE", "EAGLE3", "STANDALONE") and self.draft is None:
            raise ValueError(f"{self.algorithm} needs a draft model, write draft: PATH-OR-NAME")
        if self.algorithm == "NGRAM" and self.draft is not None:
            raise ValueError("NGRAM has no draft model, remove draft")
        return self


ServerFlag = FlagChoice | list[FlagChoice]


class SettingsSpec(Strict):
    """Flags and variables."""

    flags: dict[FlagName, ServerFlag] = {}
    env: dict[VariableName, EnvValue] = {}


class ServerSpec(SettingsSpec):
    """Flags and variables that every server of the run gets, the baseline included."""

    step_switch: bool = False
    """One launch measures all chain lengths (num_steps at topk 1) that share their other
    settings, in turns; where SGLang's release or the flags cannot, one launch a point."""


class BaselineSpec(SettingsSpec):
    """The server without speculation that everything is held against."""

    reference_tok_s: Annotated[float, Field(ge=0.001, le=1e9)] | None = None
    """A figure known from elsewhere, shown beside the measured one and never mixed with it."""


class RangeSpec(Strict):
    """Every integer from low to high, both included."""

    low: int
    high: int

    @model_validator(mode="after")
    def _is_not_reversed(self) -> Self:
        if self.low > self.high:
            raise ValueError(
                f"low {self.low} is above high {self.high}, write {{low: {self.high}, "
                f"high: {self.low}}}"
            )
        return self


Values = Annotated[list[int], Field(min_length=1)]


class SpaceSpec(Strict):
    """The dimensions of the search, each with the values it may take."""

    num_steps: RangeSpec | Values | None = None
    eagle_topk: RangeSpec | Values | None = None
    num_draft_tokens: Literal["auto"] | Values | None = None
    draft_tp: Annotated[list[Literal["target"] | int], Field(min_length=1)] | None = None
    """Tensor-parallel size of the draft; `target` leaves it with the target's."""
    env: dict[VariableName, Annotated[list[EnvValue], Field(min_length=1)]] = {}
    flags: dict[FlagName, Annotated[list[FlagChoice], Field(min_length=1)]] = {}
    exclude: list[ExcludeSpec] = []
    """Combinations that are not tried."""


class WorkloadSpec(Strict):
    """What is sent to each server."""

    prompts: Annotated[str, Field(min_length=1)] = "builtin:mixed"
    """`builtin:` chat, code, math, summarise or mixed, or a JSONL file or JSON list beside the
    sweep file, of specbench's own shape, ShareGPT's, MT-Bench's, SPEED-Bench's, GSM8K's or
    HumanEval's."""
    turns: Literal["first", "all"] = "first"
    """Of conversations: the first turn of each, or every turn of the user, one after the other,
    each after the file's own answers."""
    requests: Annotated[int, Field(ge=1, le=1_000_000)] = 16
    """Requests of one measured window; a level above it sends one request per stream."""
    output_tokens: Annotated[int, Field(ge=2, le=1_000_000)] = 256
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    concurrency: Annotated[
        list[Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)]], Field(min_length=1)
    ] = [1]
    """Numbers of streams held open at a time; each level is measured by itself."""
    request_rate: Annotated[float, Field(ge=0.001, le=100_000)] | None = None
    """Requests (of `turns: all`: conversations) that come in a second, by a Poisson process; each
    concurrency is then how many are open at most. Default: each stream sends its next request when
    its last has ended."""
    seed: Annotated[int, Field(ge=0)] = 0
    ignore_eos: bool = True
    """Every request runs to its full length, so that all points do the same work."""
    task: Annotated[str, Field(min_length=1)] | None = None
    """A file of questions in GSM8K's shape by which the baseline and the winner are scored."""
    task_tokens: Annotated[int, Field(ge=2, le=1_000_000)] = 512


class MeasureSpec(Strict):
    """How long each point is measured."""

    warmup_requests: Annotated[int, Field(ge=0, le=100_000)] = 2
    """Requests sent before each level's windows and not counted."""
    repeats: Annotated[int, Field(ge=1, le=1000)] = 3
    """Windows per concurrency level; at most, where `racing` or `target_width` stops earlier."""
    racing: bool = True
    """A candidate's windows at a level end early where it is clearly slower there than the best
    so far; never those of the baseline or of a confirmation."""
    target_width: Annotated[float, Field(gt=0, lt=1)] | None = None
    """A candidate's windows at a level end early where the 95 % interval of the objective's metric
    is this share of it or less to either side, such as 0.01; default: never for this."""
    outputs: Literal["stop", "warn", "ignore"] = "stop"
    """Greedy outputs far from the baseline's: `stop` does not recommend such a candidate, `warn`
    only says so, `ignore` neither keeps nor compares outputs."""
    outputs_off: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Outputs are far where more than this share of the prompts part from the baseline's early or
    end in a loop."""


class ObjectiveSpec(Strict):
    """What is maximised: each level's ratio to the baseline, combined over the levels."""

    metric: Literal["output_tok_s", "decode_tok_s"] = "output_tok_s"
    over: Literal["geomean", "min"] | Annotated[int, Field(ge=1)] = "geomean"
    """`geomean` or `min` over all levels, or one level."""


LimitName = Annotated[str, BeforeValidator(words.latency_name)]
"""A latency of a ledger line's metrics: `ttft_ms_p99`."""


class SearchSpec(Strict):
    """How points are chosen."""

    sampler: Literal["tpe", "gp", "nsga2", "random", "grid"] = "tpe"
    """Optuna's, or `grid`: every point once. `gp` needs the extra of that name; `nsga2` has each
    concurrency's speed-up as an objective of its own, the winner is still chosen by `objective`."""
    stages: list[Literal["comm", "anchors", "model", "confirm"]] | None = None
    """What is done before and after the sampler's turn (docs/search.md), `[]` for the sampler
    alone; default: all stages with `tpe` and `gp`, none with the others."""
    trials: Annotated[int, Field(ge=1, le=1_000_000)] = 40
    """Candidates to measure; `grid` measures every point whatever this says."""
    seed: Annotated[int, Field(ge=0)] = 0
    time_budget: Seconds | None = None
    """No new candidate is begun after this."""
    objective: ObjectiveSpec = ObjectiveSpec()
    limits: dict[LimitName, Annotated[float, Field(gt=0, le=1e9)]] = {}
    """Latencies in ms that what is recommended keeps: at every concurrency, or at the one that
    `objective.over` names."""
    max_failures: Annotated[int, Field(ge=1)] = 3
    """Failed launches in a row that stop the run."""
    storage: str | None = None
    """An Optuna storage URL; default: study.db in the run folder."""

    @property
    def active_stages(self) -> tuple[str, ...]:
        """`stages`, or what is usual with the sampler."""
        if self.stages is not None:
            return tuple(self.stages)
        return ("comm", "anchors", "model", "confirm") if self.sampler in ("tpe", "gp") else ()

    @model_validator(mode="after")
    def _has_stages_that_fit(self) -> Self:
        if self.stages and self.sampler == "grid":
            raise ValueError("stages: grid measures every point in order, remove stages")
        if self.stages and "model" in self.stages and "anchors" not in self.stages:
            raise ValueError("stages: model needs anchors to begin with, write [anchors, model]")
        return self


class TimeoutSpec(Strict):
    """How long to wait before giving up."""

    launch: Seconds = 1800.0
    request: Seconds = 300.0


class Sweep(Strict):
    """A sweep file, read and valid."""

    name: Name
    engine: EngineSpec
    model: ModelSpec
    server: ServerSpec = ServerSpec()
    baseline: BaselineSpec = BaselineSpec()
    space: SpaceSpec
    workload: WorkloadSpec = WorkloadSpec()
    measure: MeasureSpec = MeasureSpec()
    search: SearchSpec = SearchSpec()
    timeouts: TimeoutSpec = TimeoutSpec()
