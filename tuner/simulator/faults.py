"""Faults on demand: their names, and failures that log SGLang's messages."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from tuner.core.errors import did_you_mean
from tuner.simulator.log import log

FAULTS: Mapping[str, str] = {
    "bad-args": "refuses its arguments as argparse does, exit status 2",
    "die-loading": "a scheduler raises while weights are loaded; ends by SIGKILL",
    "killed-loading": "ends by SIGKILL while weights are loaded, without a word",
    "hang-loading": "stops while weights are loaded and stays",
    "oom-load": "no memory is left for the KV cache; ends by SIGKILL",
    "oom-capture": "CUDA out of memory during graph capture; ends by SIGKILL",
    "oom-more-graphs": "CUDA out of memory where it prepares several chain lengths",
    "refuse-steps": "refuses to switch the chain length while it runs",
    "capture-failed": "an illegal draft tree at graph capture; ends by SIGKILL",
    "die-capture": "a CUDA error during graph capture; ends by SIGKILL",
    "killed-capture": "ends by SIGKILL during graph capture, without a word",
    "hang-capture": "stops during graph capture and stays",
    "die-warming": "a scheduler raises in the server's own warm-up; ends by SIGKILL",
    "hang-warming": "stops in the server's own warm-up and stays",
    "slow-start": "value: real seconds added to the start",
    "port-taken": "reports its port as taken after loading, and stays without one",
    "nccl-port-taken": "finds the port of its ranks taken; ends by SIGKILL",
    "wrong-server": "answers as a server of another model",
    "orphan-child": "leaves a process in its own session that ignores SIGTERM",
    "ignore-sigterm": "stays when it is asked to end",
    "outlive": "stays when specbench is killed, as SGLang does",
    "hang-after": "value: tokens generated before it stops and stays",
    "die-after": "value: tokens generated before it ends by SIGKILL",
    "abort-after": "value: tokens generated before it ends by SIGABRT, as by NCCL's watchdog",
    "oom-after": "value: tokens generated before CUDA is out of memory; ends by SIGKILL",
    "garbage-json": "answers of /generate are no JSON; value: good requests before that",
    "truncated-json": "answers of /generate are cut off; value: good requests before that",
    "no-tokens": "answers of /generate hold no token; value: good requests before that",
    "short-stream": "streams end early, without a finish reason; value: good requests before that",
    "stall-stream": "streams stop midway and stay open; value: good requests before that",
    "server-error": "answers of /generate are HTTP 500; value: good requests before that",
    "near-ties": "value: tokens on average after which an answer takes another turn",
    "wrong-output": "value: right tokens of each answer before wrong ones",
    "looping-output": "value: right tokens of each answer before one is repeated",
}
TAKES_VALUE = frozenset(name for name, text in FAULTS.items() if "value: " in text)
NEEDS_VALUE = frozenset(name for name in TAKES_VALUE if FAULTS[name].startswith("value: "))
OF_ANSWERS = tuple(name for name, text in FAULTS.items() if "good requests before" in text)
"""Faults of an answer; the server itself is healthy."""


def misfit(name: str, value: float | None) -> str | None:
    """Return the error in a fault and its value, with the remedy, or None if there is none."""
    if name not in FAULTS:
        return f"there is no fault '{name}', {did_you_mean(name, list(FAULTS))}"
    if value is None and name in NEEDS_VALUE:
        return f"fault {name} needs a number, such as 10"
    if value is not None and name not in TAKES_VALUE:
        return f"fault {name} takes no number, remove it"
    return None


@dataclass(frozen=True)
class Faults:
    """The faults of one server, each with its value or None."""

    by_name: Mapping[str, float | None] = field(default_factory=dict)

    @classmethod
    def parse(cls, words: list[str]) -> "Faults":
        """Parse `kind` and `kind=value`. Raises ValueError with a sentence for anything else."""
        by_name: dict[str, float | None] = {}
        for word in words:
            name, equals, text = word.partition("=")
            try:
                value = float(text) if equals else None
            except ValueError as error:
                raise ValueError(f"fault {name} takes a number, '{text}' is none") from error
            if (why := misfit(name, value)) is not None:
                raise ValueError(why)
            by_name[name] = value
        return cls(by_name)

    def has(self, name: str) -> bool:
        return name in self.by_name

    def value(self, name: str) -> float | None:
        """Return the fault's number, or None if the fault is not set."""
        return self.by_name.get(name)

    def answer_fault(self, served: int) -> str | None:
        """Return the fault of the answer to a request after `served` others, or None."""
        for name in OF_ANSWERS:
            if name in self.by_name and served >= (self.by_name[name] or 0):
                return name
        return None

    def strike(self, generated: int, ranks: int) -> bool:
        """Play the faults due after `generated` tokens. Returns True if the server now hangs."""
        limits = {name: self.by_name.get(name) for name in _AFTER_TOKENS}
        due = {name for name, limit in limits.items() if limit is not None and generated > limit}
        if "die-after" in due:
            os.kill(os.getpid(), signal.SIGKILL)
        if "abort-after" in due:
            log(_WATCHDOG)
            os.kill(os.getpid(), signal.SIGABRT)
        if "oom-after" in due:
            die_in_scheduler(_OUT_OF_MEMORY, ranks, _SERVING)
        return "hang-after" in due


_AFTER_TOKENS = ("die-after", "abort-after", "oom-after", "hang-after")
_WATCHDOG = (
    "[rank1]:[E] ProcessGroupNCCL.cpp: [PG ID 2 PG GUID 3 Rank 1] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=1184, OpType=ALLREDUCE) ran for 600012 milliseconds before "
    "timing out."
)
_OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.17 GiB. GPU 0 has a total "
    "capacity of 94.97 GiB of which 612.00 MiB is free."
)
_SERVING = """Scheduler hit an exception: Traceback (most recent call last):
  File "site-packages/sglang/srt/managers/scheduler.py", line 4938, in run_scheduler_process
    scheduler.event_loop_overlap()
{error}
"""
_TRACEBACK = """Scheduler hit an exception: Traceback (most recent call last):
  File "site-packages/sglang/srt/managers/scheduler.py", line 4931, in run_scheduler_process
    scheduler = Scheduler(
                ^^^^^^^^^^
  File "site-packages/sglang/srt/managers/scheduler.py", line 498, in __init__
    self.init_model_worker()
{error}
"""


def die_in_scheduler(error: str, ranks: int, traceback: str = _TRACEBACK) -> NoReturn:
    """End as SGLang does when a scheduler raises: its traceback, then SIGKILL for the whole tree.

    `error` is the traceback's last line or lines.
    """
    for rank in range(min(ranks, 2)):
        log(traceback.format(error=error), rank)
    log("Received sigquit from a child process. It usually means the child failed.")
    kill_self()


def die_warming(ranks: int) -> NoReturn:
    """End as SGLang does when a scheduler raises in the first forward."""
    die_in_scheduler("RuntimeError: CUDA error: an illegal memory access", ranks, _SERVING)


def kill_self() -> NoReturn:
    """Log SGLang's line and end this process by SIGKILL."""
    pid = os.getpid()
    log(f"kill_process_tree called: parent_pid={pid}, include_parent=True, pid={pid}")
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("SIGKILL returned")


ORPHAN_LIFE_S = 300
_ORPHAN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    f"time.sleep({ORPHAN_LIFE_S})"
)


def start_orphan() -> None:
    """Start a child in its own session, with this environment, that ignores SIGTERM.

    The child ends after five minutes, so that a harness that loses it leaves nothing behind.
    """
    child = subprocess.Popen(
        [sys.executable, "-c", _ORPHAN],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    log(f"started a child in its own session, pid={child.pid}")
