"""Servers take the adaptive.json that a run leaves, and have the length of each batch size."""

import json
from collections import Counter
from pathlib import Path

import pytest
import requests

from tests.real_sglang.serving import NEW, OLD, PROMPTS, body, case, chain, launched, log_of
from tuner.server.base import Server
from tuner.sglang.releases import parse_version
from tuner.sglang.step_switching import FILE, SWITCH, adaptive_content

TOKENS = 24


@pytest.mark.parametrize("release", [OLD, NEW])
def test_a_server_takes_the_file_and_drafts_by_batch_size(release: str, tmp_path: Path) -> None:
    """Else a run would leave a file that ends a production launch, or that nobody reads."""
    content = adaptive_content({1: 3, 2: 1, 3: 0}, parse_version(release))
    file = tmp_path / "adaptive.json"
    file.write_text(json.dumps(content))
    of = case(release)
    of.flags.update({SWITCH: True, FILE: str(file)})
    with launched(of, chain(3), tmp_path, SGLANG_SIMULATE_ACC_LEN="4") as server:
        assert [accepted(server, batch) for batch in (1, 2, 3, 1)] == [3, 1, 0, 3]
        log = log_of(server).read_text()
    assert "speculative_adaptive disabled" not in log
    assert "Built adaptive runtime state steps=1" in log


def accepted(server: Server, batch: int) -> int:
    """Drafts that most verifies of this batch accepted: all that there were, as SGLang was told."""
    content = {**body((), TOKENS), "input_ids": [list(each) for each in PROMPTS[:batch]]}
    server.flush_cache()
    reply = requests.post(f"{server.url}/generate", json=content, timeout=120)
    counts: Counter[int] = Counter()
    for each in reply.json():
        histogram = each["meta_info"].get("spec_correct_drafts_histogram") or []
        counts.update(dict(enumerate(histogram)))
    return counts.most_common(1)[0][0] if counts else 0
