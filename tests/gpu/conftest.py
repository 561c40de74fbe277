"""These tests launch an 8B-shaped server on real GPUs: only `make test-gpu` runs them."""

from pathlib import Path

import pytest

from tests import opt_in

INTERPRETER = "SPECBENCH_TEST_GPU"
"""Names the Python that has SGLang."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    opt_in.mark(items, Path(__file__).parent, INTERPRETER, "make test-gpu")
