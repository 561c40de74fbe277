"""One server that is switched between chain lengths, held against servers launched with each.

    python -m tests.real_sglang.stepping [--cells CELL ...] [--log FILE]

A cell is RELEASE:TP:DRAFT_TP:ALGORITHM, with :ACC_LEN behind it for SGLANG_SIMULATE_ACC_LEN. For
each, servers are launched with one length, one after the other, and then one with all of them.
"""

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import requests

from tests.real_sglang import build, proof
from tests.real_sglang.serving import NEW, OLD, PROMPTS, body, case, chain
from tests.server.launching import Case
from tuner.core.errors import EngineFailure
from tuner.server.base import Server

TOKENS = 40
BUILT = (0, 1, 2, 3, 5)
WALK = (1, 2, 3, 5, 0, 3, 1, 5, 2, 0, 5, 1, 2)
"""Every length after a shorter and after a longer one, and after drafting was off."""
SWITCHES = 20


@dataclass(frozen=True)
class Cell(proof.Cell):
    """One configuration to hold against servers of one length."""

    cold: tuple[int, ...]
    """Lengths that servers are launched with to compare."""
    acc_len: str | None = None

    def __str__(self) -> str:
        return super().__str__() + (f":{self.acc_len}" if self.acc_len else "")

    @property
    def told(self) -> str:
        return super().told + (f", SGLANG_SIMULATE_ACC_LEN={self.acc_len}" if self.acc_len else "")

    @property
    def case(self) -> Case:
        return case(self.release, self.algorithm, self.tp)

    @property
    def env(self) -> dict[str, str]:
        return {} if self.acc_len is None else {"SGLANG_SIMULATE_ACC_LEN": self.acc_len}


CELLS = (
    Cell(OLD, 1, 1, "EAGLE3", (1, 2, 3, 5)),
    Cell(OLD, 2, 1, "EAGLE3", (1, 3)),
    Cell(OLD, 1, 1, "EAGLE3", (1, 3), "2.0"),
    Cell(NEW, 1, 1, "EAGLE", (1, 2, 3, 5)),
    Cell(NEW, 2, 2, "EAGLE3", (2, 5)),
    Cell(OLD, 2, 1, "NEXTN", (1, 3)),
)


@dataclass(frozen=True)
class Outcome:
    """What a server said to one request."""

    tokens: tuple[int, ...]
    spec: dict[str, Any]
    """Everything of speculation in its meta_info."""


def outcome(reply: dict[str, Any]) -> Outcome:
    meta = reply["meta_info"]
    found = {name: meta[name] for name in sorted(meta) if name.startswith("spec_")}
    return Outcome(tuple(reply["output_ids"]), found)


def post(url: str, page: str, content: dict[str, Any]) -> requests.Response:
    return requests.post(f"{url}/{page}", json=content, timeout=180)


def answers(server: Server) -> list[Outcome]:
    """To requests one by one, then to a batch."""
    alone = [post(server.url, "generate", body(prompt, TOKENS)).json() for prompt in PROMPTS]
    several = {**body((), TOKENS), "input_ids": [list(prompt) for prompt in PROMPTS]}
    batch = post(server.url, "generate", several).json()
    return [outcome(reply) for reply in (*alone, *batch)]


def launched_with(cell: Cell, steps: int, folder: Path, warm: tuple[int, ...] = ()) -> Server:
    of = cell.case
    point = None if steps == 0 else replace(chain(steps), draft_tp=cell.draft_tp)
    config = replace(of.config(point, env=cell.env), warm_steps=warm)
    return of.engine.launch(config, folder / f"{cell}-{steps}-{len(warm)}.log", 0)


def cold_answers(cell: Cell, steps: int, folder: Path) -> list[Outcome]:
    """Of a server launched with this length, 0: without speculation."""
    server = launched_with(cell, steps, folder)
    try:
        return answers(server)
    finally:
        server.stop()


@contextmanager
def warm_server(cell: Cell, built: tuple[int, ...], at: int, folder: Path) -> Iterator[Server]:
    server = launched_with(cell, at, folder, built)
    try:
        yield server
    finally:
        server.stop()


def switched_answers(server: Server, steps: int) -> list[Outcome]:
    server.flush_cache()
    server.set_steps(steps)
    return answers(server)


def pinned(server: Server) -> int:
    """What the scheduler says of itself."""
    info = requests.get(f"{server.url}/server_info", timeout=60).json()
    [state] = info["internal_states"]
    return int(state["specbench_steps"]["pinned"])


def refused(server: Server, steps: int) -> str | None:
    """The server's reason; None where it switched."""
    try:
        server.set_steps(steps)
    except EngineFailure as failure:
        return failure.message
    return None


def refused_while_busy(server: Server, steps: int) -> tuple[str | None, list[int]]:
    """The reason, and what the request that ran meanwhile accepted."""
    content = body(PROMPTS[0], 400, stream=True)
    with requests.post(f"{server.url}/generate", json=content, stream=True, timeout=180) as reply:
        lines = reply.iter_lines()
        next(lines)
        reason = refused(server, steps)
        last = [line for line in lines if line.startswith(b"data: {")][-1]
    meta = json.loads(last.removeprefix(b"data: "))["meta_info"]
    return reason, meta["spec_correct_drafts_histogram"]


def accepted(found: Sequence[Outcome]) -> list[list[int] | None]:
    return [each.spec.get("spec_correct_drafts_histogram") for each in found]


def compare(cell: Cell, folder: Path) -> Iterator[tuple[str, bool]]:
    """What was compared, and whether it is as it should be."""
    cold = {steps: cold_answers(cell, steps, folder) for steps in cell.cold}
    if cell.acc_len is None:
        cold[0] = cold_answers(cell, 0, folder)
    first, second, *_ = cell.cold
    with warm_server(cell, BUILT, first, folder) as server:
        yield f"{first} from the launch on", answers(server) == cold[first]
        for steps in WALK:
            found = switched_answers(server, steps)
            if steps in cold:
                yield f"{steps} as launched with {steps}", found == cold[steps]
            if steps == second:
                yield f"{steps} unlike launched with {first} (control)", found != cold[first]
        server.flush_cache()
        server.set_steps(first)
        reason = refused(server, 4)
        yield f"4 refused: {reason}", reason is not None and pinned(server) == first
        reason, histogram = refused_while_busy(server, second)
        held = pinned(server) == first and len(histogram) <= first + 1
        yield f"refused under load: {reason}", "not idle" in str(reason) and held
        for turn in range(SWITCHES):
            server.flush_cache()
            server.set_steps(BUILT[turn % len(BUILT)])
        found = switched_answers(server, second)
        yield f"{second} after {SWITCHES} more switches", found == cold[second]


def main() -> int:
    parser = proof.parser(__doc__, "all of them")
    asked = parser.parse_args()
    cells = {str(cell): cell for cell in CELLS}
    wanted = list(cells) if asked.cells is None else asked.cells
    if unknown := [name for name in wanted if name not in cells]:
        parser.error(f"there is no cell {unknown[0]}, there are {', '.join(cells)}")
    build.build(build.DEFAULT)
    say = proof.Lines(asked.log)
    say("one server switched between chain lengths, against servers of one length; CPU, gloo")
    right = True
    with tempfile.TemporaryDirectory() as folder:
        for cell in map(cells.__getitem__, wanted):
            say(cell.told)
            for what, fine in compare(cell, Path(folder)):
                right &= fine
                say(f"  {'as it should' if fine else 'WRONG':<14}{what}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
