"""The engine contract (tests/server/test_engine_contract.py) on SGLang 0.5.17."""

import pytest

from tests.real_sglang import serving
from tests.server.launching import Case
from tests.server.test_engine_contract import *  # noqa: F403


@pytest.fixture(scope="module")
def case() -> Case:
    return serving.case(serving.OLD)
