"""A run that begins or goes on finds no server of a killed run in its way."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.factories import CRLF_SWEEP, make_settings
from tests.server import launching
from tests.sessions import HELD_RUN, server_of
from tuner.runs.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path, CRLF_SWEEP, make_settings())


@pytest.fixture
def holder(run: Run) -> Iterator[subprocess.Popen[str]]:
    """A specbench in the middle of a launch, and its server's process id on stdout."""
    words = [sys.executable, "-c", HELD_RUN, str(run.path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as process:
        yield process


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
