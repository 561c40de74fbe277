"""The draft on TP 1 on real GPUs, against a stock server whose draft is on the target's TP 2.

What tests/sglang/plugin/matrix.py does on a CPU, with CUDA graphs, overlap and trees: tiny
models with weights of their own, so that drafts are accepted at times, in float32. Both servers
stand beside each other on the same two GPUs and get the same requests.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.gpu.beside import beside_each_other
from tests.gpu.conftest import INTERPRETER
from tests.real_sglang.serving import PROMPTS, chain, log_of, named
from tests.server.launching import Case
from tests.sglang.plugin.matrix import BATCH, Outcome, answered, generate
from tuner.config.point import Point
from tuner.config.schema import EngineSpec, ModelSpec, ServerFlag, ServerSpec, TimeoutSpec
from tuner.server.base import Server
from tuner.server.gpu import visible_gpus
from tuner.sglang.engine import SglangEngine
from tuner.sglang.releases import parse_version

CHECKOUT = Path(__file__).resolve().parents[2]
TREE = Point(num_steps=3, eagle_topk=2, num_draft_tokens=6, draft_tp="target")
TOKENS = 100
FLAGS: dict[str, ServerFlag] = {
    "dtype": "float32",
    "attention-backend": "triton",
    "sampling-backend": "pytorch",
    "grammar-backend": "none",
    "cuda-graph-backend-prefill": "disabled",
    "cuda-graph-max-bs-decode": 8,
    "max-running-requests": 8,
    "max-total-tokens": 4096,
    "mem-fraction-static": 0.3,
    "skip-tokenizer-init": True,
    "random-seed": 11,
}
ENV = {
    "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0",  # SGLang's own spelling
    # Triton's matrix products round float32 to 10 bits otherwise, and near ties could flip.
    "TRITON_F32_DEFAULT": "ieee",
}


def case(models: Path, algorithm: str, python: str, flags: dict[str, ServerFlag]) -> Case:
    """The tiny target on TP 2 with the algorithm's draft."""
    model = ModelSpec(**named(algorithm, models), tp=2)
    spec = EngineSpec(kind="sglang", python=python)
    limits = TimeoutSpec(launch=400.0, request=120.0)
    return Case(SglangEngine(spec, limits, ServerSpec(flags=flags)), model, flags)


@contextmanager
def launched(of: Case, points: Sequence[Point], folder: Path) -> Iterator[list[Server]]:
    """A server for each point, launched at once, with float32's stand-ins (float32/)."""
    path = [str(Path(__file__).parent / "float32"), os.environ.get("PYTHONPATH")]
    env = {**ENV, "PYTHONPATH": os.pathsep.join(each for each in path if each)}
    unset = frozenset({"SGLANG_SIMULATE_ACC_LEN"})

    def launch(number: int, point: Point) -> Server:
        log = folder / f"{of.model.algorithm}-{point.draft_tp}.log"
        return of.engine.launch(of.config(point, env=env, unset=unset), log, number)

    launches = [partial(launch, *each) for each in enumerate(points)]
    with beside_each_other(launches) as launching:
        yield [each.result() for each in launching]


def answers(server: Server) -> list[Outcome]:
    """To requests one by one, then to a batch of 8."""
    release = parse_version(server.engine_version)
    replies = [generate(server.url, list(ids), max_new_tokens=TOKENS) for ids in PROMPTS]
    replies += generate(server.url, BATCH, max_new_tokens=TOKENS)
    return [answered(reply, release) for reply in replies]


def differences(stock: Sequence[Outcome], moved: Sequence[Outcome]) -> list[str]:
    """A sentence for each request whose tokens or counts differ."""
    found = []
    for number, (left, right) in enumerate(zip(stock, moved, strict=True)):
        name = f"request {number}" + (" of batch 8" if number >= len(PROMPTS) else "")
        if left.tokens != right.tokens:
            pairs = zip(left.tokens, right.tokens, strict=True)
            first = next(place for place, (a, b) in enumerate(pairs) if a != b)
            found.append(f"{name}: tokens differ from number {first} on")
        if left.histogram != right.histogram or left.verifies != right.verifies:
            more = right.accepted - left.accepted
            found.append(
                f"{name}: {left.verifies} verifies, accepted {left.histogram}; with the draft "
                f"moved {right.verifies}, {right.histogram}: {more} drafts more"
            )
    return found


def accepted(outcomes: Sequence[Outcome]) -> tuple[int, int]:
    """Drafts accepted, and verifies."""
    drafts = sum(each.accepted for each in outcomes)
    return drafts, sum(each.verifies for each in outcomes)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    gpus = visible_gpus(os.environ)
    if gpus is None or len(gpus.cards) < 2:
        pytest.skip("a target on TP 2 needs two GPUs")
    folder = tmp_path_factory.mktemp("tiny")
    script = CHECKOUT / "tests" / "sglang" / "make_models.py"
    subprocess.run([os.environ[INTERPRETER], str(script), str(folder), "gpu"], check=True)
    return folder


@pytest.mark.parametrize(
    ("algorithm", "point"), [("EAGLE3", chain(3)), ("EAGLE", TREE)], ids=["chain", "tree"]
)
def test_a_moved_draft_answers_as_the_stock_server(
    models: Path, tmp_path: Path, algorithm: str, point: Point
) -> None:
    """Otherwise TP 1 changes what is generated, or how many drafts are accepted."""
    of = case(models, algorithm, os.environ[INTERPRETER], FLAGS)
    with launched(of, [point, replace(point, draft_tp=1)], tmp_path) as servers:
        for server in servers:
            assert server.info["disable_overlap_schedule"] is False
            assert re.search("(?i)capture draft.*cuda graph", log_of(server).read_text())
        stock, moved = map(answers, servers)
    drafts, verifies = accepted(stock)
    assert 0 < drafts < verifies * (point.num_steps or 0), "no proof: all drafts fare alike"
    assert differences(stock, moved) == []
