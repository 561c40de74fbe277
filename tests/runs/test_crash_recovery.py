"""A run that begins or goes on finds no server of a killed run in its way."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.factories import CRLF_SWEEP, make_settings
from tests.server import launching
from tuner.runs.run import Run

KILLED = """
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


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path, CRLF_SWEEP, make_settings())


@pytest.fixture
def holder(run: Run) -> Iterator[subprocess.Popen[str]]:
    """A specbench in the middle of a launch, and its server's process id on stdout."""
    words = [sys.executable, "-c", KILLED, str(run.path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as process:
        yield process


def server_of(holder: subprocess.Popen[str]) -> psutil.Process:
    assert holder.stdout is not None
    return psutil.Process(int(holder.stdout.readline()))


@pytest.mark.parametrize("same", [True, False])
def test_servers_of_a_killed_run_are_ended_and_said(
    run: Run, holder: subprocess.Popen[str], same: bool
) -> None:
    """Of this run, and of the runs beside it: they hold the same GPUs."""
    server = server_of(holder)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert not launching.is_gone(server)
    going_on = run if same else Run.create(run.path.parent, CRLF_SWEEP, make_settings())
    with going_on.locked() as note:
        assert launching.is_gone(server)
    assert note is not None
    assert note.startswith("ended 1 process that launch 0004 of a killed specbench had left")
    assert str(run.path) in note
    with going_on.locked() as note:
        assert note is None


def test_a_run_that_is_at_work_keeps_its_server(run: Run, holder: subprocess.Popen[str]) -> None:
    """Two sweeps may share a folder of results, on different GPUs."""
    server = server_of(holder)
    with Run.create(run.path.parent, CRLF_SWEEP, make_settings()).locked() as note:
        assert note is None
        assert not launching.is_gone(server)
    server.kill()
    os.kill(holder.pid, signal.SIGKILL)
