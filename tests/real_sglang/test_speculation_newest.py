"""Speculation on the newest release: the tests of test_speculation.py."""

from collections.abc import Iterator

import pytest

from tests.real_sglang.serving import NEW
from tests.real_sglang.test_speculation import (
    Run,
    Running,
    speculating,
    test_counts_are_those_of_a_count_by_hand,  # noqa: F401
    test_greedy_answers_are_those_without_speculation,  # noqa: F401
)

RUNS = [Run(NEW, "EAGLE3", 4), Run(NEW, "EAGLE", 3), Run(NEW, "STANDALONE", 2)]


@pytest.fixture(scope="module", params=RUNS, ids=str)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    with speculating(request.param, tmp_path_factory.mktemp("log")) as found:
        yield found
