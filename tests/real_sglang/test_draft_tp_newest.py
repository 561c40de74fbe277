"""The draft on a TP size of its own, SGLang 0.5.23; see test_draft_tp.py."""

from pathlib import Path

from tests.real_sglang.patched import patched_python
from tests.real_sglang.proof import Cell
from tests.real_sglang.serving import NEW
from tests.sglang.plugin.matrix import run, stock_of

CELL = Cell(NEW, 2, 1, "EAGLE")


def test_a_source_with_the_diff_applied_drafts_what_the_stock_one_does(tmp_path: Path) -> None:
    """Plug-in and diff are the same code; the newest release has the most rearranged workers."""
    python = patched_python(NEW, tmp_path)
    stock = stock_of(CELL, tmp_path)
    assert run(CELL, "target", tmp_path, python=python, SPECBENCH_DRAFT_TP="1") == stock
    assert "draft TP 1 of target TP 2" in (tmp_path / f"{CELL}-target.log").read_text()
