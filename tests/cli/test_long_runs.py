"""A run of a night: looked at, stopped, left alone by a closed terminal, cleaned up after."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.server import launching
from tests.sweeps import tiny_sweep
from tuner.runs.run import Run
from tuner.server.pid_file import SUFFIX

SPECBENCH = [sys.executable, "-m", "tuner"]


def specbench(*words: str | Path, **how) -> subprocess.CompletedProcess[str]:
    command = [*SPECBENCH, *map(str, words)]
    given = {"capture_output": True, "text": True, "timeout": 100, **how}
    return subprocess.run(command, **given)


@pytest.fixture
def going(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A sweep of twelve points whose baseline is measured, and its folder."""
    slow = "{kind: slow-start, value: 3}"
    tiny_sweep(tmp_path, slow, "sampler: grid", "1, 2, 3, 4, 5, 6")
    words = [*SPECBENCH, "sweep", str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out")]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as process:
        launching.wait_for(lambda: any((tmp_path / "out").glob("*/trials.jsonl")), 60)
        (path,) = (tmp_path / "out").iterdir()
        launching.wait_for(lambda: (path / "trials.jsonl").stat().st_size > 0, 60)
        yield process, path
        process.kill()


def test_a_run_is_looked_at_and_stopped_after_its_trial(
    going: tuple[subprocess.Popen[str], Path],
) -> None:
    """What was measured for minutes is not thrown away, and the GPUs come free soon."""
    process, path = going
    found = json.loads(specbench("status", path, "--json").stdout)
    assert found["state"] == "running"
    assert found["now"]["pid"] == process.pid
    assert found["now"]["doing"]
    assert found["wanted"] == 12
    shown = specbench("status", path)
    assert f"process {process.pid} on " in shown.stdout
    asked = specbench("stop", path)
    assert asked.returncode == 0, asked.stderr
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "somebody asked this run to stop, no new candidate is begun" in out
    assert f"go on with: specbench sweep --resume {path}" in err
    run = Run.open(path)
    done = len(run.ledger().candidates)
    assert done < 12
    assert run.report_md.exists()
    assert run.records()[-1].role == "candidate", "no confirming launch follows"
    words = f"**Ended early at {done} of 12 candidates** (somebody asked this run to stop)"
    report = run.report_md.read_text()
    assert words in report
    assert report.index(words) < report.index("How sure:")
    assert "go on with `specbench sweep --resume" in report
    shown = specbench("status", path).stdout
    assert f"go on with: specbench sweep --resume {path}" in shown
    assert "ended early: somebody asked this run to stop" in shown
    assert not run.running
    assert not run.stop_file.exists()
    assert not run.state_file.exists()
    found = json.loads(specbench("status", path, "--json").stdout)
    assert (found["state"], found["done"], found["now"]) == ("ended", done, None)
    again = specbench("stop", path)
    assert again.returncode == 2
    assert "nothing to stop" in again.stderr


def test_a_closed_terminal_does_not_end_a_run(tmp_path: Path) -> None:
    """Whoever starts a sweep over ssh closes the laptop."""
    tiny_sweep(tmp_path, search="sampler: grid", steps="1, 2")
    child, terminal = pty.fork()
    if child == 0:
        words = ["sweep", str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out")]
        os.execv(sys.executable, [*SPECBENCH, *words])
    launching.wait_for(lambda: any((tmp_path / "out").glob("*/state.json")), 60)
    os.close(terminal)  # the kernel sends SIGHUP
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    (path,) = (tmp_path / "out").iterdir()
    assert len(Run.open(path).ledger().candidates) == 4
    assert (path / "report.md").exists()


def test_a_command_at_the_end_is_run_without_a_shell(tmp_path: Path) -> None:
    """Somebody waits for a night's run; a value of a file must not become a command line."""
    tiny_sweep(tmp_path, search="trials: 1")
    file, said = tmp_path / "tiny.yaml", tmp_path / "said"
    text = file.read_text()
    code = (
        "import os, sys; open(sys.argv[1], 'a').write(os.environ['SPECBENCH_OUTCOME'] + ' ' + "
        "os.environ['SPECBENCH_RUN'] + ' ' + sys.argv[2] + chr(10)); print('loud')"
    )
    words = json.dumps([sys.executable, "-c", code, str(said), "$(touch x); `id`"])
    file.write_text(f"{text}\non_finish: {words}\n")
    done = specbench("sweep", file, "--out", tmp_path / "out", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trials"] == 1
    (path,) = (tmp_path / "out").iterdir()
    assert said.read_text() == f"done {path} $(touch x); `id`\n"
    assert not (tmp_path / "x").exists()
    file.write_text(file.read_text().replace("faults: []", "faults: [{kind: die-loading}]"))
    assert specbench("sweep", file, "--out", tmp_path / "out").returncode == 1
    assert said.read_text().splitlines()[1].startswith("failed ")
    file.write_text(f"{text}\non_finish: [no-such-program]\n")
    done = specbench("sweep", file, "--out", tmp_path / "out")
    assert done.returncode == 0
    assert "on_finish: no-such-program cannot be run: No such file" in done.stderr


def test_clean_lists_and_then_removes_what_a_killed_run_left(
    killed: tuple[Run, psutil.Process], tmp_path: Path
) -> None:
    """GPU memory comes back without a look for process ids; nothing measured is lost."""
    run, server = killed
    for file in (run.path / "models.partial", run.samples / "0001.jsonl.gz.tmp", run.stop_file):
        file.write_text("x")
    kept = {p: p.read_bytes() for p in (run.sweep_file, run.settings_file, run.trials_file)}
    assert json.loads(specbench("status", run.path, "--json").stdout)["state"] == "killed"
    listed = specbench("clean", "--all", cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert f"processes {server.pid}" in listed.stdout
    assert "models.partial" in listed.stdout
    assert "--yes" in listed.stdout
    assert not launching.is_gone(server)
    done = specbench("clean", "--all", "--yes", cwd=tmp_path)
    assert "ended 1 processes" in done.stdout
    assert launching.is_gone(server)
    assert not run.running
    assert not list(run.path.rglob("*.partial"))
    assert not list(run.path.rglob("*.tmp"))
    assert {p: p.read_bytes() for p in kept} == kept
    assert specbench("clean", run.path).stdout == "nothing is left behind\n"


def test_clean_ends_no_stranger_and_no_run_at_work(
    going: tuple[subprocess.Popen[str], Path], killed: tuple[Run, psutil.Process]
) -> None:
    """Process ids are given again; another run's servers are somebody's night."""
    process, path = going
    done = specbench("clean", path, "--yes")
    assert done.returncode == 2
    assert "a specbench is at work here" in done.stderr
    assert process.poll() is None
    run, server = killed
    (footprint,) = run.running
    data = json.loads(footprint.read_text())
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        data["mark"], data["processes"] = "another", [[stranger.pid, 1], [server.pid, 1]]
        footprint.write_text(json.dumps(data))
        done = specbench("clean", run.path, "--yes")
        assert f"removed {footprint}" in done.stdout
        assert stranger.poll() is None
        stranger.kill()
    assert not launching.is_gone(server)
    assert not (run.logs / f"0004{SUFFIX}").exists()
