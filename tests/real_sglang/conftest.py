"""These tests run real servers and take minutes: only `make test-sglang` runs them."""

import os
from pathlib import Path

import pytest

from tests import opt_in

HERE = Path(__file__).parent
SWITCH = "SPECBENCH_TEST_SGLANG"

LONGEST = ("real_pair", "contract", "step_switch", "draft_tp", "faults", "speculation")
"""Files by what they launch, a server of two ranks counted twice. One file runs on one core: a long
one that began last would run alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    opt_in.mark(items, HERE, SWITCH, "make test-sglang")
    if SWITCH in os.environ:
        items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    """Where an item's file begins; sorting keeps the order within and among the others."""
    name = item.path.stem.removeprefix("test_")
    is_long = item.path.parent == HERE and name in LONGEST
    return LONGEST.index(name) if is_long else len(LONGEST)
