"""One SGLang 0.5.17 server switched between chain lengths: as servers launched with each.

The whole matrix is `python -m tests.real_sglang.stepping`. The newest release's part is in
test_step_switch_newest.py: one file runs on one core.
"""

from pathlib import Path

from tests.real_sglang.serving import OLD
from tests.real_sglang.stepping import (
    Cell,
    Outcome,
    accepted,
    cold_answers,
    pinned,
    refused,
    refused_while_busy,
    switched_answers,
    warm_server,
)


def test_a_switched_server_is_as_one_that_was_launched_so(tmp_path: Path) -> None:
    """Otherwise a sweep would book a length's numbers that no launch with it could give.

    Tokens and everything of speculation in meta_info, after each way of getting there.
    """
    cell = Cell(OLD, 1, 1, "EAGLE3", (2,))
    cold, plain = cold_answers(cell, 2, tmp_path), cold_answers(cell, 0, tmp_path)
    with warm_server(cell, (0, 1, 2, 3), 2, tmp_path) as server:
        assert switched_answers(server, 2) == cold
        seen: dict[int, list[Outcome]] = {}
        for steps in (3, 2, 0, 1, 2, 1, 0, 3, 2):
            found = switched_answers(server, steps)
            assert found == {0: plain, 2: cold}.get(steps, found)
            assert found == seen.setdefault(steps, found)
            assert [each.tokens for each in found] == [each.tokens for each in plain]
        # Were lengths not really switched, all of this would hold too.
        assert len({str(accepted(found)) for found in seen.values()}) == len(seen)

        assert "4 is not among" in str(refused(server, 4))
        reason, histogram = refused_while_busy(server, 1)
        assert "not idle" in str(reason)
        assert len(histogram) == 3 and pinned(server) == 2
        assert switched_answers(server, 2) == cold


def test_ranks_switch_together_also_with_the_draft_on_its_own_tp(tmp_path: Path) -> None:
    """A rank that drafted fewer tokens than the others would hang or mix their inputs."""
    cell = Cell(OLD, 2, 1, "EAGLE3", (1,))
    cold = cold_answers(cell, 1, tmp_path)
    with warm_server(cell, (1, 3), 1, tmp_path) as server:
        for steps in (1, 3, 1):
            found = switched_answers(server, steps)
            assert (found == cold) == (steps == 1)
