"""These tests launch an 8B-shaped server on real GPUs: only `make test-gpu` runs them."""

import os
from pathlib import Path

import pytest

INTERPRETER = "SPECBENCH_TEST_GPU"
"""Names the Python that has SGLang."""
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        item.add_marker(pytest.mark.sglang)
        item.add_marker(pytest.mark.timeout(900))
        if INTERPRETER not in os.environ:
            item.add_marker(pytest.mark.skip(reason="make test-gpu runs it"))
