"""Parts of a ledger line that say where a trial was measured, and what was known when it was
proposed: needed where several are measured at a time."""

from typing import Any

from pydantic import Field

from tuner.sweep.fields import Strict


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


class Before(Strict):
    """A proposal that had no result yet when another one was made."""

    number: int = Field(ge=0)
    after: int = Field(ge=0)
    along: list[dict[str, Any]] = Field(default_factory=list)


class AskedLine(Strict):
    """What the search knew when it proposed a candidate."""

    number: int = Field(ge=0)
    """Of the proposal, in the order in which they were made; lines are in the order in which they
    ended."""
    after: int = Field(ge=0)
    """Candidates that were in the ledger by then."""
    along: list[dict[str, Any]] = Field(default_factory=list)
    """Points that launches which ran by then measured besides their own, and that were therefore
    not to be proposed."""
    beside: list[Before] = Field(default_factory=list)
    """Proposals that ran by then: of one that a crash cut off there is no other trace."""
    drawn: list[list[int]] = Field(default_factory=list)
    """What the sampler drew for it: for each dimension of the space, which of its values. Without
    it a resume must ask the sampler for all of that again."""
