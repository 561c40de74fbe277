"""A real target with a real EAGLE-3 draft, where SPECBENCH_REAL_PAIR is a folder that holds them.

`make real-pair` makes such a folder: `target` is SmolLM2-135M-Instruct, `draft` a draft of it.
"""

import json
import os
import subprocess
from itertools import accumulate
from pathlib import Path

import pytest
import yaml

from tests.real_sglang import build
from tests.real_sglang.serving import FLAGS, OLD, streamed
from tests.real_sglang.sweeping import swept
from tuner.analysis.summary import summarise_run
from tuner.config.loader import load_sweep
from tuner.config.prompts import pick
from tuner.engines import make_engine
from tuner.metrics.samples import RequestSample
from tuner.runs.run import Run
from tuner.search.acceptance import AcceptanceCurve, read_chain
from tuner.server.base import server_config

PLACE = "SPECBENCH_REAL_PAIR"
STEPS, LONG, TOKENS, REQUESTS = 3, 5, 32, 4

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
        "baseline": {"launches": 1},
        "space": {"num_steps": [STEPS, LONG]},
        "workload": {"requests": REQUESTS, "output_tokens": TOKENS, "prompts": "builtin:mixed"},
        "measure": {"warmup_requests": 0, "repeats": 1},
        "search": {"sampler": "grid"},
        "timeouts": {"launch": "6m", "request": "2m"},
    }
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump(sweep))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A sweep of two chains, 3 and 5 steps, with its baseline."""
    return swept(sweep_file(tmp_path_factory.mktemp("pair")))[1]


def test_real_acceptance_is_that_of_a_count_in_plain_torch(run: Run, tmp_path: Path) -> None:
    """Otherwise specbench, or its way of starting SGLang, would change what a draft is worth."""
    assert [each.outcome for each in run.records()] == ["ok"] * 3
    (candidate,) = (each for each in run.records() if each.at and each.at.num_steps == STEPS)
    figures = candidate.metrics["1"]
    assert 1.2 < figures["accept_length"] < 1 + STEPS

    # The same prompts, answered once more without speculation: what a draft should have said.
    loaded = load_sweep(run.sweep_file)
    engine = make_engine(loaded.sweep)
    sent = pick(loaded.prompts, REQUESTS, loaded.sweep.workload.seed)
    prompts = engine.tokenise(loaded.sweep.model, loaded.sweep.server, sent).requests
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


def accepted_by_place(sample: RequestSample) -> dict[int, int]:
    """Tokens before a verify -> drafts it accepted; without the last one, which may be cut.

    Empty where two verifies came in one chunk, as they can on a busy machine.
    """
    spec, chunks = sample.spec, sample.chunk_tokens
    if spec is None or len(chunks) != 1 + spec.verify_ct or chunks[0] != 1:
        return {}
    return dict(zip(accumulate(chunks[:-2]), (n - 1 for n in chunks[1:-1]), strict=True))


def compared(run: Run, short: int, long: int) -> tuple[int, int]:
    """(places where both verify, those of them where the shorter accepts min(short, longer))."""
    summary = summarise_run(run)
    samples: dict[int, dict[str, RequestSample]] = {}
    for each in summary.ranked:
        assert each.point is not None
        assert each.point.num_steps is not None
        (window,) = summary.windows(each, 1)
        samples[each.point.num_steps] = {s.prompt_id: s for s in window.samples}
    common = equal = 0
    for prompt, sample in samples[short].items():
        there, here = accepted_by_place(samples[long][prompt]), accepted_by_place(sample)
        for place in there.keys() & here.keys():
            common += 1
            equal += here[place] == min(short, there[place])
    return common, equal


def test_shorter_chains_accept_what_the_longer_one_does_and_are_predicted(run: Run) -> None:
    """Otherwise one launch could not stand for all step counts.

    Drafts of a chain do not depend on its length: wherever two chains verify at the same place of
    the same text, the shorter one accepts what the longer one does, up to its length. That is
    exact. The places differ between them, so that the accept length is predicted and not computed.
    """
    common, equal = compared(run, STEPS, LONG)
    assert common > 20
    assert equal == common

    summary = summarise_run(run)
    by_steps = {each.point.num_steps: each for each in summary.ranked if each.point}
    told = read_chain(summary.windows(by_steps[LONG], 1), LONG)
    assert told is not None
    predicted = AcceptanceCurve((told,)).accept_length(STEPS)
    assert predicted is not None
    assert predicted.value == pytest.approx(by_steps[STEPS].metric(1, "accept_length"), rel=0.15)
