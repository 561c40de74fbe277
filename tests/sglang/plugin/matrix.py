"""Draft TP on a real SGLang on a CPU: the stock server's answers, token by token.

    python -m tests.sglang.plugin.matrix [--set SET] [--cells CELL ...] [--log FILE] [--together N]

A cell is RELEASE:TP:DRAFT_TP:ALGORITHM. Each launches a stock server and one with the draft moved,
one after the other, and sends both the same requests. The controls at the end are servers with one
part of the plug-in broken, which must not pass. The set `later` has two of the releases with entry
points and the V2 worker, `between` every other one with entry points, and the others one of those
before, with a sitecustomize and the V1 worker.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import requests

from tests.real_sglang import build, proof
from tests.real_sglang.proof import Cell
from tests.real_sglang.serving import PROMPTS, case, chain
from tests.sglang.plugin.cells import SETS, CellSet, Controlled, cell_of
from tuner.config.schema import ServerFlag
from tuner.core.errors import EngineFailure
from tuner.server.base import Server
from tuner.sglang.releases import Release, parse_version

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
class Outcome:
    """What a server said to one request."""

    tokens: list[int]
    verifies: int
    accepted: int
    """Drafts."""
    histogram: list[int] | None
    """None: 0.5.8 counts none."""


def answered(reply: dict[str, Any], release: Release) -> Outcome:
    meta, names = reply["meta_info"], (release.text("correct_drafts"), release.text("histogram"))
    accepted, histogram = (None if name is None else meta[name] for name in names)
    return Outcome(reply["output_ids"], meta["spec_verify_ct"], accepted, histogram)


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


def flush_when_idle(server: Server) -> None:
    """Stock 0.5.18 and 0.5.19 forget an abandoned stream before they abort it: it runs on."""
    time.sleep(2.0)
    try:
        server.flush_cache()  # tries for seconds
    except EngineFailure:
        requests.post(f"{server.url}/abort_request", json={"abort_all": True}, timeout=60)
        time.sleep(2.0)
        server.flush_cache()


def requests_of(server: Server, release: Release) -> Iterator[tuple[str, list[Outcome]]]:
    """The parts of the comparison, by name."""

    def several(replies: list[dict[str, Any]]) -> list[Outcome]:
        return [answered(reply, release) for reply in replies]

    url = server.url
    yield "batch 1", several([generate(url, list(prompt)) for prompt in PROMPTS])
    yield "batch 8", several(generate(url, BATCH))
    yield "chunked prefill", several([generate(url, list(LONG))])
    seeded = {"temperature": 0.8, "top_k": 20, "sampling_seed": 7}
    yield "seeded sampling", several([generate(url, list(PROMPTS[1]), **seeded)])
    abort_midway(url)
    flush_when_idle(server)
    yield "after an abort and a flush", several([generate(url, list(PROMPTS[2]))])


def run(
    cell: Cell,
    draft_tp: int | str,
    folder: Path,
    python: Path | None = None,
    flags: Mapping[str, ServerFlag] = MappingProxyType({}),
    **env: str,
) -> dict[str, list[Outcome]]:
    """Every part from one server, of another `python` than the release's where one is named.

    Raises EngineFailure, or what requests raises.
    """
    of = case(cell.release, cell.algorithm, cell.tp, python)
    point = replace(chain(3), draft_tp=draft_tp)  # type: ignore[arg-type]
    config = of.config(point, {**FLAGS, **flags}, env)
    server = of.engine.launch(config, folder / f"{cell}-{draft_tp}.log", 0)
    try:
        return dict(requests_of(server, parse_version(cell.release)))
    finally:
        server.stop()


@cache
def stock_of(cell: Cell, folder: Path) -> dict[str, list[Outcome]]:
    """The same from the server without the plug-in, launched once a cell."""
    return run(cell, "target", folder)


def compare(cell: Cell, folder: Path, say: Callable[[str], None]) -> bool:
    """True where the moved draft answers as the stock server does."""
    return all_equal(stock_of(cell, folder), run(cell, cell.draft_tp, folder), say)


def compared(cell: Cell, folder: Path) -> tuple[bool, list[str]]:
    """compare() and its lines; a server that fails is one of them."""
    lines = [cell.told]
    try:
        return compare(cell, folder, lines.append), lines
    except (EngineFailure, requests.RequestException, json.JSONDecodeError) as error:
        return False, [*lines, f"  FAILED: {type(error).__name__}: {str(error)[:200]}"]


def compare_mapped(cell: Cell, folder: Path, say: Callable[[str], None]) -> bool:
    """True where a draft at TP 1 with a token map answers as the stock server at TP 1 does.

    The stock server at a larger TP picks the map's rows from one shard of the head.
    """
    path = folder / "even_tokens.pt"
    program = f"import torch; torch.save(list(range(0, 512, 2)), {str(path)!r})"
    python = build.interpreter(cell.release)
    subprocess.run([str(python), "-c", program], check=True)
    flags: dict[str, ServerFlag] = {"speculative-token-map": str(path)}
    stock = run(replace(cell, tp=1), "target", folder, flags=flags)
    return all_equal(stock, run(cell, cell.draft_tp, folder, flags=flags), say)


def all_equal(
    stock: dict[str, list[Outcome]], moved: dict[str, list[Outcome]], say: Callable[[str], None]
) -> bool:
    """Says each part's outcome."""
    same = True
    for part, expected in stock.items():
        equal = expected == moved[part]
        same &= equal
        verifies = sum(each.verifies for each in expected)
        drafted = sum(each.accepted for each in expected)
        say(
            f"  {part:<28}{'equal' if equal else 'DIFFERENT':<10}{len(expected)} requests, "
            f"{sum(len(each.tokens) for each in expected)} tokens, {verifies} verifies, "
            f"{drafted} drafts accepted"
        )
    return same


def breaks(
    of: Controlled, control: str, passes: bool, folder: Path, say: Callable[[str], None]
) -> bool:
    """True where a server with this part broken is noticed, or does not matter as it should."""
    stock = stock_of(of.cell, folder)
    path = os.pathsep.join(map(str, of.path))
    try:
        moved = run(of.cell, of.cell.draft_tp, folder, SPECBENCH_CONTROL=control, PYTHONPATH=path)
        seen = "equal" if moved == stock else "different answers"
    except (EngineFailure, requests.RequestException, json.JSONDecodeError) as error:
        seen = f"{type(error).__name__}: {str(error)[:90]}"
    right = (seen == "equal") == passes
    say(f"  {control:<28}{'as it should' if right else 'WRONG':<14}{seen}")
    return right


def main() -> int:
    parser = proof.parser(__doc__, "the set's, and what else it has")
    parser.add_argument("--set", choices=SETS, default="later", help="default: %(default)s")
    help_text = "cells at a time; one waits for most of its launches. default: %(default)s"
    parser.add_argument("--together", type=int, default=1, metavar="N", help=help_text)
    asked = parser.parse_args()
    say = proof.Lines(asked.log)
    of = SETS[asked.set] if asked.cells is None else CellSet(tuple(map(cell_of, asked.cells)))
    build.build(build.DEFAULT, sorted({cell.release for cell in of.cells}))
    right = True
    say("draft TP against the stock server, SGLang on a CPU (gloo), float32, chains of 3 drafts")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ThreadPoolExecutor(asked.together) as pool:
            for same, lines in pool.map(lambda cell: compared(cell, folder), of.cells):
                right &= same
                for line in lines:
                    say(line)
        if of.mapped is not None:
            say(f"{of.mapped.told}, both with a token map, the stock server at tp 1")
            right &= compare_mapped(of.mapped, folder, say)
        if of.controlled is not None:
            say(f"controls: one part broken, {of.controlled.cell.told}")
            for control, passes in of.controlled.controls.items():
                right &= breaks(of.controlled, control, passes, folder, say)
    say("all as it should be" if right else "NOT as it should be")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
