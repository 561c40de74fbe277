"""What the plug-in, doctor and the docs call proven is in a log of the comparison."""

from pathlib import Path

import pytest

from tests.real_sglang import build
from tests.real_sglang.proof import Cell
from tests.sglang.plugin.cells import SETS
from tuner.sglang.plugin.specbench_sglang.versions import PROVEN

LOGS = sorted((build.CHECKOUT / "results/draft_tp_matrix").glob("cpu*.log"))
CELLS = [cell for each in SETS.values() for cell in each.cells]


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_a_kept_log_is_of_a_comparison_that_held(log: Path) -> None:
    """A log with a difference in it would be shown as proof."""
    text = log.read_text()
    assert text.endswith("\nall as it should be\n")
    assert "DIFFERENT" not in text
    assert "FAILED" not in text


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_each_comparison_that_can_be_asked_for_is_in_a_kept_log(cell: Cell) -> None:
    """NEXTN was called proven on two releases whose log, older than its cells, has none of it."""
    assert any(f"{cell.told}\n  batch 1 " in log.read_text() for log in LOGS)


def test_each_proven_release_was_compared() -> None:
    """Doctor says `run on` of these, and is believed."""
    assert set(PROVEN) == {cell.release for cell in CELLS}


@pytest.mark.parametrize(("release", "is_told"), [("0.5.15", True), ("0.5.16", False)])
def test_kernels_are_interpreted_where_there_is_no_branch_for_a_cpu(
    release: str, is_told: bool, tmp_path: Path
) -> None:
    """Without it, servers of 0.5.11 to 0.5.15 end at start; with it, the others are slow."""
    build.write_wrapper(tmp_path / "python", release, tmp_path, tmp_path / "python3")
    assert ("TRITON_INTERPRET" in (tmp_path / "python").read_text()) is is_told
