"""specbench in a process of its own, ended from outside while it runs.

Processes are forked from a server that has the imports already: a session costs its launches only.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import psutil

from tests.execution.played_slots import PlayedEngine, known_window
from tests.played import known_windows
from tests.seals import SEAL
from tests.sweeps import Listener
from tuner.cli.terminal import end_on_signals
from tuner.config.loader import load_sweep
from tuner.core.errors import EngineFailure
from tuner.engines import make_engine
from tuner.execution import launch
from tuner.loadgen.client import run_window
from tuner.metrics.samples import Window
from tuner.runner.sweep_run import reopen_run, run_sweep
from tuner.runs import run as ledger_run
from tuner.runs.records import Role, TrialRecord
from tuner.server.http_api import ServerApi

INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
Moment = Literal["launching", "warming", "measuring", "stopping", "stopped", "writing", "written"]
"""Of a trial."""


@dataclass(frozen=True)
class End:
    """When a session is ended, and by which signal."""

    moment: Moment | Literal["timing"]
    """`timing`: all-reduces are timed, no trial goes on."""
    number: int
    after: int = 0
    """Candidates of the session that are through by then."""
    role: Role = "candidate"
    """Of the trial."""


def session(
    sweep: Path,
    run: Path,
    seal: str,
    end: End | None,
    limit_s: float = 100,
    *,
    played: bool = False,
) -> int:
    """Run `sweep` into the folder `run` until its end or until `end`; returns the exit code.

    `played`: without servers, where it is about what the run does and not about them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=_session, args=(sweep, run, seal, end, played))
    with patch.dict(os.environ):
        os.environ.pop(SEAL, None)  # the server of forks stays, and is no process of the session
        process.start()
    process.join(limit_s)
    assert process.exitcode is not None, "the session hangs"
    return process.exitcode


def _session(sweep: Path, run: Path, seal: str, end: End | None, played: bool) -> None:
    os.environ[SEAL] = seal
    os.setpgid(0, 0)
    end_on_signals()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    listener = _Ending(end)
    loaded = load_sweep(sweep)
    folder = reopen_run(run, loaded, None)
    engine = make_engine(loaded.sweep)
    if played:
        engine = PlayedEngine(loaded.sweep.engine, loaded.sweep.timeouts)
        launching: tuple[type, str] = PlayedEngine, "launch"
        measuring: Any = patch.object(launch.LaunchContext, "_send", staticmethod(listener.known))
    else:
        launching = ServerApi, "is_healthy"
        windows = known_windows(listener.phases, listener.around(run_window))
        measuring = patch.object(launch, "run_window", windows)
    with (
        measuring,
        patch.object(*launching, listener.on("launching", getattr(*launching))),
        patch.object(ledger_run.Run, "append", listener.half_of(ledger_run.Run.append)),
        patch.object(ledger_run, "synced", listener.on("written", ledger_run.synced)),
    ):
        try:
            run_sweep(loaded, folder, engine, listener)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except EngineFailure:
            sys.exit(1)


class _Ending(Listener):
    """Sends the signal to its own process at the moment."""

    def __init__(self, end: End | None) -> None:
        super().__init__()
        self._end = end

    def _is_due(self, *moments: Moment) -> bool:
        if self._end is None or self._end.moment not in moments or not self.phases:
            return False
        role = self._end.role
        begun = {each.trial for each in self.phases if each.role == "candidate"}
        through = len(begun) - (role == "candidate")
        return self.phases[-1].role == role and through >= self._end.after

    def _strike(self) -> None:
        assert self._end is not None
        number, self._end = self._end.number, None
        os.kill(os.getpid(), number)

    def phase(self, phase: launch.Phase) -> None:
        super().phase(phase)
        if phase.doing == "stopping" and self._is_due("stopping"):
            self._strike()
        elif phase.doing == "stopping" and self._is_due("stopped"):
            threading.Timer(0.03, self._strike).start()

    def step(self, message: str) -> None:
        super().step(message)
        if self._end is not None and self._end.moment == "timing":
            self._strike()

    def known(self, *_: Any) -> Window:
        """In the place of what is sent: a window of the phase's point, or the signal."""
        if self._is_due("measuring"):
            self._strike()
        return known_window(self.phases[-1].point)

    def on(self, moment: Moment, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, with the signal before it where the moment has come."""

        def wrapped(*words: Any) -> Any:
            if self._is_due(moment):
                self._strike()
            return call(*words)

        return wrapped

    def half_of(self, append: Callable[..., None]) -> Callable[..., None]:
        """`append`, with the signal in the middle of a line."""

        def wrapped(run: ledger_run.Run, *records: TrialRecord) -> None:
            if self._is_due("writing"):
                assert run._writing is not None
                run._writing.write(records[0].model_dump_json().encode()[:200])
                self._strike()
            append(run, *records)

        return wrapped

    def around(self, send: Callable[..., Any]) -> Callable[..., Any]:
        """`send`, with the signal while it waits for answers."""

        def wrapped(url: str, requests: Sequence[Any], load: Any) -> Any:
            doing = self.phases[-1].doing
            if doing in ("warming", "measuring") and self._is_due(doing):
                threading.Timer(0.05, self._strike).start()
            return send(url, requests, load)

        return wrapped


HELD_RUN = """
import os, signal, sys
from pathlib import Path
from tuner.server.process import ProcessTree, child_environment
from tuner.runs.run import Run

run = Run.open(Path(sys.argv[1]))
environment = child_environment({}, frozenset(), "mark of " + str(run.path))
words = [sys.executable, "-c", "import time; time.sleep(60)"]
with run.locked():
    launch = ProcessTree(words, environment, run.log_file(4))
    launch.start()
    print(launch.pid, flush=True)
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGKILL)
"""
"""A program that holds the lock of a run and a launch. It kills itself at the end of its input."""


def server_of(holder: subprocess.Popen[str]) -> psutil.Process:
    """Return the server of a process that runs `HELD_RUN`."""
    assert holder.stdout is not None
    return psutil.Process(int(holder.stdout.readline()))
