"""Blocks: points that one launch can measure, because only their chain length differs.

A running server can go from one chain length (num_steps at eagle_topk 1) to another that it was
prepared for; every other setting of a point needs a launch.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from tuner.config.loader import LoadedSweep
from tuner.config.point import Point
from tuner.config.schema import Sweep
from tuner.runs.records import TrialRecord
from tuner.server.base import Engine, ServerConfig, server_config


@dataclass(frozen=True)
class Block:
    """Two points or more that differ in num_steps alone, by ascending steps."""

    points: tuple[Point, ...]

    @property
    def steps(self) -> tuple[int, ...]:
        """Their chain lengths, ascending."""
        return tuple(chain_length(point) for point in self.points)

    def label(self) -> str:
        """Return the name in plans: `chains of 1, 3 and 5 steps, NCCL_PROTO=LL`."""
        *most, last = map(str, self.steps)
        lengths = f"chains of {', '.join(most)} and {last} steps"
        rest = self.points[0].family.label()
        return f"{lengths}, {rest}" if rest else lengths

    def config(self, sweep: Sweep) -> ServerConfig:
        """Return the server that is prepared for all points. It starts with the longest chain."""
        return server_config(sweep, self.points[-1], self.steps)


@dataclass(frozen=True)
class Blocks:
    """Blocks of a sweep. There are none if `server.step_switch` is false."""

    of_sweep: tuple[Block, ...]
    refusals: tuple[str, ...]
    """Why the other points have a launch each, although the file has `step_switch`."""

    @classmethod
    def of(cls, engine: Engine, loaded: LoadedSweep) -> "Blocks":
        """Return the blocks of a checked sweep that the engine can switch."""
        if not loaded.sweep.server.step_switch:
            return cls((), ())
        blocks, refusals = [], dict[str, None]()
        for block in _grouped(loaded.space.points):
            reason = engine.switch_refusal(block.config(loaded.sweep))
            if reason is None:
                blocks.append(block)
            else:
                refusals[reason] = None
        if not blocks and not refusals:
            refusals["no two points differ in num_steps alone at eagle_topk 1"] = None
        return cls(tuple(blocks), tuple(refusals))

    def notes(self) -> Iterator[str]:
        """Yield the notes for plans and runs."""
        if self.of_sweep:
            sizes = sorted({len(block.points) for block in self.of_sweep})
            sizes_words = f"up to {sizes[-1]}" if len(sizes) > 1 else str(sizes[-1])
            yield (
                f"one launch measures {sizes_words} chain lengths in turns; the winner is measured "
                "again with a launch of its own"
            )
        for reason in self.refusals:
            yield f"one launch a point: {reason}"

    def around(
        self,
        point: Point,
        records: Iterable[TrialRecord],
        room: int,
        taken: Collection[Point] = (),
    ) -> tuple[Point, ...]:
        """Return the points to measure in the launch of a proposed point: that point first.

        Then come the points of its block that no record has and no other launch measures (`taken`),
        the nearest chain lengths first, at most `room` points in all. The point is alone if it has
        no block, or if a shared launch of the block has failed.
        """
        block = next((block for block in self.of_sweep if point in block.points), None)
        if block is None:
            return (point,)
        mine = [record for record in records if record.at in block.points]
        if any(record.switch_failure is not None for record in mine):
            return (point,)
        known = {*taken, *(record.at for record in mine if record.role == "candidate")}
        left = _nearest(
            (each for each in block.points if each not in known and each != point), point
        )
        return (point, *left[: max(0, room - 1)])

    def cut_off(self, candidates: Iterable[TrialRecord]) -> tuple[Point, ...]:
        """Return the points of the last shared launch whose records did not reach the disk."""
        records = tuple(candidates)
        last = records[-1] if records else None
        if last is None or not last.warm_steps or last.switch_failure is not None:
            return ()
        known = {record.at for record in records}
        block = next((block for block in self.of_sweep if last.at in block.points), Block(()))
        first = next(r.at for r in records if r.launch_id == last.launch_id and r.at is not None)
        left = (each for each in block.points if chain_length(each) in last.warm_steps)
        return tuple(_nearest((each for each in left if each not in known), first))


def chain_length(point: Point) -> int:
    """Return the chain length of a point of a block."""
    assert point.num_steps is not None
    return point.num_steps


def _nearest(points: Iterable[Point], to: Point) -> list[Point]:
    """Sort points by the distance of their chain lengths from that of `to`, shorter ones first."""
    steps = chain_length(to)
    return sorted(points, key=lambda each: (abs(chain_length(each) - steps), chain_length(each)))


def partial_block(points: Iterable[Point]) -> Block:
    """Return a block of some points of one block."""
    return Block(tuple(sorted(points, key=chain_length)))


def _grouped(points: Iterable[Point]) -> Iterator[Block]:
    """Yield the blocks of a space in the order of their first points."""
    families: dict[Point, list[Point]] = {}
    for point in points:
        if point.eagle_topk == 1 and point.num_steps is not None:
            families.setdefault(point.family, []).append(point)
    for members in families.values():
        if len(members) > 1:
            yield partial_block(members)


def count_launches(blocks: Blocks, points: int, wanted: int) -> int:
    """Return the launches for `wanted` of a space's `points`. A block counts as one launch.

    If not all points are measured, the number is in proportion: the search chooses the blocks.
    """
    in_blocks = sum(len(block.points) for block in blocks.of_sweep)
    whole = points - in_blocks + len(blocks.of_sweep)
    return -(-whole * wanted // points) if points else 0
