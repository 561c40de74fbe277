"""One server of the newest release switched between chain lengths; see test_step_switch.py."""

from pathlib import Path

from tests.real_sglang.serving import NEW
from tests.real_sglang.stepping import Cell, cold_answers, refused, switched_answers, warm_server


def test_a_switched_server_is_as_one_that_was_launched_so(tmp_path: Path) -> None:
    """Otherwise a sweep would book a length's numbers that no launch with it could give."""
    cell = Cell(NEW, 1, 1, "EAGLE", (3,))
    cold = cold_answers(cell, 3, tmp_path)
    with warm_server(cell, (0, 1, 3), 1, tmp_path) as server:
        for steps in (3, 0, 3, 1, 3):
            found = switched_answers(server, steps)
            assert (found == cold) == (steps == 3)
            assert [each.tokens for each in found] == [each.tokens for each in cold]
        assert "2 is not among" in str(refused(server, 2))
