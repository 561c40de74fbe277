"""Servers of several settings at once on the same GPUs, measured in turns.

    python -m tests.gpu.concurrent_servers FILE --sglang PYTHON [--rounds N] [--out FILE]
                                      [--logs FOLDER] [--profile FILE]

Two launches of one setting differ, and a machine drifts; servers that stand beside each other and
take turns, window by window, share the drift. Only one of them is busy at a time. FILE is YAML:

    sweep: sweeps/h200_placement.yaml        # model, workload, flags
    flags: {max-total-tokens: 8192}          # beside the sweep's, for every server
    servers:                                 # the first is what the others are held against
      three: {point: {num_steps: 3}}
      warm: {point: {num_steps: 3, draft_tp: 1}, steps: [1, 3], env: {NAME: value}, flags: {}}
      none: {}                               # no speculation

A server with `steps` is switched between them and counts once for each. With a `sweep` of its own
a server has the model and flags of that one; the workload is everybody's. All servers share the
GPUs' memory: give them a KV cache of their own size (max-total-tokens).
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import requests
import yaml

from tests.gpu.beside import beside_each_other
from tests.gpu.concurrent_servers.profile import profile
from tuner.config.field_types import UNSET
from tuner.config.loader import LoadedSweep, load_sweep
from tuner.config.point import Point
from tuner.config.prompts import pick
from tuner.core.errors import EngineFailure, UserError
from tuner.engines import make_engine
from tuner.execution.launch import load_at
from tuner.loadgen.client import judge, run_window
from tuner.metrics.catalogue import summarise
from tuner.metrics.samples import Request
from tuner.metrics.statistics import mean_interval, ratio_of_rounds
from tuner.server.base import Engine, Server, ServerConfig, server_config

PRETENDED = "SGLANG_SIMULATE_ACC_LEN"
COMPARED = 4
"""Prompts whose greedy outputs are compared."""
FIGURES = ("output_tok_s", "cycle_ms", "accept_length")


@dataclass(frozen=True)
class Wanted:
    """One server of the file."""

    name: str
    engine: Engine
    config: ServerConfig
    steps: tuple[int, ...] = ()


@dataclass
class Entrant:
    """What takes a turn: a server, at one chain length where it has several."""

    name: str
    server: Server
    point: Point | None
    switched: bool
    rounds: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """Figures of each window by concurrency."""
    outputs: list[list[int]] = field(default_factory=list)
    """Greedy ids; [] where SGLang pretends the acceptance, which makes them up."""

    def turn(self) -> None:
        """Make the server ready to be measured."""
        self.server.flush_cache()
        if self.switched:
            self.server.set_steps((self.point and self.point.num_steps) or 0)


def load(path: str, python: str | None) -> LoadedSweep:
    """A sweep for the SGLang of this interpreter."""
    loaded = load_sweep(Path(path))
    engine = loaded.sweep.engine
    if python is not None:
        engine = engine.model_copy(update={"python": python})
    return replace(loaded, sweep=loaded.sweep.model_copy(update={"engine": engine}))


def wanted(content: dict[str, Any], python: str | None) -> list[Wanted]:
    """The file's servers."""
    found = []
    for name, of in content["servers"].items():
        point = None
        if "point" in of:
            steps = of["point"]["num_steps"]
            given = {"eagle_topk": 1, "num_draft_tokens": steps + 1, "draft_tp": "target"}
            point = Point(**(given | of["point"]))
        sweep = load(of.get("sweep", content["sweep"]), python).sweep
        config = server_config(sweep, point, tuple(of.get("steps", ())))
        flags = {**config.flags, **content.get("flags", {}), **of.get("flags", {})}
        env = {**config.env, **content.get("env", {}), **of.get("env", {})}
        config = replace(
            config,
            flags={key: value for key, value in flags.items() if value is not False},
            env={key: str(value) for key, value in env.items() if value != UNSET},
            unset=config.unset | {key for key, value in env.items() if value == UNSET},
        )
        found.append(Wanted(name, make_engine(sweep), config, config.warm_steps))
    return found


def entrants(of: Wanted, server: Server) -> list[Entrant]:
    point = of.config.point
    if not of.steps:
        return [Entrant(of.name, server, point, switched=False)]
    assert point is not None
    return [
        Entrant(f"{of.name} at {steps}", server, at(point, steps), switched=True)
        for steps in of.steps
    ]


def at(point: Point, steps: int) -> Point | None:
    return replace(point, num_steps=steps, num_draft_tokens=steps + 1) if steps else None


def greedy(server: Server, requests_: Sequence[Request], tokens: int) -> list[list[int]]:
    """Greedy outputs, request by request, as ids."""
    answers = []
    for each in requests_[:COMPARED]:
        parameters = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
        body = {**said(each), "sampling_params": parameters}
        reply = requests.post(f"{server.url}/generate", json=body, timeout=120)
        reply.raise_for_status()
        answers.append(reply.json()["output_ids"])
    return answers


def measure(
    loaded: LoadedSweep, all_of: Sequence[Entrant], asked: Sequence[Request], rounds: int
) -> None:
    """Round by round, every entrant at every concurrency, each round in another order."""
    workload = loaded.sweep.workload
    counts = {level: max(workload.requests, level) for level in workload.concurrency}
    pretends = PRETENDED in loaded.sweep.server.env
    for turn in range(-1, rounds):  # the first one warms up
        first = turn % len(all_of)
        for entrant in (*all_of[first:], *all_of[:first]):
            for level, count in counts.items():
                entrant.turn()
                load = load_at(loaded.sweep, level)
                sent = asked[: count if turn >= 0 else level]
                window = run_window(entrant.server.url, sent, load)
                entrant.server.check_alive()
                judge(window, len(sent))
                if turn >= 0:
                    point = entrant.point or Point()
                    figures = summarise([window], point.num_steps, point.eagle_topk)
                    kept = {name: figures[name] for name in FIGURES}
                    entrant.rounds.setdefault(level, []).append(kept)
            if turn < 0 and not pretends:
                entrant.turn()
                entrant.outputs = greedy(entrant.server, asked, workload.output_tokens)


def profiles(all_of: Sequence[Entrant], request: Request) -> dict[str, Any]:
    """Kernel times of every entrant, one after the other."""
    found = {}
    for entrant in all_of:
        entrant.turn()
        found[entrant.name] = profile(entrant.server.url, said(request))
    return found


def said(request: Request) -> dict[str, Any]:
    """A prompt as /generate takes it."""
    if request.input_ids is not None:
        return {"input_ids": list(request.input_ids)}
    return {"text": request.text}


def lines(all_of: Sequence[Entrant]) -> list[str]:
    """A table for each concurrency: against the first entrant, with 95 % intervals."""
    first, table = all_of[0], []
    for level in first.rounds:
        table.append(
            f"concurrency {level}: tok/s, ms a cycle, tokens a cycle, against {first.name}"
        )
        for each in all_of:
            mine, others = column(each, level), column(first, level)
            speed, ratio = mean_interval(mine), ratio_of_rounds(mine, others)
            cycle = mean_interval(column(each, level, "cycle_ms"))
            length = each.rounds[level][0]["accept_length"]
            table.append(
                f"  {each.name:<28} {speed.value:7.1f}  {cycle.value:6.3f}  "
                f"{'' if length is None else format(length, '.2f'):>4}  {ratio.value:.3f} "
                f"({ratio.low or 0:.3f} to {ratio.high or 0:.3f})"
            )
    if first.outputs:
        table.append(f"greedy outputs equal to those of {first.name}, of {len(first.outputs)}")
    for each in all_of if first.outputs else ():
        same = sum(a == b for a, b in zip(each.outputs, first.outputs, strict=True))
        table.append(f"  {each.name:<28} {same}")
    return table


def column(of: Entrant, level: int, figure: str = "output_tok_s") -> list[float]:
    return [each[figure] for each in of.rounds[level]]


@contextmanager
def launched(servers: Sequence[Wanted], logs: Path) -> Iterator[list[Entrant]]:
    """All of them at once; what does not start is said and left out. Stopped at the end."""
    logs.mkdir(parents=True, exist_ok=True)

    def launch(number: int, of: Wanted) -> Server:
        return of.engine.launch(of.config, logs / f"{of.name.replace(' ', '_')}.log", number)

    launches = [partial(launch, *each) for each in enumerate(servers)]
    with beside_each_other(launches) as launching:
        found = []
        for of, future in zip(servers, launching, strict=True):
            try:
                server = future.result()
            except EngineFailure as failure:
                print(f"not started: {failure}", file=sys.stderr, flush=True)
                continue
            print(f"{of.name}: ready after {server.launch_s:.0f} s", flush=True)
            found += entrants(of, server)
        yield found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--sglang", metavar="PYTHON", help="the Python that has SGLang")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--out", type=Path, help="also write every figure here, JSON")
    parser.add_argument("--profile", type=Path, help="write the GPU's kernels in 20 cycles here")
    parser.add_argument("--logs", type=Path, help="keep the servers' logs in this folder")
    options = parser.parse_args(argv)
    try:
        content = yaml.safe_load(options.file.read_text())
        loaded = load(content["sweep"], options.sglang)
        servers = wanted(content, options.sglang)
    except (OSError, UserError, yaml.YAMLError) as error:
        parser.error(str(error))
    except (AttributeError, KeyError, TypeError) as error:
        parser.error(f"{options.file}: {error} is missing or does not fit, see --help for the form")
    workload = loaded.sweep.workload
    count = max(workload.requests, *workload.concurrency)
    prompts = pick(loaded.prompts, count, workload.seed)
    model, server = loaded.sweep.model, loaded.sweep.server
    asked = make_engine(loaded.sweep).tokenise(model, server, prompts).requests
    with TemporaryDirectory() as folder, launched(servers, options.logs or Path(folder)) as all_of:
        if not all_of:
            return 1
        measure(loaded, all_of, asked, options.rounds)
        if options.profile:
            options.profile.write_text(json.dumps(profiles(all_of, asked[0]), indent=1) + "\n")
    print("\n".join(lines(all_of)), flush=True)
    if options.out:
        found = {each.name: {"rounds": each.rounds, "outputs": each.outputs} for each in all_of}
        options.out.write_text(json.dumps({"file": content, "entrants": found}, indent=1) + "\n")
    return 0 if {each.name.split(" at ")[0] for each in all_of} == set(content["servers"]) else 1


if __name__ == "__main__":
    sys.exit(main())
