"""The simulated machine of the case, measured as a user would: over HTTP, in real time, batch 1.

If these figures drift, every claim that rests on the preset is about another machine.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tuner.config.loader import load_sweep
from tuner.config.point import Point
from tuner.config.prompts import pick
from tuner.engines import make_engine
from tuner.loadgen.client import Load, run_window
from tuner.metrics.catalogue import summarise
from tuner.server.base import server_config

TUNED = {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring", "NCCL_P2P_LEVEL": "SYS"}

Case = tuple[int | None, Mapping[str, str], Mapping[str, Any], float, float]
"""(draft steps, environment, overrides of the preset, lowest and highest tok/s allowed)"""

CASES: dict[str, Case] = {
    "no speculation": (None, {}, {}, 90 * 0.97, 90 * 1.03),
    "5 steps, default NCCL": (5, {}, {}, 71.3 * 0.97, 71.3 * 1.03),
    "5 steps, hidden states wired wrongly": (5, {}, {"acceptance": 0.19}, 46.7 * 0.97, 54.8 * 1.03),
    "2 steps, tuned NCCL": (2, TUNED, {}, 94 * 0.97, 94 * 1.03),
}


@pytest.mark.parametrize("name", CASES)
def test_the_case_as_measured_over_http(tmp_path: Path, name: str) -> None:
    steps, env, overrides, low, high = CASES[name]
    loaded = load_sweep(Path("sweeps/kimi_eagle3.yaml"), engine="simulated")
    engine_spec = loaded.sweep.engine.model_copy(update={"overrides": dict(overrides)})
    sweep = loaded.sweep.model_copy(update={"engine": engine_spec})
    point = None
    if steps is not None:
        point = Point(steps, 1, steps + 1, "target", tuple(sorted(env.items())))
    engine = make_engine(sweep)
    requests = engine.tokenise(sweep.model, sweep.server, pick(loaded.prompts, 2, 0)).requests
    server = engine.launch(server_config(sweep, point), tmp_path / "log", 0)
    try:
        window = run_window(server.url, requests, Load(concurrency=1, output_tokens=128))
    finally:
        server.stop()
    figures = summarise([window], steps, None if steps is None else 1)
    assert figures["failed_requests"] == 0
    assert low <= figures["decode_tok_s"] <= high
