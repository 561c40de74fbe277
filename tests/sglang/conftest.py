"""These tests run real servers and take minutes: only `make test-sglang` runs them."""

from pathlib import Path

import pytest

from tests import opt_in

SWITCH = "SPECBENCH_TEST_SGLANG"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    opt_in.mark(items, Path(__file__).parent, SWITCH, "make test-sglang")
