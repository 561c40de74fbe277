"""The section `workload` of a sweep file: what is sent to each server."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from tuner.sweep.fields import PathText, Strict
from tuner.sweep.level import PLACES, Level, Rate

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
