"""The engine contract, kept by SGLang 0.5.17: every test of tests/engine/test_contract.py."""

import pytest

from tests.engine.launching import Case
from tests.engine.test_contract import *  # noqa: F403
from tests.sglang import serving


@pytest.fixture(scope="module")
def case() -> Case:
    return serving.case(serving.OLD)
