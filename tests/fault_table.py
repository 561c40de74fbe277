"""Every way in which a server goes wrong, what it is to be called, and what its message must say.

One table for the launch alone (tests/server/test_launch_faults.py), for whole runs
(tests/runner/test_faults.py) and for chaos (tests/runner/test_chaos.py).
A new fault of the simulated engine
needs its row here, or a test fails.
"""

from dataclasses import dataclass
from typing import Literal

from tuner.config.schema import FaultSpec
from tuner.core.errors import Failure

LAUNCH_LIMIT_S = 3.0
"""Of the launches that are to run out of time."""


@dataclass(frozen=True)
class Row:
    """A fault, and what becomes of a trial whose every launch has it."""

    kind: str
    value: float | None
    when: Literal["starting", "too late", "measuring", "stopping"]
    """Where it shows: in the launch, as a launch that takes too long, under load, or at the end."""
    label: Failure | None
    """None: the trial succeeds."""
    says: str = ""
    """What the message has, as a regular expression: what a user can act on."""

    @property
    def id(self) -> str:
        return self.kind if self.value is None else f"{self.kind}={self.value:g}"

    @property
    def launches(self) -> int:
        """A failure that may well not come again has a second launch."""
        return 2 if self.label is not None and self.label.is_worth_a_retry else 1

    @property
    def outcome(self) -> str:
        """The point's own fault, or the world's."""
        if self.label is None:
            return "ok"
        return "infeasible" if self.label.is_configs_own else "failed"

    def spec(self, *launches: int) -> FaultSpec:
        return FaultSpec(kind=self.kind, value=self.value, launches=list(launches) or None)


MATRIX = (
    Row("bad-args", None, "starting", Failure.BAD_ARGS, "unrecognized arguments: --no-such-flag"),
    Row("die-loading", None, "starting", Failure.MODEL_LOAD, "shard 3 cannot be read"),
    Row("killed-loading", None, "starting", Failure.CRASH, "SIGKILL.*out of memory.*Load weight"),
    Row("oom-load", None, "starting", Failure.OOM, "increase --mem-fraction-static"),
    Row("nccl-port-taken", None, "starting", Failure.PORT_IN_USE, "port: 29500.*already in use"),
    Row("oom-capture", None, "starting", Failure.OOM, "CUDA out of memory"),
    Row("capture-failed", None, "starting", Failure.GRAPH_CAPTURE, "topk"),
    Row("die-capture", None, "starting", Failure.GRAPH_CAPTURE, "illegal memory access"),
    Row("killed-capture", None, "starting", Failure.CRASH, "SIGKILL.*out of memory.*Capture"),
    Row("port-taken", None, "starting", Failure.PORT_IN_USE, "address already in use"),
    Row("die-warming", None, "starting", Failure.CRASH, "illegal memory access"),
    Row("wrong-server", None, "starting", Failure.WRONG_SERVER, "another server answers at http"),
    Row("hang-loading", None, "too late", Failure.LAUNCH_TIMEOUT, "timeouts.launch.*Load weight"),
    Row("hang-capture", None, "too late", Failure.LAUNCH_TIMEOUT, "timeouts.launch.*Capture"),
    Row("hang-warming", None, "too late", Failure.LAUNCH_TIMEOUT, "timeouts.launch.*Uvicorn"),
    # Much slower, or a busy machine looks for the first time when it is ready after all.
    Row("slow-start", 30, "too late", Failure.LAUNCH_TIMEOUT, "not ready after 3 s"),
    # The first token is asked for before the launch counts as one.
    Row("hang-after", 0, "starting", Failure.HANG, "no answer in"),
    Row("die-after", 0, "starting", Failure.CRASH, "SIGKILL"),
    Row("abort-after", 0, "starting", Failure.CRASH, "SIGABRT.*Watchdog"),
    Row("oom-after", 0, "starting", Failure.OOM, "CUDA out of memory"),
    Row("garbage-json", None, "starting", Failure.CLIENT, "not JSON: <html>"),
    Row("truncated-json", None, "starting", Failure.CLIENT, "not JSON"),
    Row("no-tokens", None, "starting", Failure.CLIENT, "no token"),
    Row("server-error", None, "starting", Failure.CLIENT, "answered 500: .*Internal Server Error"),
    # A token and 24 of warm-up come before the first window's, or two requests.
    Row("hang-after", 40, "measuring", Failure.HANG, "timeouts.request.*no new token came for"),
    Row("die-after", 40, "measuring", Failure.CRASH, "SIGKILL"),
    Row("abort-after", 40, "measuring", Failure.CRASH, "SIGABRT.*Watchdog"),
    Row("oom-after", 40, "measuring", Failure.OOM, "CUDA out of memory"),
    Row("garbage-json", 2, "measuring", Failure.CLIENT, "not JSON: '<html>"),
    Row("truncated-json", 2, "measuring", Failure.CLIENT, "not JSON"),
    Row("no-tokens", 2, "measuring", Failure.CLIENT, "after 0 of 24 tokens"),
    Row("server-error", 2, "measuring", Failure.CLIENT, "HTTP 500: .*Internal Server Error"),
    Row("short-stream", None, "measuring", Failure.CLIENT, "without a finish reason"),
    Row("stall-stream", 2, "measuring", Failure.HANG, "no new token came for .* s after 1"),
    Row("slow-start", 0.5, "stopping", None),
    Row("orphan-child", None, "stopping", None),
    Row("ignore-sigterm", None, "stopping", None),
    Row("outlive", None, "stopping", None),
)  # fmt: skip

ELSEWHERE = frozenset(
    {
        "oom-more-graphs",  # tests/runner/test_step_switching.py
        "refuse-steps",
        "near-ties",  # tests/runner/test_divergent_outputs.py
        "wrong-output",
        "looping-output",
    }
)
"""Faults of shared launches and of what an answer says."""


def rows(*when: str) -> list[Row]:
    return [row for row in MATRIX if row.when in when]
