"""The keys below `engine`."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from tuner.sweep.fields import PathText, Strict, Url


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


class EngineSpec(Strict):
    """What serves the model."""

    kind: Literal["sglang", "simulated", "endpoint"]
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
        if self.kind == "endpoint" and self.url is None:
            raise ValueError("kind endpoint needs a url, such as url: http://127.0.0.1:30000")
        return self
