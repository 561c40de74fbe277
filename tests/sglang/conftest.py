"""These tests run real servers and take minutes: only `make test-sglang` runs them."""

import os
from pathlib import Path

import pytest

SWITCH = "SPECBENCH_TEST_SGLANG"
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        item.add_marker(pytest.mark.sglang)
        item.add_marker(pytest.mark.timeout(900))
        if SWITCH not in os.environ:
            item.add_marker(pytest.mark.skip(reason="make test-sglang runs it"))
