"""Fixtures that several command tests share."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.factories import CRLF_SWEEP, make_settings
from tests.sessions import HELD_RUN, server_of
from tuner.runs.run import Run


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[tuple[Run, psutil.Process]]:
    """A run whose specbench was killed in a launch, and the server that it left."""
    run = Run.create(tmp_path / "results" / "x", CRLF_SWEEP, make_settings())
    words, pipe = [sys.executable, "-c", HELD_RUN, str(run.path)], subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as holder:
        server = server_of(holder)
        os.kill(holder.pid, signal.SIGKILL)
    yield run, server
    if server.is_running():
        server.kill()
