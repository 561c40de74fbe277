"""What the search knew when it made a proposal, where several are measured at a time."""

from dataclasses import dataclass, field

from optuna.trial import Trial

from tuner.config.point import Point
from tuner.search.decision import Decision
from tuner.search.given import GivenTrial


@dataclass(frozen=True, slots=True)
class ProposalContext:
    """One proposal among those of a run."""

    number: int
    """In the order in which they were made, from 0."""
    after: int
    """Points that had been told by then."""
    along: tuple[Point, ...] = ()
    """Points that were not to be proposed: launches that ran measured them along."""
    beside: tuple["ProposalContext", ...] = ()
    """Proposals without a verdict by then; their own `beside` is left out."""
    drawn: tuple[tuple[int, ...], ...] = ()
    """What the sampler drew for it, wasted ones first: which of its values each of the space's
    dimensions had. The point itself is the last one, unless the sampler found none."""


@dataclass(frozen=True)
class Proposal:
    """A legal point that is not measured yet, answered with `Study.tell`."""

    point: Point
    trial: Trial | GivenTrial
    decision: Decision | None = None
    """Why this point; None where there are no stages."""
    asked: ProposalContext = field(default_factory=lambda: ProposalContext(0, 0))
    """What was known then."""
