"""The shape of a sweep file. Every class is strict and frozen; `door.load` reads a file into it.

Field descriptions end up in the JSON Schema that `specbench schema` prints.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticKnownError

from tuner.config import field_types
from tuner.config.dimensions import with_dimensions
from tuner.config.exclusions import ExcludeSpec
from tuner.config.field_types import (
    UNSET,
    Deadline,
    EnvValue,
    FlagChoice,
    FlagName,
    ListedChoice,
    ModelName,
    Name,
    PathText,
    Seconds,
    Strict,
    Url,
    VariableName,
)
from tuner.config.load_level import PLACES, RATE, Level, Rate, parse_level


class FaultSpec(Strict):
    """A fault that the simulated engine plays, for rehearsals and tests."""

    kind: str
    """One of the names that `specbench simulate --help` lists."""
    launches: list[Annotated[int, Field(ge=0)]] | None = None
    """Launch numbers that have the fault, the baseline's being 0; default: every launch."""
    rank: Annotated[int, Field(ge=0, le=1023)] = 0
    """Of a server that spans nodes, the rank that has the fault."""
    value: Annotated[float, Field(ge=0, le=1e9)] | None = None
    """The fault's number where it has one (`hang-after`: tokens, `slow-start`: seconds)."""


@dataclass(frozen=True)
class EngineTraits:
    """Facts about a kind of engine that rules, plans and reports depend on.

    They hold without the engine: a report may be written where the engine cannot run.
    """

    launches_servers: bool = True
    """False: the engine measures a server that already runs, as it is."""
    is_simulated: bool = False
    """True: a performance model answers, and no number was measured on hardware."""

    @property
    def uses_gpus(self) -> bool:
        """True if launches take GPUs of this machine and read the models' files."""
        return self.launches_servers and not self.is_simulated


ENGINE_TRAITS: dict[str, EngineTraits] = {
    "sglang": EngineTraits(),
    "simulated": EngineTraits(is_simulated=True),
    "endpoint": EngineTraits(launches_servers=False),
}
"""Traits of each known kind. `tuner.engines.register` adds a kind."""
BUILT_IN_ENGINES = tuple(ENGINE_TRAITS)


def _known_kind(value: Any) -> str:
    if isinstance(value, str) and value in ENGINE_TRAITS:
        return value
    *others, last = map(repr, ENGINE_TRAITS)
    expected = f"{', '.join(others)} or {last}"
    raise PydanticKnownError("literal_error", {"expected": expected})


class EngineSpec(Strict):
    """What serves the model."""

    kind: Annotated[
        str,
        PlainValidator(_known_kind),
        WithJsonSchema({"enum": list(BUILT_IN_ENGINES), "type": "string"}),
    ]
    """`sglang` launches SGLang, `simulated` plays it, `endpoint` measures a running server."""
    python: PathText | None = None
    """The interpreter that has SGLang; default: the one that runs specbench."""
    release: str | None = None
    """SGLang's version, such as 0.5.17, where `command` hides the interpreter from specbench;
    default: what `python` has. Simulated: the release that is played."""
    command: list[str] = []
    """Words put in front of the launch command: `[numactl, --cpunodebind=0]`, `[srun, -n1]`."""
    preset: str | None = None
    """Simulated: the machine and model played; also with `--engine simulated`. Default:
    `quickstart`."""
    startup_scale: Annotated[float, Field(ge=0, le=10)] = 0.001
    """Simulated: real seconds slept for each second of modelled start-up."""
    overrides: dict[str, Any] = {}
    """Simulated: numbers of the preset to change, such as `{acceptance: 0.19}`."""
    faults: list[FaultSpec] = []
    """Simulated: what goes wrong on purpose: `{kind: hang-after, value: 20, launches: [2]}`."""
    url: Url | None = None
    """Endpoint: where the server answers, such as `http://127.0.0.1:30000`."""

    api_key: Annotated[str, Field(min_length=1)] | None = None
    """Endpoint: what the server was started with as `--api-key`, such as `"${SGLANG_API_KEY}"`, a
    variable's name (docs/sweep_file.md#secrets). A server that is launched:
    `server: {flags: {api-key: ...}}`."""
    admin_api_key: Annotated[str, Field(min_length=1)] | None = None
    """Endpoint: the same of `--admin-api-key`, which then empties the cache."""

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Self:
        if not self.launches_servers and self.url is None:
            raise ValueError(f"kind {self.kind} needs a url, such as url: http://127.0.0.1:30000")
        return self

    @property
    def launches_servers(self) -> bool:
        """See `EngineTraits`."""
        return ENGINE_TRAITS[self.kind].launches_servers

    @property
    def is_simulated(self) -> bool:
        """See `EngineTraits`."""
        return ENGINE_TRAITS[self.kind].is_simulated

    @property
    def uses_gpus(self) -> bool:
        """See `EngineTraits`."""
        return ENGINE_TRAITS[self.kind].uses_gpus


MAX_CONCURRENCY = 512
CAP = 256
"""Open at a time of requests that come at a rate, where nothing is said."""
RequestRate = Annotated[float, Field(ge=0.001, le=100_000)]


class WorkloadSpec(Strict):
    """What is sent to each server."""

    prompts: Annotated[PathText, Field(min_length=1)] = "builtin:mixed"
    """`builtin:` chat, code, math, summarise or mixed; or a file beside the sweep file, JSONL or a
    JSON list, of specbench's own shape (`{"prompt": ...}` or `{"messages": ...}`), ShareGPT's,
    MT-Bench's, SPEED-Bench's, GSM8K's or HumanEval's (docs/workload.md#prompt-files)."""
    turns: Literal["first", "all"] = "first"
    """Of conversations: the first turn of each, or every turn of the user, one after the other,
    each after the file's own answers, or where it has none (MT-Bench, SPEED-Bench) those of the
    server without speculation (docs/workload.md#conversations)."""
    answers: Annotated[PathText, Field(min_length=1)] | None = None
    """With `turns: all` and prompts that have none: a file of the answers between turns, the
    `conversations.jsonl` of an earlier run, so that both runs send the same and can be compared;
    default: the server without speculation writes them."""
    requests: Annotated[int, Field(ge=1, le=1_000_000)] = 16
    """Requests of one measured window; a concurrency above it sends one request per stream, but
    not at a request rate."""
    output_tokens: Annotated[int, Field(ge=2, le=1_000_000)] = 256
    """Tokens of each answer."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    """Of sampling; 0 is greedy, and only greedy outputs are compared."""
    concurrency: list[Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)]] = Field(
        default=[1], min_length=1
    )
    """Numbers of streams held open at a time; each level is measured by itself. With several
    request rates one number, the most that are open at any rate. Default: 1; with a request rate
    256, so that the server has what waits."""
    request_rate: RequestRate | Annotated[list[RequestRate], Field(min_length=1)] | None = None
    """Requests (of `turns: all`: conversations) that come in a second, by a Poisson process; each
    concurrency is then how many are open at most (docs/workload.md#requests-at-a-rate). Each rate,
    of a list such as `[4, 8, 16]` too, is a level that is measured by itself, named `4/s`. Default:
    each stream sends its next request when its last has ended. With a rate
    `search.objective.metric` has to be `decode_tok_s`."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Order of the prompts, and when they come."""
    ignore_eos: bool = True
    """Every request runs to its full length, so that all points do the same work."""
    task: Annotated[PathText, Field(min_length=1)] | None = None
    """A file of questions in GSM8K's shape by which the baseline and the winner are scored
    (docs/outputs.md#a-task); default: none."""
    task_tokens: Annotated[int, Field(ge=2, le=1_000_000)] = 512
    """Tokens of an answer to one of these, at most."""

    @model_validator(mode="before")
    @classmethod
    def _open(cls, given: Any) -> Any:
        """One stream for what comes at a rate would be all that is measured."""
        if isinstance(given, dict) and given.get("request_rate") is not None:
            return {"concurrency": [CAP], **given}
        return given

    @property
    def levels(self) -> tuple[Level, ...]:
        """What each configuration is measured at: the rates, or else the concurrencies, as the
        file has them; with one rate and several concurrencies each is a cap at that rate."""
        rates = self.request_rate
        if isinstance(rates, float) and len(self.concurrency) == 1:
            rates = [rates]
        if isinstance(rates, list):
            turns = None if self.turns == "all" else 1.0
            return tuple(Rate(round(each, PLACES), turns) for each in rates)
        return tuple(self.concurrency)

    def requests_at(self, level: Level) -> int:
        """Requests of one window at the level, at least: one for each stream of a closed loop."""
        if isinstance(level, Rate) or self.rate(level) is not None:
            return self.requests
        return max(self.requests, level)

    def streams(self, level: Level) -> int:
        """Requests open at a time at the level, at most."""
        return self.concurrency[0] if isinstance(level, Rate) else level

    def rate(self, level: Level) -> float | None:
        """Requests that come in a second at the level; None in a closed loop."""
        if isinstance(level, Rate):
            return level.per_second
        return None if isinstance(self.request_rate, list) else self.request_rate


ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM")
STEP_SWITCHERS = ("EAGLE", "EAGLE3", "NEXTN")
"""Algorithms whose chain length a running server can switch (SGLang's adaptive speculation)."""
USUAL_WINDOWS, MOST_WINDOWS = 3, 20
"""Without `measure.repeats`; the second with `measure.target_width`."""


class ModelSpec(Strict):
    """The target model, the draft that speculates for it, and how both are placed."""

    target: Annotated[ModelName, Field(min_length=1)]
    """A name or a folder."""
    draft: Annotated[ModelName, Field(min_length=1)] | None = None
    """A name or a folder; required for EAGLE, EAGLE3 and STANDALONE."""
    algorithm: Literal["EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"] | None
    """SGLang's `--speculative-algorithm`; required, but for a server that runs already
    (`engine.kind: endpoint`)."""
    tp: Annotated[int, Field(ge=1, le=1024)] = 1
    """Tensor-parallel size of the target, in GPUs."""

    @property
    def speculation(self) -> str:
        """The algorithm, in words for people."""
        return self.algorithm or "as the server runs it"

    @model_validator(mode="after")
    def _has_its_draft(self) -> Self:
        if self.algorithm in ("EAGLE", "EAGLE3", "STANDALONE") and self.draft is None:
            raise ValueError(f"{self.algorithm} needs a draft model, write draft: PATH-OR-NAME")
        if self.algorithm == "NGRAM" and self.draft is not None:
            raise ValueError("NGRAM has no draft model, remove draft")
        return self


ServerFlag = FlagChoice | list[ListedChoice]


class SettingsSpec(Strict):
    """Flags and variables."""

    flags: dict[FlagName, ServerFlag] = {}
    """SGLang's flags, without dashes; `true` is a bare flag."""
    env: dict[VariableName, EnvValue] = {}
    """Environment variables; `unset` removes one that is inherited."""


class ServerSpec(SettingsSpec):
    """Flags and variables that every server of the run gets, the baseline included."""

    step_switch: bool = False
    """One launch measures all chain lengths (num_steps at topk 1) that share their other
    settings, in turns; where SGLang's release or the flags cannot, one launch a point
    (docs/step_switch.md)."""

    def flag(self, name: str) -> ServerFlag | None:
        """A flag that every server has, if the space leaves it; None where it is open or false."""
        value = self.flags.get(name)
        return None if value is False or value == UNSET else value

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """What a server has that inherits these variables, before a point's own."""
        kept = {name: value for name, value in inherited.items() if name not in self.env}
        return kept | {name: value for name, value in self.env.items() if value != UNSET}


class BaselineSpec(SettingsSpec):
    """The server without speculation that everything is held against."""

    launches: Annotated[int, Field(ge=1, le=3)] = 2
    """1: before the candidates; 2: after them too, which shows drift and how far launches differ;
    3: also once in the middle, where candidates take 8 launches or more
    (docs/statistics.md#several-launches-of-the-baseline)."""
    reference_tok_s: Annotated[float, Field(ge=0.001, le=1e9)] | None = None
    """A figure known from elsewhere, shown beside the measured one and never mixed with it."""


_Dimensions = with_dimensions(
    lambda dimension: (
        dimension.file_type | None,
        Field(default=None, description=dimension.description),
    )
)


class SpaceSpec(_Dimensions):  # type: ignore[misc,valid-type]  # made from the table
    """The dimensions of the search, each with the values it may take."""

    env: dict[VariableName, Annotated[list[EnvValue], Field(min_length=1)]] = {}
    """Variables to vary: `NCCL_PROTO: [unset, LL]`; `unset` removes it from the server's
    environment."""
    flags: dict[FlagName, Annotated[list[FlagChoice], Field(min_length=1)]] = {}
    """Flags to vary: `disable-custom-all-reduce: [false, true]`."""
    exclude: list[ExcludeSpec] = []
    """Combinations that are not tried: `[{env: {NCCL_ALGO: Tree}, flags:
    {disable-custom-all-reduce: false}}]`. An entry names values (or lists of them) of some
    dimensions and takes out what fits all of it."""


class MeasureSpec(Strict):
    """How long each point is measured."""

    warmup_requests: Annotated[int, Field(ge=0, le=100_000)] = 2
    """Requests sent before each level's windows and not counted; 0 for none, otherwise one for each
    stream at least, so that the batch is as large as it will be. At a request rate so many."""
    repeats: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Windows per concurrency level; at most, where `racing` or `target_width` stops earlier.
    Default: 3, with `target_width` 20."""
    racing: bool = True
    """A candidate's windows at a level end early where it is clearly slower there than the best
    so far (docs/search.md#racing); never those of the baseline or of a confirmation."""
    target_width: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Windows of a level go on until the 95 % interval of the objective's metric is this share of
    it or less to either side, such as 0.01, or until `repeats`; default: `repeats` alone."""
    outputs: Literal["stop", "warn", "ignore"] = "stop"
    """Greedy outputs far from the baseline's (docs/outputs.md): `stop` does not recommend such a
    candidate, `warn` only says so, `ignore` neither keeps nor compares outputs."""
    outputs_off: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Outputs are far where more than this share of the prompts part from the baseline's early or
    end in a loop."""

    @property
    def windows(self) -> int:
        """Windows of each level at most."""
        if self.repeats is not None:
            return self.repeats
        return USUAL_WINDOWS if self.target_width is None else MOST_WINDOWS


class ObjectiveSpec(Strict):
    """What is maximised: each level's ratio to the baseline, combined over the levels."""

    metric: Literal["output_tok_s", "decode_tok_s"] = "output_tok_s"
    """Whose ratio to the baseline counts (docs/metrics.md#speed); `decode_tok_s` has to be written
    where there is a `workload.request_rate`: what keeps up has the same output_tok_s."""
    over: (
        Literal["geomean", "min"]
        | Annotated[int, Field(ge=1)]
        | Annotated[str, Field(pattern=f"^{RATE}$")]
    ) = "geomean"
    """How the levels' ratios are combined: `geomean` or `min` over all, or one level (`8`, or
    `8/s` of several request rates)."""

    @property
    def level(self) -> Level | None:
        """The one level that decides; None where all do."""
        return None if self.over in ("geomean", "min") else parse_level(str(self.over))


LimitName = Annotated[str, BeforeValidator(field_types.latency_name)]
"""A latency of a ledger line's metrics: `ttft_ms_p99`."""


class SearchSpec(Strict):
    """How points are chosen."""

    sampler: Literal["tpe", "gp", "nsga2", "random", "grid"] = "tpe"
    """Optuna's, or `grid`: every point once. `gp` needs the extra of that name; `nsga2` has each
    concurrency's speed-up as an objective of its own, the winner is still chosen by `objective`
    (docs/search.md#samplers)."""
    stages: list[Literal["comm", "anchors", "model", "confirm"]] | None = None
    """What is done before and after the sampler's turn (docs/search.md), `[]` for the sampler
    alone; default: all stages with `tpe` and `gp`, none with the others."""
    trials: Annotated[int, Field(ge=1, le=1_000_000)] = 40
    """Candidates at most, the baseline does not count; `grid` measures every point whatever this
    says."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Of samplers, and of ties."""
    time_budget: Seconds | None = None
    """From the baseline on, of each call. Nothing is begun that is not expected to end before it,
    and candidates leave time for the closing launches; what is being measured is finished
    (docs/long_runs.md#when-it-ends). Default: no end."""
    deadline: Deadline | None = None
    """The same as a time on the clock: `"07:30"`, the next one here when specbench is called, or
    `2026-12-01T07:30+01:00`; `--deadline` gives another one for a call. Default: none."""
    objective: ObjectiveSpec = ObjectiveSpec()
    limits: dict[LimitName, Annotated[float, Field(gt=0, le=1e9)]] = {}
    """Latencies in ms that what is recommended keeps, at every concurrency or at the one that
    `objective.over` names: `{ttft_ms_p99: 500, tpot_ms_p90: 30}` (docs/search.md#latency-limits);
    ttft, tpot, itl and e2e at p50, p90 and p99."""
    max_failures: Annotated[int, Field(ge=1)] = 3
    """Failed candidates in a row that stop the run; each may have had a second launch."""
    storage: str | None = None
    """An Optuna storage URL, where the study is shown beside those of others (hosts that search
    together have theirs by `specbench worker`, docs/workers.md); only
    `specbench dashboard RUN` shows the run's files too. Default: study.db in the run folder."""

    @property
    def active_stages(self) -> tuple[str, ...]:
        """`stages`, or what is usual with the sampler."""
        if self.stages is not None:
            return tuple(self.stages)
        return ("comm", "anchors", "model", "confirm") if self.sampler in ("tpe", "gp") else ()

    @model_validator(mode="after")
    def _has_stages_that_fit(self) -> Self:
        if self.sampler == "grid" and set(self.stages or ()) - {"confirm"}:
            raise ValueError(
                "stages: grid measures every point in order, remove stages or write [confirm]"
            )
        if self.stages and "model" in self.stages and "anchors" not in self.stages:
            raise ValueError("stages: model needs anchors to begin with, write [anchors, model]")
        return self


class TimeoutSpec(Strict):
    """How long to wait before giving up."""

    launch: Seconds = 1800.0
    """From the start of a server until it answers."""
    request: Seconds = 300.0
    """For one request."""


class Sweep(Strict):
    """A sweep file, read and valid."""

    name: Name
    """Names the folder of the runs, `results/NAME/`."""
    engine: EngineSpec
    model: ModelSpec
    server: ServerSpec = ServerSpec()
    slots: Literal["auto"] | Annotated[int, Field(ge=1, le=256)] = 1
    """Servers that are measured at the same time, each on GPUs of its own; `auto`: as many as the
    GPUs are enough for (docs/slots.md). Baselines and confirmations run alone."""
    baseline: BaselineSpec = BaselineSpec()
    space: SpaceSpec
    workload: WorkloadSpec = WorkloadSpec()
    measure: MeasureSpec = MeasureSpec()
    search: SearchSpec = SearchSpec()
    timeouts: TimeoutSpec = TimeoutSpec()
    on_finish: list[Annotated[str, Field(min_length=1)]] = []
    """A command that is run when a run ends, word by word, no shell: `[notify-send, done]`
    (docs/long_runs.md#when-it-ends)."""

    @model_validator(mode="before")
    @classmethod
    def _as_it_runs(cls, data: Any) -> Any:
        """A server that runs already has its algorithm, and its one point."""
        match data:
            case {"engine": {"kind": str(kind)}, "model": dict(model)} if kind in ENGINE_TRAITS:
                if not ENGINE_TRAITS[kind].launches_servers:
                    return {"space": {}, **data, "model": {"algorithm": None, **model}}
        return data


def json_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a sweep file."""
    schema = Sweep.model_json_schema()
    # What a server that runs already says itself may be left out, and only there.
    endpoint = {"properties": {"engine": {"properties": {"kind": {"const": "endpoint"}}}}}
    launched = {"required": ["space"], "properties": {"model": {"required": ["algorithm"]}}}
    schema["required"].remove("space")
    schema["$defs"]["ModelSpec"]["required"].remove("algorithm")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "if": endpoint,
        "else": launched,
        "title": "specbench sweep file",
    }


def objective_levels(sweep: Sweep) -> tuple[Level, ...]:
    """Return the levels with an objective each, or () if the sampler has a single objective."""
    return sweep.workload.levels if sweep.search.sampler == "nsga2" else ()
