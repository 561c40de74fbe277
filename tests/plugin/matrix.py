"""Draft TP on a real SGLang on a CPU: the stock server's answers, token by token.

    python -m tests.plugin.matrix [--cells CELL ...] [--log FILE]

A cell is RELEASE:TP:DRAFT_TP:ALGORITHM. Each cell launches a stock server and one with the draft
moved, one after the other, and sends both the same requests. The controls at the end are servers
with one part of the plug-in broken, which must not pass.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import requests

from tests.plugin.controls import CONTROLS
from tests.sglang import build, proof
from tests.sglang.serving import NEW, OLD, PROMPTS, case, chain
from tuner.engine.base import Server
from tuner.engine.sglang.releases import parse_version
from tuner.errors import EngineFailure
from tuner.sweep.model import ServerFlag

TOKENS = 40
FLAGS: dict[str, ServerFlag] = {
    "chunked-prefill-size": 64,
    "max-running-requests": 8,
    "random-seed": 11,
}
LONG = tuple(3 + 7 * i % 500 for i in range(200))
"""Prefilled in four chunks."""
BATCH = [[5 + i, 90 + 3 * i, 200 + i, 7][: 2 + i % 3] for i in range(8)]


@dataclass(frozen=True)
class Cell:
    """One configuration to hold against its stock server."""

    release: str
    tp: int
    draft_tp: int
    algorithm: str

    def __str__(self) -> str:
        return f"{self.release}:{self.tp}:{self.draft_tp}:{self.algorithm}"


PAIRWISE = (
    Cell(OLD, 2, 1, "EAGLE3"),
    Cell(OLD, 2, 1, "EAGLE"),
    Cell(OLD, 2, 1, "STANDALONE"),
    Cell(OLD, 2, 1, "NEXTN"),
    Cell(OLD, 4, 2, "EAGLE3"),
    Cell(OLD, 4, 1, "EAGLE"),
    Cell(NEW, 2, 1, "EAGLE3"),
    Cell(NEW, 2, 1, "EAGLE"),
    Cell(NEW, 4, 2, "STANDALONE"),
    Cell(NEW, 4, 2, "NEXTN"),
)
"""Each release with each algorithm and each algorithm with each kind of block, not all three."""


@dataclass(frozen=True)
class Outcome:
    """What a server said to one request."""

    tokens: list[int]
    histogram: list[int]
    verifies: int


def answered(reply: dict[str, Any], histogram: str) -> Outcome:
    meta = reply["meta_info"]
    return Outcome(reply["output_ids"], meta[histogram], meta["spec_verify_ct"])


def generate(url: str, ids: Any, **sampling: Any) -> Any:
    parameters = {"max_new_tokens": TOKENS, "temperature": 0, "ignore_eos": True, **sampling}
    body = {"input_ids": ids, "sampling_params": parameters}
    reply = requests.post(f"{url}/generate", json=body, timeout=180)
    reply.raise_for_status()
    return reply.json()


def abort_midway(url: str) -> None:
    """Hang up after the first tokens of a long answer."""
    parameters = {"max_new_tokens": 1500, "temperature": 0, "ignore_eos": True}
    body = {"input_ids": list(PROMPTS[0]), "sampling_params": parameters, "stream": True}
    with requests.post(f"{url}/generate", json=body, stream=True, timeout=60) as reply:
        next(reply.iter_lines())


def requests_of(server: Server, histogram: str) -> Iterator[tuple[str, list[Outcome]]]:
    """The parts of the comparison, by name."""

    def several(replies: list[dict[str, Any]]) -> list[Outcome]:
        return [answered(reply, histogram) for reply in replies]

    url = server.url
    yield "batch 1", several([generate(url, list(prompt)) for prompt in PROMPTS])
    yield "batch 8", several(generate(url, BATCH))
    yield "chunked prefill", several([generate(url, list(LONG))])
    seeded = {"temperature": 0.8, "top_k": 20, "sampling_seed": 7}
    yield "seeded sampling", several([generate(url, list(PROMPTS[1]), **seeded)])
    abort_midway(url)
    time.sleep(2.0)
    server.flush_cache()
    yield "after an abort and a flush", several([generate(url, list(PROMPTS[2]))])


def run(
    cell: Cell, draft_tp: int | str, folder: Path, python: Path | None = None, **env: str
) -> dict[str, list[Outcome]]:
    """Every part from one server, of another `python` than the release's where one is named.

    Raises EngineFailure, or what requests raises.
    """
    of = case(cell.release, cell.algorithm, cell.tp, python)
    point = replace(chain(3), draft_tp=draft_tp)  # type: ignore[arg-type]
    config = of.config(point, FLAGS, env)
    histogram = parse_version(cell.release).text("histogram")
    assert histogram is not None
    server = of.engine.launch(config, folder / f"{cell}-{draft_tp}.log", 0)
    try:
        return dict(requests_of(server, histogram))
    finally:
        server.stop()


@cache
def stock_of(cell: Cell, folder: Path) -> dict[str, list[Outcome]]:
    """The same from the server without the plug-in, launched once a cell."""
    return run(cell, "target", folder)


def compare(cell: Cell, folder: Path, say: Callable[[str], None]) -> bool:
    """True where the moved draft answers as the stock server does."""
    stock = stock_of(cell, folder)
    moved = run(cell, cell.draft_tp, folder)
    same = True
    for part, expected in stock.items():
        equal = expected == moved[part]
        same &= equal
        verifies = sum(each.verifies for each in expected)
        drafted = sum(k * n for each in expected for k, n in enumerate(each.histogram))
        say(
            f"  {part:<28}{'equal' if equal else 'DIFFERENT':<10}{len(expected)} requests, "
            f"{sum(len(each.tokens) for each in expected)} tokens, {verifies} verifies, "
            f"{drafted} drafts accepted"
        )
    return same


def breaks(control: str, passes: bool, folder: Path, say: Callable[[str], None]) -> bool:
    """True where a server with this part broken is noticed, or does not matter as it should."""
    cell = Cell(OLD, 2, 1, "EAGLE3")
    stock = stock_of(cell, folder)
    path = str(Path(__file__).parent / "controls")
    try:
        moved = run(cell, 1, folder, SPECBENCH_CONTROL=control, PYTHONPATH=path)
        seen = "equal" if moved == stock else "different answers"
    except (EngineFailure, requests.RequestException, json.JSONDecodeError) as error:
        seen = f"{type(error).__name__}: {str(error)[:90]}"
    right = (seen == "equal") == passes
    say(f"  {control:<28}{'as it should' if right else 'WRONG':<14}{seen}")
    return right


def main() -> int:
    asked = proof.parser(__doc__, "the pairwise set and the controls").parse_args()
    say = proof.Lines(asked.log)
    cells = [_cell(text) for text in asked.cells] if asked.cells is not None else list(PAIRWISE)
    build.build(build.DEFAULT)
    right = True
    say("draft TP against the stock server, SGLang on a CPU (gloo), float32, chains of 3 drafts")
    with tempfile.TemporaryDirectory() as folder:
        for cell in cells:
            say(f"SGLang {cell.release}, {cell.algorithm}, tp {cell.tp}, draft_tp {cell.draft_tp}")
            right &= compare(cell, Path(folder), say)
        if asked.cells is None:
            say("controls: one part broken, SGLang 0.5.17, EAGLE3, tp 2, draft_tp 1")
            for control, passes in CONTROLS.items():
                right &= breaks(control, passes, Path(folder), say)
    say("all as it should be" if right else "NOT as it should be")
    return 0 if right else 1


def _cell(text: str) -> Cell:
    release, tp, draft_tp, algorithm = text.split(":")
    return Cell(release, int(tp), int(draft_tp), algorithm)


if __name__ == "__main__":
    sys.exit(main())
