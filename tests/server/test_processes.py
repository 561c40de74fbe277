"""One launch's processes: all of them are ended, nobody else's."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.server import launching
from tests.server.launching import DISGUISED, printed_pid, tree
from tuner.server.log_file import HEAD_BYTES, MOST_BYTES, TAIL_BYTES, ServerLog
from tuner.server.pid_file import footprints
from tuner.server.process import MARK, ProcessTree, child_environment


def test_a_disguised_orphan_that_was_seen_is_ended(tmp_path: Path) -> None:
    """SGLang's schedulers overwrite their environment; one whose parent died has no sign left."""
    launch = tree(tmp_path, DISGUISED)
    child = printed_pid(tmp_path)
    launch.observe()
    os.kill(launch.pid, signal.SIGKILL)
    assert launch.wait(10.0) == -signal.SIGKILL
    assert not launching.is_gone(child)
    launch.stop()
    assert launching.is_gone(child)


def test_a_disguised_child_of_a_living_server_is_ended(tmp_path: Path) -> None:
    """Its parent ends first, at SIGTERM, and the child is remembered from just before."""
    launch = tree(tmp_path, DISGUISED)
    child = printed_pid(tmp_path)
    launch.stop()
    assert launching.is_gone(child)


def test_other_launches_go_on(tmp_path: Path) -> None:
    """Two sweeps on one machine must not end each other's servers."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = tree(tmp_path / "a", "import time; time.sleep(60)")
    second = tree(tmp_path / "b", "import time; time.sleep(60)")
    first.stop()
    assert second.exit_status() is None
    second.stop()
    assert second.exit_status() == -signal.SIGTERM


def test_a_server_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """A hung server does not answer to requests to end."""
    launch = tree(
        tmp_path,
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print(1, flush=True); time.sleep(60)",
    )
    printed_pid(tmp_path)
    launch.stop()
    assert launch.exit_status() == -signal.SIGKILL


def test_ctrl_c_in_the_middle_of_a_stop_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To end a server takes seconds, in which somebody presses it again."""
    launch = tree(tmp_path, DISGUISED)
    child, ask = printed_pid(tmp_path), ProcessTree._ask

    def interrupted(self: ProcessTree) -> None:
        signal.raise_signal(signal.SIGINT)
        ask(self)

    monkeypatch.setattr(ProcessTree, "_ask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        launch.stop()
    launching.wait_for(lambda: launching.is_gone(child))
    assert launch.exit_status() is not None and launch.members() == set()
    assert footprints(tmp_path) == []


def test_the_exit_status_is_kept_until_stop(tmp_path: Path) -> None:
    """A reaped child's number could be a stranger's by the time that its group is signalled."""
    launch = tree(tmp_path, "raise SystemExit(3)")
    assert launch.wait(20.0) == 3
    assert launch.exit_status() == 3
    assert psutil.Process(launch.pid).status() == psutil.STATUS_ZOMBIE
    launch.stop()
    launch.stop()
    assert launch.exit_status() == 3
    assert not psutil.pid_exists(launch.pid) or psutil.Process(launch.pid).ppid() != os.getpid()


def test_no_server_outlives_a_harness_that_ends_without_stopping_it(tmp_path: Path) -> None:
    """A bug above this room must not cost GPU memory."""
    code = (
        "import sys; from pathlib import Path; from tests.server.launching import tree; "
        "tree(Path(sys.argv[1]), 'import os, time; print(os.getpid(), flush=True); time.sleep(60)')"
        "; from tests.server.launching import printed_pid; printed_pid(Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)
    assert not psutil.pid_exists(int((tmp_path / "log").read_text()))


def test_output_of_both_streams_is_in_the_log(tmp_path: Path) -> None:
    """The cause of death may be on either."""
    launch = tree(tmp_path, "import sys; print('out', flush=True); print('err', file=sys.stderr)")
    launch.wait(20.0)
    launch.stop()
    assert (tmp_path / "log").read_text() == "out\nerr\n"


FLOODS = """
import sys, time
line = "x" * 1023 + chr(10)
for size in ({most} // 1024 + 1, 1):
    sys.stdout.write(line * size)
    sys.stdout.flush()
    print("through", flush=True)
    time.sleep({pause})
"""


def test_a_log_is_kept_to_its_size_while_its_server_writes_it(tmp_path: Path) -> None:
    """A night of a line for each request fills the disk under the run itself."""
    launch = tree(tmp_path, FLOODS.format(most=MOST_BYTES, pause=0.3))
    log = tmp_path / "log"
    try:
        launching.wait_for(lambda: log.stat().st_size > MOST_BYTES)
        launching.wait_for(lambda: ServerLog(log).end(8) == "through\n")
        launch.observe()
        assert log.stat().st_size < 1.1 * (HEAD_BYTES + TAIL_BYTES)
        launching.wait_for(lambda: ServerLog(log).end(2000).count("through\n") == 2)
        assert log.stat().st_size < 1.1 * (HEAD_BYTES + TAIL_BYTES)
    finally:
        launch.stop()


def test_the_environment_is_inherited_set_and_unset(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """A dimension's `unset` must win over the shell, and what is set over everything."""
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.setenv("GONE", "1")
    monkeypatch.setenv("SET", "1")
    environment = child_environment({"SET": "2"}, frozenset({"GONE"}), "m")
    assert environment["KEPT"] == "1"
    assert environment["SET"] == "2"
    assert "GONE" not in environment
    assert environment[MARK] == "m"
