"""One client against one server: speed by the server's clock, CPU by the kernel's.

The server is pinned to the first core that this process may use, the client with all its processes
to the second. CPU seconds are those between the first request's arrival and the moment at which the
last answer was read, so that imports, tokenizers and reports do not count. Both are read by the
server's word on its pipe.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.client_overhead.entrants import CHECKOUT, Entrant, Figures, Load, environment

TIMEOUT_S = 240.0
"""Of one client's run."""
GRACE_S = 5.0
"""Within which a busy server sees that a client has read all and ended."""


@dataclass(frozen=True)
class Pace:
    """How the server streams; `each_ms` 0: as fast as the connection takes it."""

    first_ms: float = 0.0
    each_ms: float = 0.0


class RunFailed(Exception):
    """A client that did not do its load; the message is one sentence."""


@dataclass(frozen=True)
class Measured:
    """One client's run of one load."""

    client: str
    concurrency: int
    requests: int
    tokens: int
    """Of all answers together."""
    paced: bool
    wall_s: float
    """From the first request's arrival to the last answer's being read, by the server's clock."""
    cpu_s: float
    """Of all the client's processes."""
    server: Figures
    """What the server did: the truth that a client should report."""
    client_said: Figures

    def to_json(self) -> dict[str, Any]:
        """With what follows from it."""
        return {
            **asdict(self),
            "tok_s": self.tokens / self.wall_s,
            "cpu_s_per_million_tokens": self.cpu_s / self.tokens * 1e6,
            "cpu_share": self.cpu_s / self.wall_s,
            "added_ttft_ms": self.client_said.ttft_ms - self.server.ttft_ms,
        }


def measure(entrant: Entrant, load: Load, pace: Pace) -> Measured:
    """Run it. Raises RunFailed."""
    with tempfile.TemporaryDirectory() as name, playing(entrant, load, pace) as server:
        folder = Path(name)
        until = time.monotonic() + TIMEOUT_S
        url = f"http://127.0.0.1:{said(server, None, until)['port']}"
        words = [*pinned(1), str(entrant.program), *entrant.command(url, load, folder)]
        with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as errors:
            client = subprocess.Popen(
                words, stdout=out, stderr=errors, env=environment(entrant), cwd=CHECKOUT
            )
        try:
            begun = said(server, client, until)
            before = cpu_seconds(client.pid)
            ended = said(server, client, until)
            spent = cpu_seconds(client.pid) - before
            client.wait(max(0.0, until - time.monotonic()))
            figures = entrant.read(folder)
        except (LookupError, OSError, ValueError, TypeError, subprocess.TimeoutExpired) as failure:
            stop_tree(client.pid)
            tail = (folder / "stderr").read_text()[-400:] or (folder / "stdout").read_text()[-400:]
            message = f"{entrant.name} did not do its load ({failure!r}): {' '.join(tail.split())}"
            raise RunFailed(message) from failure
        finally:
            stop_tree(client.pid)
            client.wait()
    wall = ended["ended"] - begun["begun"]
    count = load.requests * load.tokens
    wait, take = ended["wait_s"], ended["take_s"]
    truth = Figures(count / wall, 1000 * wait, 1000 * (take - wait) / (load.tokens - 1))
    return Measured(
        client=entrant.name,
        concurrency=load.concurrency,
        requests=load.requests,
        tokens=count,
        paced=pace.each_ms > 0,
        wall_s=wall,
        cpu_s=spent,
        server=truth,
        client_said=figures,
    )


@contextlib.contextmanager
def playing(entrant: Entrant, load: Load, pace: Pace) -> Iterator[subprocess.Popen[bytes]]:
    words = [
        *pinned(0),
        *(sys.executable, "-m", "benchmarks.client_overhead.server"),
        *("--requests", str(load.requests), "--tokens", str(load.tokens)),
        *("--last", str(min(load.concurrency, load.requests))),
        *("--pace-ms", str(pace.each_ms), "--ttft-ms", str(pace.first_ms)),
        *(["--incremental"] if entrant.incremental else []),
    ]
    # Without a buffer here: what is in the pipe is all that was said and not yet read.
    server = subprocess.Popen(words, stdout=subprocess.PIPE, bufsize=0, cwd=CHECKOUT)
    try:
        yield server
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate()


def said(
    server: subprocess.Popen[bytes], client: subprocess.Popen[bytes] | None, until: float
) -> dict[str, float]:
    """The server's next word, one line in one write.

    Raises ValueError when the server has ended, when the client failed or ended some seconds ago
    without having read all, and at `until` (seconds of CLOCK_MONOTONIC).
    """
    assert server.stdout is not None
    while not select.select([server.stdout], [], [], 0.5)[0]:
        over = client and os.waitid(os.P_PID, client.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if over and over.si_status:
            raise ValueError(f"it ended with {over.si_status}")
        if over:
            until = min(until, time.monotonic() + GRACE_S)
        if time.monotonic() > until:
            raise ValueError("the load was not done in time")
    line = server.stdout.readline()
    if not line:
        raise ValueError("the server ended")
    found: dict[str, float] = json.loads(line)
    return found


def cores() -> list[int]:
    """Those that this process may use."""
    return sorted(os.sched_getaffinity(0))


def pinned(place: int) -> list[str]:
    """Words before a command: the server's core is 0, the client's 1."""
    return ["taskset", "-c", str(cores()[min(place, len(cores()) - 1)])]


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and its descendants, each by its own clock (nanoseconds)."""
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        return sum(map(_cpu_clock, [root.pid, *(p.pid for p in root.children(recursive=True))]))
    return 0.0


def _cpu_clock(pid: int) -> float:
    with contextlib.suppress(OSError):
        return time.clock_gettime((~pid << 3) | 2)  # MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED)
    return 0.0


def stop_tree(pid: int) -> None:
    """End what is left of a client."""
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in [*root.children(recursive=True), root]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
