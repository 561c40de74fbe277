"""specbench with slots in a process of its own, which ends itself by a signal; see sessions.py."""

import multiprocessing
import os
import signal
import sys
from pathlib import Path
from unittest.mock import patch

from tests.seals import SEAL
from tests.sessions import INTERRUPTED
from tests.sweeps import Listener
from tuner.cli.terminal import end_on_signals
from tuner.config.loader import load_sweep
from tuner.engines import make_engine
from tuner.execution.progress import Phase
from tuner.runner.sweep_run import reopen_run, run_sweep
from tuner.runs.records import TrialRecord


def session(sweep: Path, run: Path, seal: str, number: int, moment: str) -> int:
    """Run `sweep` into the folder `run` until its end, or until candidates in two slots have come
    so far, or the first candidate is recorded (`candidate`); returns the exit code."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=_session, args=(sweep, run, seal, number, moment))
    with patch.dict(os.environ):
        os.environ.pop(SEAL, None)  # the server of forks stays, and is no process of the session
        process.start()
    process.join(100)
    assert process.exitcode is not None, "the session hangs"
    return process.exitcode


def _session(sweep: Path, run: Path, seal: str, number: int, moment: str) -> None:
    os.environ[SEAL] = seal
    os.setpgid(0, 0)
    end_on_signals()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    loaded = load_sweep(sweep)
    folder = reopen_run(run, loaded, None)
    try:
        run_sweep(loaded, folder, make_engine(loaded.sweep), _Ending(number, moment))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


class _Ending(Listener):
    def __init__(self, number: int, moment: str) -> None:
        super().__init__()
        self._number, self._moment = number, moment

    def _strike(self) -> None:
        self._moment = "over"
        os.kill(os.getpid(), self._number)

    def phase(self, phase: Phase) -> None:
        super().phase(phase)
        places = {each.place for each in self.phases if each.role == "candidate"}
        if phase.role == "candidate" and phase.doing == self._moment and len(places) == 2:
            self._strike()

    def recorded(self, record: TrialRecord, standing: object) -> None:
        super().recorded(record, standing)
        if record.role == self._moment:
            self._strike()
