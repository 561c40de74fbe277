"""What the engine tests share: engines, server configurations, and a look at the process table."""

import os
import sys
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import requests

from tuner.config.point import Point
from tuner.config.schema import (
    EngineSpec,
    FaultSpec,
    ModelSpec,
    ServerFlag,
    ServerSpec,
    TimeoutSpec,
)
from tuner.server.base import Engine, ServerConfig
from tuner.server.process import ProcessTree, child_environment
from tuner.sglang.engine import SglangEngine
from tuner.simulator.engine import SimulatedEngine

CHAIN = Point(num_steps=3, eagle_topk=1, num_draft_tokens=4, draft_tp="target")

# Starts a process that has its own session and an empty environment: only descent tells.
DISGUISED = """
import subprocess, sys, time
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", code], env={}, start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""

# Launches on a CPU with tiny models; the same flags that such a sweep file would have.
CPU_FLAGS: dict[str, ServerFlag] = {
    "device": "cpu",
    "dtype": "float32",
    "attention-backend": "torch_native",
    "sampling-backend": "pytorch",
    "skip-tokenizer-init": True,
    "mem-fraction-static": 0.2,
    "max-total-tokens": 4096,
    "max-running-requests": 4,
    "disable-cuda-graph": True,
    "disable-overlap-schedule": True,
}


@dataclass(frozen=True)
class Case:
    """An engine under test and what it serves."""

    engine: Engine
    model: ModelSpec
    flags: dict[str, ServerFlag]

    def config(
        self,
        point: Point | None = CHAIN,
        flags: dict[str, ServerFlag] | None = None,
        env: dict[str, str] | None = None,
        unset: frozenset[str] = frozenset(),
    ) -> ServerConfig:
        return ServerConfig(self.model, point, {**self.flags, **(flags or {})}, env or {}, unset)


def simulated(
    *faults: FaultSpec, launch_s: float = 60.0, request_s: float = 20.0, tp: int = 1
) -> Case:
    model = ModelSpec(target="any/target", draft="any/draft", algorithm="EAGLE3", tp=tp)
    spec = EngineSpec(kind="simulated", faults=list(faults))
    limits = TimeoutSpec(launch=launch_s, request=request_s)
    return Case(SimulatedEngine(spec, limits), model, {})


def sglang_on_cpu() -> Case:
    models = Path(os.environ["SPECBENCH_SGLANG_MODELS"])
    target, draft = str(models / "tiny_w8"), str(models / "tiny_eagle3_w1")
    model = ModelSpec(target=target, draft=draft, algorithm="EAGLE3")
    spec = EngineSpec(kind="sglang", python=os.environ["SPECBENCH_SGLANG_PYTHON"])
    limits = TimeoutSpec(launch=400.0, request=120.0)
    engine = SglangEngine(spec, limits, ServerSpec(flags=CPU_FLAGS))
    return Case(engine, model, CPU_FLAGS)


def processes_with(name: str, value: str) -> list[psutil.Process]:
    """Living processes that have this in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                continue
            if process.environ().get(name) == value:
                found.append(process)
        except psutil.Error:
            continue
    return found


def family_of(port: int) -> list[psutil.Process]:
    """The process that was given the port on its command line, and its descendants."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if str(port) in process.cmdline():
                return [process, *process.children(recursive=True)]
    return []


def port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[-1])


def is_gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_for(condition, limit_s: float = 20.0):  # type: ignore[no-untyped-def]
    """What `condition` returns once it is true."""
    deadline = time.monotonic() + limit_s
    while not (result := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return result


def generate(url: str, tokens: int, stream: bool = False, skips_tokenizer: bool = False):  # type: ignore[no-untyped-def]
    prompt = {"input_ids": [5, 6, 7, 8]} if skips_tokenizer else {"text": "one two three"}
    parameters = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
    body = {**prompt, "sampling_params": parameters, "stream": stream}
    return requests.post(f"{url}/generate", json=body, stream=stream, timeout=120)


def tree(folder: Path, code: str) -> ProcessTree:
    """Start a process tree that runs `code` and logs to `folder`."""
    environment = child_environment({}, frozenset(), uuid.uuid4().hex)
    started = ProcessTree([sys.executable, "-c", code], environment, folder / "log")
    started.start()
    return started


def printed_pid(folder: Path) -> psutil.Process:
    """Wait for the process id that a tree printed, and return the process."""
    log = folder / "log"
    wait_for(lambda: log.exists() and log.read_text().endswith("\n"))
    return psutil.Process(int(log.read_text()))
