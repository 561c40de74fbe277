"""Conversations sent turn by turn: the same prompts for every configuration, in their order."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loadgen.fake_server import FakeServer
from tests.sweeps import Listener, tiny_sweep
from tuner.config.conversation import Prompt, to_send
from tuner.config.loader import load_sweep
from tuner.config.prompts import needed_to_hold_out, read_prompts
from tuner.core.errors import UserError
from tuner.engines import make_engine
from tuner.execution.request_plan import plan_requests
from tuner.loadgen.client import Load, run_window
from tuner.metrics.samples import Request
from tuner.metrics.samples_file import read_samples
from tuner.preflight.plan import make_plan
from tuner.runner.sweep_run import begin_run, run_sweep

SAID = [
    {
        "id": "a",
        "conversations": [
            {"from": "human", "value": "What is a monad?"},
            {"from": "gpt", "value": "A monoid in the category of endofunctors."},
            {"from": "human", "value": "And in plain words?"},
            {"from": "gpt", "value": "A way to chain steps."},
        ],
    },
    {"id": "b", "conversations": [{"from": "human", "value": "Write a haiku about rain."}]},
    {
        "id": "c",
        "conversations": [{"from": "human", "value": "x"}, {"from": "human", "value": "y"}],
    },
]


def test_a_turn_comes_after_what_the_file_has_before_it(tmp_path: Path) -> None:
    """Answers of the server as history would give each configuration other prompts."""
    (tmp_path / "p.json").write_text(json.dumps(SAID))
    found = read_prompts("p.json", tmp_path, "all")
    assert found.read_as == (
        "ShareGPT: 2 prompts (chat 2), 3 turns after the file's own answers; "
        "1 left out, turn 2 has no answer before it (item-3)"
    )
    sent = to_send(found.prompts, "all", 3, 1)
    assert [(each.id, each.follows) for each in sent] == [
        ("a#1", False),
        ("a#2", True),
        ("b#1", False),
    ]
    assert [role for role, _ in sent[1].messages] == ["user", "assistant", "user"]
    assert sent[0].messages == sent[1].messages[:1]
    first = read_prompts("p.json", tmp_path).prompts
    assert [len(each.messages) for each in first] == [1, 1, 1]
    assert to_send(first, "first", 2, 1) == first[:2]


def test_turns_without_answers_between_them_are_refused(tmp_path: Path) -> None:
    """The second turn alone is another question than the one that was asked."""
    two = '{"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}'
    (tmp_path / "q.jsonl").write_text('{"prompt": "a"}\n' + two)
    with pytest.raises(
        UserError, match=r"q\.jsonl:2: turn 2 has no answer before it, write it, or"
    ):
        read_prompts("q.jsonl", tmp_path, "all")
    (tmp_path / "m.jsonl").write_text(
        '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, '
        '{"role": "user", "content": " "}]}'
    )
    with pytest.raises(UserError, match=r"m\.jsonl:1: turn 2 is empty"):
        read_prompts("m.jsonl", tmp_path, "all")
    assert len(read_prompts("m.jsonl", tmp_path).prompts[0].messages) == 3


@given(
    turns=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    requests=st.integers(1, 20),
    streams=st.integers(1, 8),
)
def test_windows_send_whole_conversations(turns: list[int], requests: int, streams: int) -> None:
    """A cut one would have its last turn at some concurrencies only, and streams would idle."""
    made = [
        Prompt(str(n), "chat", ((("user", "a"), ("assistant", "b")) * count)[: 2 * count - 1])
        for n, count in enumerate(turns)
    ]
    sent = to_send(made, "all", requests, streams)
    begun = [each for each in sent if not each.follows]
    assert len(sent) == sum(turns[: len(begun)])
    everything = len(begun) == len(turns)
    assert everything or (len(sent) >= requests and len(begun) >= streams)
    more = to_send(made, "all", requests + 5, streams + 1)
    assert more[: len(sent)] == sent


@pytest.mark.parametrize("concurrency", [1, 2, 3, 8])
def test_a_turn_is_sent_when_the_one_before_it_was_answered(concurrency: int) -> None:
    """Turns at the same time would find nothing of each other in the prefix cache."""
    lengths = (3, 1, 2)
    requests = [
        Request(f"{name}#{turn}", "chat", text="complete", follows=turn > 0)
        for name, count in enumerate(lengths)
        for turn in range(count)
    ]
    with FakeServer() as server:
        window = run_window(server.url, requests, Load(concurrency, 4))
    assert [each.prompt_id for each in window.samples] == [each.prompt_id for each in requests]
    talks: dict[str, list[tuple[float, float]]] = {}
    for each in window.samples:
        assert each.error is None
        talks.setdefault(each.prompt_id.partition("#")[0], []).append((each.sent, each.ended))
    for told in talks.values():
        assert all(later >= ended for (_, ended), (later, _) in pairwise(told))
    spans = [(told[0][0], told[-1][1]) for told in talks.values()]
    for at, _ in spans:
        assert sum(begin <= at < end for begin, end in spans) <= concurrency


@pytest.mark.parametrize("ignore_eos", ["true", "false"])
def test_a_run_measures_every_turn_and_tells_what_the_cache_had(
    tmp_path: Path, ignore_eos: str
) -> None:
    (tmp_path / "p.json").write_text(json.dumps(SAID))
    path = tiny_sweep(tmp_path, search="trials: 1", steps="2").path
    asked = f"{{prompts: p.json, turns: all, ignore_eos: {ignore_eos}, requests: 3,"
    path.write_text(path.read_text().replace("workload: {requests: 3,", f"workload: {asked}"))
    loaded = load_sweep(path)
    run = begin_run(tmp_path / "out", loaded, None)
    run_sweep(loaded, run, make_engine(loaded.sweep), Listener())
    baseline = run.ledger().baseline
    assert baseline is not None
    assert baseline.samples is not None
    assert baseline.metrics["1"]["windows"] == 2
    assert baseline.metrics["1"]["cached_share"] is not None
    for window in read_samples(run.path / baseline.samples)[1]:
        assert [each.prompt_id for each in window.samples].count("a#2") == 1
        assert all(each.cached_tokens is not None for each in window.samples)


def test_conversations_that_no_window_sends_are_held_out(tmp_path: Path) -> None:
    """80 questions of two turns at 80 requests: the winner was confirmed on those that it was
    chosen on, for want of prompts, while 40 had never been sent; and the plan waited for twice as
    many conversations as come."""
    said = [
        {"conversations": [{"from": who, "value": f"{n}"} for who in ("human", "gpt", "human")]}
        for n in range(80)
    ]
    (tmp_path / "p.json").write_text(json.dumps(said))
    path = tiny_sweep(tmp_path, search="stages: [confirm], trials: 1", steps="2").path
    asked = "{prompts: p.json, turns: all, requests: 80, request_rate: 0.5, "
    text = path.read_text().replace("{requests: 3, ", asked).replace("concurrency: [1]", "seed: 1")
    text = text.replace("trials: 1", "trials: 1, objective: {metric: decode_tok_s}")
    path.write_text(text)
    loaded = load_sweep(path)
    found = plan_requests(loaded)
    assert found.used == 40
    [chosen], [unseen] = found.chosen_on.values(), found.unseen.values()
    assert len(chosen) == len(unseen) == 80
    assert not {each.id for each in chosen} & {each.id for each in unseen}
    assert needed_to_hold_out(found.used) == 48
    plan = make_plan(loaded)
    assert 2 * 40 / 0.5 < plan.estimate.measure_s < 2 * 60 / 0.5
