"""Conversations that only ask, at several rates, whose answers end by themselves: really sent."""

import json
import os
from pathlib import Path

import pytest
import yaml

from tests.real_sglang.sweeping import swept
from tests.real_sglang.test_real_pair import PLACE, STEPS, sweep_file
from tuner.config.load_level import Rate
from tuner.config.prompts import read_prompts
from tuner.metrics.samples_file import read_samples

pytestmark = pytest.mark.skipif(PLACE not in os.environ, reason=f"{PLACE} is not set")

ASKED = [
    {"question_id": 1, "category": "math", "turns": ["What is 2 + 2?", "And twice that?"]},
    {"question_id": 2, "category": "chat", "turns": ["Name a colour.", "Name another one."]},
]


def test_every_configuration_is_sent_the_same_conversations(tmp_path: Path) -> None:
    """Otherwise later turns are other prompts, or none that the model's template can hold."""
    path = sweep_file(tmp_path)
    sweep = yaml.safe_load(path.read_text())
    lines = "".join(json.dumps(each) + "\n" for each in ASKED)
    (tmp_path / "asked.jsonl").write_text(lines)
    sweep["space"] = {"num_steps": [STEPS]}
    sweep["workload"] = {
        "requests": 4, "output_tokens": 16, "prompts": "asked.jsonl", "turns": "all",
        "ignore_eos": False, "request_rate": [1, 4], "concurrency": [8],
    }  # fmt: skip
    sweep["search"]["objective"] = {"metric": "decode_tok_s"}
    path.write_text(yaml.safe_dump(sweep))
    result, run = swept(path)
    assert set(result["by_rate"]) == {"1/s", "4/s"}  # type: ignore[call-overload]
    told = read_prompts("conversations.jsonl", run.path, "all").prompts
    assert [role for role, _ in told[0].messages] == ["user", "assistant", "user"]
    assert all("<|im_" not in text for each in told for _, text in each.messages)
    seen = set()
    for record in run.records():
        assert record.outcome == "ok", record.message
        assert record.samples is not None
        levels = read_samples(run.path / record.samples)
        assert set(levels) == {Rate(1), Rate(4)}
        for (window,) in levels.values():
            assert all(each.error is None for each in window.samples)
            assert {each.finish_reason for each in window.samples} <= {"stop", "length"}
            counts = sorted((each.prompt_id, each.prompt_tokens) for each in window.samples)
            assert [name for name, _ in counts] == ["1#1", "1#2", "2#1", "2#2"]
            seen.add(tuple(counts))
    assert len(seen) == 1
