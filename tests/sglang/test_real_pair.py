"""A real target with a real EAGLE-3 draft, where SPECBENCH_REAL_PAIR is a folder that holds them.

`make real-pair` makes such a folder: `target` is SmolLM2-135M-Instruct, `draft` a draft of it.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.sglang import build
from tests.sglang.serving import FLAGS, OLD, streamed
from tests.sglang.sweeping import swept
from tuner.engine.base import server_config
from tuner.engine.make import make_engine
from tuner.sweep.door import load_sweep
from tuner.sweep.workload import pick

PLACE = "SPECBENCH_REAL_PAIR"
STEPS, TOKENS, REQUESTS = 3, 32, 4

pytestmark = pytest.mark.skipif(PLACE not in os.environ, reason=f"{PLACE} is not set")


def sweep_file(folder: Path) -> Path:
    pair = Path(os.environ[PLACE]).resolve()
    flags = {name: value for name, value in FLAGS.items() if name != "skip-tokenizer-init"}
    sweep = {
        "name": "real_pair",
        "engine": {"kind": "sglang", "python": str(build.interpreter(OLD))},
        "model": {
            "target": str(pair / "target"),
            "draft": str(pair / "draft"),
            "algorithm": "EAGLE3",
        },
        "server": {"flags": flags},
        "space": {"num_steps": [STEPS]},
        "workload": {"requests": REQUESTS, "output_tokens": TOKENS, "prompts": "builtin:mixed"},
        "measure": {"warmup_requests": 0, "repeats": 1},
        "search": {"sampler": "grid"},
        "timeouts": {"launch": "6m", "request": "2m"},
    }
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump(sweep))
    return path


def test_real_acceptance_is_that_of_a_count_in_plain_torch(tmp_path: Path) -> None:
    """Otherwise specbench, or its way of starting SGLang, would change what a draft is worth."""
    path = sweep_file(tmp_path)
    _, run = swept(path)
    baseline, candidate = run.records()
    assert (baseline.outcome, candidate.outcome) == ("ok", "ok")
    figures = candidate.metrics["1"]
    assert 1.2 < figures["accept_length"] < 1 + STEPS

    # The same prompts, answered once more without speculation: what a draft should have said.
    loaded = load_sweep(path)
    engine = make_engine(loaded.sweep)
    prompts = engine.tokenise(pick(loaded.prompts, REQUESTS, loaded.sweep.workload.seed)).requests
    answers = []
    with engine.launch(server_config(loaded.sweep, None), tmp_path / "plain.log", 0) as server:
        for prompt in prompts:
            assert prompt.input_ids is not None
            # Longer than measured: the last verify is cut at the length and counted whole.
            answer = streamed(server.url, prompt.input_ids, TOKENS + STEPS)
            answers.append({"prompt": prompt.input_ids, "output": answer.tokens})
    model = loaded.sweep.model
    task = {"target": model.target, "draft": model.draft, "steps": STEPS, "answers": answers}
    counted = json.loads(
        subprocess.run(
            [str(build.interpreter(OLD)), str(Path(__file__).with_name("count_eagle3.py"))],
            input=json.dumps({**task, "tokens": TOKENS}),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    histogram = [sum(column) for column in zip(*counted, strict=True)]
    verifies = sum(histogram)
    rates = [sum(histogram[position:]) / verifies for position in range(1, STEPS + 1)]
    assert figures["accept_rate_by_position"] == pytest.approx(rates)
    correct = sum(accepted * times for accepted, times in enumerate(histogram))
    assert figures["accept_length"] == pytest.approx(1 + correct / verifies)
