"""Bringing a new study to where an earlier one was, from what the ledger remembers."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from tuner.config.point import Point
from tuner.search.asked import ProposalContext
from tuner.search.observation import Observation


class _Proposal(Protocol):
    @property
    def point(self) -> Point: ...


P = TypeVar("P", bound=_Proposal)


class _Study(Protocol[P]):
    def propose(self, along: Collection[Point] = ()) -> P | None: ...

    def take(self, point: Point, instead: P | None = None) -> P: ...

    def tell(self, proposal: P, verdict: Observation) -> None: ...

    def tell_unasked(self, point: Point, verdict: Observation) -> None: ...


def replay(
    study: _Study[P],
    measured: Sequence[tuple[Point, Observation]],
    unasked: Collection[Point],
    asked: Mapping[Point, ProposalContext],
) -> int:
    """Make the proposals again, wasted ones included, each when it was made, so that the next one
    is what the undisturbed run would have proposed.

    `measured` is in the order in which verdicts came; points in `unasked` were not proposed. A
    point that `asked` says nothing of was proposed when all before it had been told. A proposal
    that a crash cut off, but that others were made beside, is made again too and stays pending.
    Returns how many differed from the ledger (0 unless Optuna or the stages have changed); those
    are told all the same.
    """
    made: dict[Point, P] = {}
    told = differing = 0

    def tell_until(count: int) -> int:
        for point, verdict in measured[told:count]:
            if point in unasked:
                study.tell_unasked(point, verdict)
            else:
                proposal = made.pop(point, None)
                study.tell(study.take(point) if proposal is None else proposal, verdict)
        return max(told, count)

    for known, point in _in_order(measured, unasked, asked):
        told = tell_until(known.after)
        proposal = study.propose(known.along)
        if point is None:
            continue
        if proposal is None or proposal.point != point:
            differing += 1
            proposal = study.take(point, proposal)
        made[point] = proposal
    tell_until(len(measured))
    return differing


def _in_order(
    measured: Sequence[tuple[Point, Observation]],
    unasked: Collection[Point],
    asked: Mapping[Point, ProposalContext],
) -> list[tuple[ProposalContext, Point | None]]:
    """Every proposal as it was made; None for the point of one that has no line."""
    found: dict[int, tuple[ProposalContext, Point | None]] = {}
    for index, (point, _) in enumerate(measured):
        if point in unasked:
            continue
        known = asked.get(point)
        if known is None:
            known = ProposalContext(max(found, default=-1) + 1, index)
        found[known.number] = known, point
        for other in known.beside:
            found.setdefault(other.number, (replace(other, beside=()), None))
    return [found[number] for number in sorted(found)]
