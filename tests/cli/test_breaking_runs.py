"""What status, stop, clean and on_finish meet in folders of others, and of those that died."""

import errno
import fcntl
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from tests.factories import CRLF_SWEEP, Trial, make_point, make_run, make_settings
from tests.server import launching
from tuner.cli import on_finish, sweep
from tuner.cli.commands import specbench
from tuner.cli.runs import read_status
from tuner.core.errors import UserError
from tuner.runs.run import Run
from tuner.runs.status import own_state, read_state, write_state
from tuner.server import pid_file


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "results" / "x", CRLF_SWEEP, make_settings())


def invoke(*words: str | Path):
    return CliRunner().invoke(specbench, [*map(str, words)])


@pytest.mark.parametrize(
    "broken",
    [
        '{"pid": 1, "ho',
        "[]",
        '{"left_s": "soon"}',
        '{"trial": [1]}',
        '{"pid": true}',
        '{"left_s": 1e999}',
        '{"window": 1e300}',
        '{"doing": {"a": 1}}',
        '{"places": "slot 0"}',
        '{"places": {"slot 0": 1}}',
        '{"concurrency": 1.5}',
    ],
)
def test_a_state_that_is_none_is_not_shown(run: Run, broken: str) -> None:
    """It is written between windows, and read by another specbench, of another version."""
    whole = {"pid": 1, "host": "h", "began": "x", "told": "2026-01-01T00:00:00Z", "doing": "x"}
    run.state_file.write_text(json.dumps(whole))
    assert read_state(run) is not None
    if broken.endswith("}"):
        broken = json.dumps({**whole, **json.loads(broken)})
    run.state_file.write_text(broken)
    assert read_state(run) is None
    assert read_status(run)["state"] == "ended"


def test_a_state_of_several_places_and_of_rates_is_read(run: Run) -> None:
    """Otherwise `specbench status` is blind to a run with slots, or at request rates."""
    state = own_state(
        datetime.now(UTC), "measuring", concurrency="4/s", places={"slot 0": "a"}, left_s=1.5
    )
    write_state(run, state)
    assert read_state(run) == state


def test_a_state_writes_no_control_characters_to_a_terminal(run: Run) -> None:
    state = {"pid": 1, "host": socket.gethostname(), "began": "x", "told": "2026-01-01T00:00:00Z"}
    run.state_file.write_text(json.dumps({**state, "doing": "\x1b]0;owned\x07\nx"}))
    shown = invoke("status", run.path).output
    assert "\x1b" not in shown and "\\x1b]0;owned\\x07\\nx" in shown


@pytest.mark.parametrize("name", ["run.json", "trials.jsonl", "state.json", "logs/1.running.json"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(run: Run, name: str) -> None:
    path = run.path / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    done = subprocess.run(
        [sys.executable, "-m", "tuner", "status", run.path], capture_output=True, timeout=60
    )
    assert done.returncode in (0, 2)
    assert b"Traceback" not in done.stderr


def test_what_cannot_be_removed_is_said_and_the_rest_is_removed(run: Run) -> None:
    """A night's leftovers must not wait for one odd file."""
    run.state_file.mkdir()
    run.stop_file.touch()
    done = invoke("clean", run.path, "--yes")
    assert f"cannot remove {run.state_file}: Is a directory" in done.output
    assert not run.stop_file.exists()


def test_a_broken_run_does_not_keep_the_others_from_being_cleaned(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = run.path.with_name("0-broken")
    shutil.copytree(run.path, broken)
    (broken / "run.json").write_text("{")
    run.stop_file.touch()
    monkeypatch.chdir(run.path.parents[2])
    done = invoke("clean", "--all", "--yes")
    assert "this is not JSON" in str(done.exception)
    assert not run.stop_file.exists()


def test_another_users_footprint_ends_no_process_of_mine(
    killed: tuple[Run, psutil.Process],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a results folder that users share, anybody can write one with my process ids."""
    left, server = killed
    (mine,) = left.running
    assert pid_file.processes_left(mine) == [server.pid]
    owner = pid_file._owner(mine)
    assert owner is not None
    monkeypatch.setattr(pid_file, "_owner", lambda _: owner + 1)
    assert pid_file.processes_left(mine) == []
    assert pid_file.end_left_behind(mine) == (0, [])
    assert not launching.is_gone(server)


def test_a_folder_without_locks_is_refused_with_the_reason(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS without its lock service: two runs would write one ledger."""

    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(UserError, match=r"trials.jsonl: locks do not work here \(No locks avail"):
        run.locked().__enter__()
    assert "locks do not work here" in str(invoke("clean", run.path).exception)
    assert invoke("status", run.path).exit_code == 0


def test_looking_at_a_run_takes_no_lock_that_another_look_would_see(run: Run) -> None:
    """Over NFS a lock of its own wants a file open for writing, which a colleague has not."""
    with run.trials_file.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert not run.is_being_written
    with run.trials_file.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert run.is_being_written


def test_two_who_stop_a_run_at_once_are_both_told(run: Run) -> None:
    with run.locked():
        state = own_state(datetime.now(UTC), "measuring")
        run.state_file.write_text(json.dumps(vars(state)))
        for _ in range(2):
            done = invoke("stop", run.path)
            assert done.exit_code == 0 and "ends after the trial that runs" in done.output
    assert not run.stop_file.exists()


def test_a_run_that_was_killed_before_its_report_says_how_to_get_one(tmp_path: Path) -> None:
    """All is measured, so nothing is to be resumed, and yesterday's report is not its answer."""
    run = make_run(tmp_path, [Trial(None, 90.0), Trial(make_point(1), 100.0)])
    with run.locked():
        state = own_state(datetime.now(UTC), "stopping")
    run.state_file.write_text(json.dumps(vars(state)))
    words = f"write it with: specbench report {run.path}"
    assert words in invoke("status", run.path).output
    os.utime(run.trials_file, (1e9, 1e9))
    assert words in invoke("status", run.path).output
    run.report_md.write_text("today's")
    assert words not in invoke("status", run.path).output
    os.utime(run.report_md, (1e9 - 1, 1e9 - 1))
    assert words in invoke("status", run.path).output


def test_what_is_to_be_typed_is_quoted(tmp_path: Path) -> None:
    """A folder with a space: the command would be refused, or be about another folder."""
    run = Run.create(tmp_path / "my results; x" / "x", CRLF_SWEEP, make_settings())
    assert shlex.split(run.resume_command) == ["specbench", "sweep", "--resume", str(run.path)]
    assert f"go on with: {run.resume_command}" in invoke("status", run.path).output


def test_a_run_folder_that_is_gone_is_said_and_not_to_be_resumed(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep._say_how_to_go_on(run)
    assert run.resume_command in capsys.readouterr().err
    shutil.rmtree(run.path)
    sweep._say_how_to_go_on(run)
    said = capsys.readouterr().err
    assert "is gone, or not whole: begin a new run" in said and "--resume" not in said


CHILDREN = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
open(sys.argv[1], "w").write(str(child.pid) + chr(10))
time.sleep(300)
"""


def interrupts(said: Path) -> None:
    def strike() -> None:
        launching.wait_for(lambda: said.exists() and said.read_text().endswith("\n"))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=strike).start()


def waits(said: Path) -> None:
    """The limit ends it."""


@pytest.mark.parametrize(("moment", "limit", "why"), [
    (waits, 3.0, "has not ended in 3 s and was killed"),
    (interrupts, 60.0, "was killed: specbench was interrupted"),
])  # fmt: skip
def test_a_command_at_the_end_that_hangs_leaves_nothing_behind(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    moment: Callable[[Path], None],
    limit: float,
    why: str,
) -> None:
    """It would else outlive every run, one more each night."""
    said = tmp_path / "said"
    monkeypatch.setattr(on_finish, "LIMIT_S", limit)
    moment(said)
    words, ended = [sys.executable, "-c", CHILDREN, str(said)], False
    try:
        on_finish.run_on_finish(words, run.path, "done")
    except KeyboardInterrupt:
        ended = True
    assert ended == (moment is interrupts)
    assert why in capfd.readouterr().err
    child = int(said.read_text())
    for _ in range(200):
        if not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.05)
    raise AssertionError("its child lives")
