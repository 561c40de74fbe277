"""The engine contract on the newest release: what two servers can show, and a refused start."""

import pytest

from tests.real_sglang import serving
from tests.server.launching import Case
from tests.server.test_engine_contract import (  # noqa: F401
    plain,
    speculating,
    test_a_launch_says_what_it_started,
    test_counts_of_a_stream_agree_with_each_other,
    test_refused_arguments_are_told_as_such,
    test_the_baseline_does_not_speculate,
    test_the_cache_can_be_emptied,
    test_the_server_is_known_by_a_name_of_this_launch,
    test_the_server_runs_with_the_point_that_was_asked_for,
    test_the_shown_command_is_complete_and_starts_nothing,
)


@pytest.fixture(scope="module")
def case() -> Case:
    return serving.case(serving.NEW)
