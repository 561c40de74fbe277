"""A killed specbench's servers are found again and ended, and nobody else's."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.server import launching
from tests.server.launching import DISGUISED, printed_pid, tree
from tuner.core.errors import UserError
from tuner.server.pid_file import (
    MARK,
    SUFFIX,
    Footprint,
    end_left_behind,
    footprints,
    processes_left,
)

SLEEPS = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
KILLED = """
import os, signal, sys
from pathlib import Path
from tests.server import launching
from tests.server.launching import printed_pid, tree
folder = Path(sys.argv[1])
launch = tree(folder, sys.argv[2])
printed_pid(folder)
launch.observe()
os.kill(os.getpid(), signal.SIGKILL)
"""


def left_by_a_killed_specbench(folder: Path, code: str) -> psutil.Process:
    """The process whose id the launch printed, of a specbench that got SIGKILL."""
    killed = subprocess.run([sys.executable, "-c", KILLED, str(folder), code], check=False)
    assert killed.returncode == -signal.SIGKILL
    left = printed_pid(folder)
    assert not launching.is_gone(left)
    return left


def test_a_server_that_outlived_its_specbench_is_ended(tmp_path: Path) -> None:
    """It holds the GPUs' memory: every later launch would run out of it."""
    left = left_by_a_killed_specbench(tmp_path, SLEEPS)
    (footprint,) = footprints(tmp_path)
    assert end_left_behind(footprint) == (1, [])
    assert launching.is_gone(left)
    assert footprints(tmp_path) == []


def test_a_disguised_orphan_of_it_is_ended_by_its_id_and_start(tmp_path: Path) -> None:
    """SGLang's schedulers overwrite the environment in which the mark is."""
    left = left_by_a_killed_specbench(tmp_path, DISGUISED)
    (footprint,) = footprints(tmp_path)
    parent = json.loads(footprint.read_text())["processes"][0][0]
    os.kill(parent, signal.SIGKILL)
    launching.wait_for(lambda: launching.is_gone(psutil.Process(left.pid)) or left.ppid() != parent)
    assert end_left_behind(footprint) == (1, [])
    assert launching.is_gone(left)


def test_a_footprint_is_there_while_the_server_runs(tmp_path: Path) -> None:
    launch = tree(tmp_path, SLEEPS)
    assert [each.name for each in footprints(tmp_path)] == [f"log{SUFFIX}"]
    launch.stop()
    assert footprints(tmp_path) == []


def test_a_copied_run_folder_ends_nobodys_server(tmp_path: Path) -> None:
    """Otherwise `specbench clean COPY --yes` ends the server of the run that goes on."""
    logs, copy, moved = tmp_path / "logs", tmp_path / "copy", tmp_path / "moved"
    logs.mkdir()
    launch = tree(logs, SLEEPS)
    shutil.copytree(logs, copy)
    (footprint,) = footprints(copy)
    assert end_left_behind(footprint) == (0, [])
    assert footprints(copy) == []
    assert launch.exit_status() is None
    logs.rename(moved)
    (footprint,) = footprints(moved)
    assert len(processes_left(footprint)) == 1, "one that was moved has its launches still"
    moved.rename(logs)
    launch.stop()


@pytest.mark.parametrize("change", ["ticks", "where", "nonsense"])
def test_a_stranger_with_a_recorded_id_goes_on(tmp_path: Path, change: str) -> None:
    """Ids are used again, after a restart and in every container."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        try:
            Footprint(tmp_path / "0001.log", "a mark").write([stranger.pid])
            (path,) = footprints(tmp_path)
            data = json.loads(path.read_text())
            if change == "ticks":
                data["processes"] = [[pid, ticks - 1] for pid, ticks in data["processes"]]
            elif change == "where":
                data["where"] = "another boot"
            else:
                data["processes"] = [stranger.pid]
            path.write_text(json.dumps(data))
            assert end_left_behind(path) == (0, [])
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_another_hosts_footprint_stays(tmp_path: Path) -> None:
    """On a folder that hosts share it is the only record of a server that holds GPUs there."""
    Footprint(tmp_path / "0001.log", "a mark").write([1])
    (path,) = footprints(tmp_path)
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "host": "another"}))
    assert end_left_behind(path) == (0, [])
    assert path.exists()


def test_a_launch_with_another_mark_goes_on(tmp_path: Path) -> None:
    """Two sweeps on one machine must not end each other's servers."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    left = left_by_a_killed_specbench(tmp_path / "a", SLEEPS)
    other = tree(tmp_path / "b", SLEEPS)
    try:
        running = printed_pid(tmp_path / "b")  # before its exec it has our environment
        assert left.environ()[MARK] != running.environ()[MARK]
        (footprint,) = footprints(tmp_path / "a")
        end_left_behind(footprint)
        assert launching.is_gone(left)
        assert other.exit_status() is None
    finally:
        other.stop()


def test_a_log_that_cannot_be_written_is_the_users_mistake(tmp_path: Path) -> None:
    """Otherwise the interpreter is blamed."""
    (tmp_path / "log").mkdir()
    with pytest.raises(UserError, match="cannot be written: Is a directory"):
        tree(tmp_path, SLEEPS)
