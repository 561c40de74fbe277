import os
from collections.abc import Iterator

import pytest

from tests.execution.ray.local import LocalCluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """Two nodes with four counted GPUs each, and a head without. One for all tests of a worker."""
    if "SPECBENCH_TEST_CLUSTER" not in os.environ:
        pytest.skip("make test-cluster runs it")
    made = LocalCluster()
    try:
        yield made
    finally:
        made.end()
