"""Bringing a new study to where an earlier one was by what its ledger says that it drew.

`replayed.replay` makes every proposal again, each with what the sampler did for it: with a model
that is fitted to all before it, so the whole takes time with the square of the trials. Where the
ledger has every combination that the sampler drew, none of it is needed: the same trials are put
into the study, and the next proposal is the one that an undisturbed run would have made.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from operator import lt

from tuner.config.point import Point
from tuner.search.asked import ProposalContext
from tuner.search.decision import Decision
from tuner.search.observation import Observation

_STAGED = ("anchors", "model", "check")
_WITHOUT_DRAWS = frozenset({"grid"})
_WITH_MORE = frozenset({"nsga2"})
"""Samplers whose state is more than their trials: generations."""


def is_staged(decision: Decision | None) -> bool:
    """The stages named the point themselves, so no sampler was asked."""
    return decision is not None and decision.stage in _STAGED


@dataclass(frozen=True)
class Recollection:
    """What a ledger says of its proposals besides points and verdicts."""

    unasked: Set[Point]
    """Points that were measured without being proposed."""
    asked: Mapping[Point, ProposalContext]
    decided: Mapping[Point, Decision]

    def drawn(self, point: Point) -> Sequence[Sequence[int]]:
        """What the sampler drew for a point."""
        asked = self.asked.get(point)
        return () if asked is None else asked.drawn

    def is_enough(
        self, sampler: str, measured: Sequence[tuple[Point, Observation]], sizes: Sequence[int]
    ) -> bool:
        """Whether each proposal was made when all before it had been told, and its draws are
        kept (an older specbench did not) and are some of a space whose dimensions have so many
        values."""
        for index, (point, _) in enumerate(measured):
            if point in self.unasked:
                continue
            asked = self.asked.get(point)
            if asked is not None and (asked.along or asked.beside or asked.after != index):
                return False
            if is_staged(self.decided.get(point)) or sampler in _WITHOUT_DRAWS:
                continue
            drawn = self.drawn(point)
            if sampler in _WITH_MORE or not drawn:
                return False
            if not all(_fits(places, sizes) for places in drawn):
                return False
        return True


def _fits(places: Sequence[int], sizes: Sequence[int]) -> bool:
    return len(places) == len(sizes) and all(map(lt, places, sizes)) and min(places, default=0) >= 0
