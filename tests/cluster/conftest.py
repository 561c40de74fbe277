import importlib.util
from collections.abc import Iterator

import pytest

from tests.cluster.local import LocalCluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """Two nodes with four counted GPUs each, and a head without. One for all tests of a worker."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs the extra ray")
    made = LocalCluster()
    try:
        yield made
    finally:
        made.end()
