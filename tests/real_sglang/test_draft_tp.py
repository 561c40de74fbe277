"""The draft on a TP size of its own, SGLang 0.5.17: the stock server's answers, token by token.

The whole set is `make draft-tp-matrix`. The newest release's part is in test_draft_tp_newest.py:
one file runs on one core.
"""

from pathlib import Path

import pytest

from tests.real_sglang.patched import patched_python
from tests.real_sglang.proof import Cell
from tests.real_sglang.serving import OLD
from tests.sglang.plugin.matrix import run, stock_of

CELL = Cell(OLD, 2, 1, "EAGLE3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for both tests, which share the stock server's answers."""
    return tmp_path_factory.mktemp("draft_tp")


def test_the_moved_draft_drafts_what_the_stock_one_does(folder: Path) -> None:
    """Otherwise a sweep would recommend a draft that is right less often, or answers that differ.

    Batch 1 and 8, chunked prefill, seeded sampling, an abort and a flush.
    """
    stock = stock_of(CELL, folder)
    assert run(CELL, 1, folder) == stock
    assert sum(each.accepted for each in stock["batch 8"]), "nothing was accepted"


def test_a_source_with_the_diff_applied_does_the_same(folder: Path) -> None:
    """People who build SGLang themselves would ship what nobody has run."""
    python = patched_python(OLD, folder)
    stock = stock_of(CELL, folder)
    assert run(CELL, "target", folder, python=python, SPECBENCH_DRAFT_TP="1") == stock
    assert "draft TP 1 of target TP 2" in (folder / f"{CELL}-target.log").read_text()
