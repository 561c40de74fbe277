"""Parts of a ledger line that judge a trial: its outputs, its task, its limits."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tuner.measure.overload import SERVED
from tuner.sweep.fields import Strict
from tuner.sweep.level import RATE


def in_the_folder(value: str) -> str:
    """The path itself. Raises ValueError where it is none in the run folder."""
    odd = len(value) > 200 or "\0" in value or value.startswith("/") or ".." in value.split("/")
    if odd:
        raise ValueError("this is no path in the run folder")
    return value


PathInRun = Annotated[str, AfterValidator(in_the_folder)]
"""Of a file, relative to the run folder; `RunFolder.within` also looks where links lead."""


class OutputCounts(Strict):
    """What `measure.outputs.Comparison.to_json` writes."""

    prompts: int
    equal: int
    early: int
    looping: int
    off: int
    prefix: dict[str, int]
    """Tokens in common from the start, by percentile of the prompts."""
    tokens_to_part: float | None


class OutputsLine(Strict):
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
