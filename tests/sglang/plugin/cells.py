"""Which configurations the comparison of matrix.py has, in sets that are run together."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.real_sglang import build
from tests.real_sglang.proof import Cell
from tests.real_sglang.serving import NEW, OLD
from tests.sglang.plugin.controls import CONTROLS, V1_CONTROLS


@dataclass(frozen=True)
class Controlled:
    """A cell and what is broken in it."""

    cell: Cell
    controls: Mapping[str, bool]
    """Whether the answers should survive it."""
    path: tuple[Path, ...]
    """What the broken servers have on PYTHONPATH."""


@dataclass(frozen=True)
class CellSet:
    """Cells that are run together, and what is shown beside them."""

    cells: tuple[Cell, ...]
    controlled: Controlled | None = None
    mapped: Cell | None = None
    """A draft at TP 1 that also gets a token map."""


FIRST, SECOND, LAST = build.OLDER
CONTROLS_AT = Path(__file__).parent / "controls"

SETS = {
    "later": CellSet(
        (
            Cell(OLD, 2, 1, "EAGLE3"),
            Cell(OLD, 2, 1, "EAGLE"),
            Cell(OLD, 2, 1, "STANDALONE"),
            Cell(OLD, 2, 1, "NEXTN"),
            Cell(OLD, 4, 2, "EAGLE3"),
            Cell(OLD, 4, 1, "EAGLE"),
            Cell(NEW, 2, 1, "EAGLE3"),
            Cell(NEW, 2, 1, "EAGLE"),
            Cell(NEW, 4, 2, "STANDALONE"),
            Cell(NEW, 4, 2, "NEXTN"),
        ),
        Controlled(Cell(OLD, 2, 1, "EAGLE3"), CONTROLS, (CONTROLS_AT,)),
    ),
    "between": CellSet(
        (
            Cell("0.5.11", 2, 1, "EAGLE"),
            Cell("0.5.12", 2, 1, "NEXTN"),
            Cell("0.5.13", 2, 1, "STANDALONE"),
            Cell("0.5.14", 2, 1, "EAGLE3"),
            Cell("0.5.15", 2, 1, "EAGLE"),
            Cell("0.5.16", 2, 1, "NEXTN"),
            Cell("0.5.18", 2, 1, "STANDALONE"),
            Cell("0.5.19", 2, 1, "EAGLE3"),
            Cell("0.5.20", 2, 1, "EAGLE"),
            Cell("0.5.21", 2, 1, "NEXTN"),
            Cell("0.5.22", 2, 1, "STANDALONE"),
            Cell("0.5.22", 4, 2, "EAGLE3"),
        )
    ),
    LAST: CellSet(
        (
            Cell(LAST, 2, 1, "EAGLE3"),
            Cell(LAST, 2, 1, "EAGLE"),
            Cell(LAST, 2, 1, "STANDALONE"),
            Cell(LAST, 4, 2, "EAGLE3"),
            Cell(LAST, 4, 1, "EAGLE"),
        ),
        Controlled(Cell(LAST, 2, 1, "EAGLE3"), V1_CONTROLS, (CONTROLS_AT / "started", CONTROLS_AT)),
        mapped=Cell(LAST, 2, 1, "EAGLE"),
    ),
    SECOND: CellSet(
        (
            Cell(SECOND, 2, 1, "EAGLE3"),
            Cell(SECOND, 2, 1, "EAGLE"),
            Cell(SECOND, 4, 2, "STANDALONE"),
        )
    ),
    FIRST: CellSet(
        (
            Cell(FIRST, 2, 1, "EAGLE3"),
            Cell(FIRST, 2, 1, "STANDALONE"),
            Cell(FIRST, 4, 2, "EAGLE"),
        )
    ),
}
"""Each release with each algorithm and each algorithm with each kind of block, not all three."""


def cell_of(text: str) -> Cell:
    """Of RELEASE:TP:DRAFT_TP:ALGORITHM."""
    release, tp, draft_tp, algorithm = text.split(":")
    return Cell(release, int(tp), int(draft_tp), algorithm)
