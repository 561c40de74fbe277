"""The child that measures, its way over GPUs, with a torch that only counts."""

import sys
from pathlib import Path

import pytest

from tuner.core.errors import UserError
from tuner.server.all_reduce import Message, Setting
from tuner.sglang.nccl.benchmark import BenchmarkJob, run_job
from tuner.sglang.nccl.process_group import GroupOrder

TORCH = str(Path(__file__).with_name("fake_torch"))
MESSAGES = (Message(64, 128, 1, ("draft",)), Message(256, 512, 4, ("verify",)))
IN_PAIRS = Message(64, 128, 1, ("draft TP 2",), 2)


def job(world: int = 2, messages: tuple[Message, ...] = MESSAGES, **env: str) -> BenchmarkJob:
    order = GroupOrder(
        program=(sys.executable,),
        world=world,
        device="cuda",
        sizes=tuple((each.elements, each.ranks) for each in messages),
        dtype="bfloat16",
        limit_s=20.0,
        env={"PYTHONPATH": TORCH, **env},
    )
    return BenchmarkJob(order, (Setting(),), messages, rounds=2, at_once=1)


def test_graphs_of_all_reduces_are_timed_by_the_gpus_clock() -> None:
    """5 us each in a graph; a wrong unit or count would be an order of magnitude."""
    results = run_job(job(), lambda _: None)
    assert (results.backend, results.device) == ("NCCL 2.28.9", "a GPU that is not there")
    assert results.measured[0].rounds == (pytest.approx((5.0, 5.0)), pytest.approx((5.0, 5.0)))
    assert results.measured[0].no_graphs is None
    assert results.notes == ()


def test_where_graphs_cannot_be_captured_it_goes_on_and_says_so() -> None:
    results = run_job(job(FAKE_NO_GRAPH="1"), lambda _: None)
    assert results.measured[0].rounds[0] == pytest.approx((20.0, 20.0))
    assert "without CUDA graphs" in results.notes[0]
    assert "not permitted when stream is capturing" in results.notes[0]


@pytest.mark.parametrize("graphs", [True, False])
def test_a_draft_on_fewer_gpus_reduces_in_its_own_groups(graphs: bool) -> None:
    """Four ranks take another path than two: the draft's settings were judged by the target's."""
    env = {"FAKE_GPUS": "4"} | ({} if graphs else {"FAKE_NO_GRAPH": "1"})
    results = run_job(job(4, (*MESSAGES, IN_PAIRS), **env), lambda _: None)
    whole = 5.0 if graphs else 20.0
    assert [rounds[0] for rounds in results.measured[0].rounds] == pytest.approx(
        [whole, whole, whole / 2]
    )


def test_too_few_gpus_are_told_at_once() -> None:
    with pytest.raises(UserError, match="sees 2 GPUs, 4 are needed: give another --python, --tp"):
        run_job(job(world=4), lambda _: None)
