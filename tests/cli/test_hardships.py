"""What ends a night's run on other people's machines: pipes, disks, signals, second terminals."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.factories import Trial, make_point, make_run
from tests.sweeps import tiny_sweep
from tuner.analysis.summary import summarise_run
from tuner.cli.result import print_summary
from tuner.runs.run import Run

SPECBENCH = [sys.executable, "-m", "tuner"]


def specbench(*words: str | Path, **how) -> subprocess.CompletedProcess[str]:
    command = [*SPECBENCH, *map(str, words)]
    given = {"capture_output": True, "text": True, "timeout": 100, **how}
    return subprocess.run(command, **given)


def one_run(out: Path) -> Run:
    (path,) = out.iterdir()
    return Run.open(path)


def through_head(words: list[str | Path], lines: int) -> tuple[int, str]:
    """Exit code and stderr of `specbench ... | head -LINES`."""
    command = [*SPECBENCH, *map(str, words)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stderr
        for _ in range(lines):
            assert process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        return process.wait(timeout=100), said


def test_a_sweep_goes_on_when_nobody_reads_it(tmp_path: Path) -> None:
    tiny_sweep(tmp_path, search="trials: 2")
    words = ["sweep", tmp_path / "tiny.yaml", "--out", tmp_path / "out"]
    assert through_head(words, 1) == (0, "")
    run = one_run(tmp_path / "out")
    assert len(run.ledger().candidates) == 2
    assert run.report_md.exists()
    assert through_head(["plan", tmp_path / "tiny.yaml"], 1) == (0, "")


def test_a_full_disk_behind_stdout_is_said_and_no_traceback(tmp_path: Path) -> None:
    tiny_sweep(tmp_path)
    with Path("/dev/full").open("w") as full:
        done = specbench(
            "plan", tmp_path / "tiny.yaml", capture_output=False, stdout=full, stderr=-1
        )
    assert done.returncode == 1
    assert done.stderr == ("specbench: the output could not be written: No space left on device\n")


def test_closed_streams_are_no_traceback_and_no_files_lines(tmp_path: Path) -> None:
    """A file opened next would get the number of stderr, and its lines."""
    tiny_sweep(tmp_path)
    line = f"exec {sys.executable} -m tuner plan {tmp_path}/tiny.yaml >&- 2>&-"
    assert subprocess.run(["bash", "-c", line], timeout=100).returncode == 0
    line = f"exec {sys.executable} -m tuner plan {tmp_path}/gone.yaml 2>&-"
    done = subprocess.run(["bash", "-c", line], timeout=100, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")


def test_characters_that_the_terminal_lacks_are_written_as_escapes(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = specbench("plan", tmp_path / "日.yaml", env=environ)
    assert done.returncode == 2
    assert "\\u65e5.yaml: No such file" in done.stderr


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_during_the_report_leaves_a_whole_one(tmp_path: Path, presses: int) -> None:
    tiny_sweep(tmp_path, search="trials: 1")
    slow = (
        "import sys, time\nimport tuner.cli.sweep as sweep\nfrom tuner.cli import main\n"
        "write = sweep.write_report\n"
        "def slowly(run):\n    print('writing', file=sys.stderr, flush=True)\n"
        "    time.sleep(0.5)\n    return write(run)\n"
        "sweep.write_report = slowly\nmain(sys.argv[1:])\n"
    )
    words = ["sweep", str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out"), "--json"]
    with subprocess.Popen(
        [sys.executable, "-c", slow, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout and process.stderr
        said = ""
        while not said.endswith("writing\n"):
            said += process.stderr.readline()
        for _ in range(presses):
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        said += process.stderr.read()
        assert process.wait(timeout=60) == 130
        assert json.loads(process.stdout.read())["trials"] == 1
    run = one_run(tmp_path / "out")
    assert f"go on with: specbench sweep --resume {run.path}" in said
    assert "Traceback" not in said
    assert run.report_md.stat().st_size > 0


def test_a_refused_resume_changes_nothing(tmp_path: Path) -> None:
    tiny_sweep(tmp_path, search="trials: 2")
    done = specbench("sweep", tmp_path / "tiny.yaml", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    run = one_run(tmp_path / "out")
    before = run.settings_file.read_bytes()
    with run.locked():
        busy = specbench("sweep", "--resume", run.path, "--trials", "+5")
    assert busy.returncode == 2
    assert "another specbench" in busy.stderr
    assert "go on with" not in busy.stderr
    fewer = specbench("sweep", "--resume", run.path, "--trials", "1")
    assert fewer.returncode == 2
    assert "has 2 candidates already" in fewer.stderr
    assert run.settings_file.read_bytes() == before
    more = specbench("sweep", "--resume", run.path, "--trials", "+1", "--json")
    assert json.loads(more.stdout)["trials"] == 3


def test_a_budget_spent_on_the_baseline_is_no_answer(tmp_path: Path) -> None:
    """`best.sh` of a run that compared nothing would be taken to production."""
    tiny_sweep(tmp_path, search="trials: 2, time_budget: 1ms")
    done = specbench("sweep", tmp_path / "tiny.yaml", "--out", tmp_path / "out", "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert (found["best"], found["speedup"]) == (None, {})
    assert found["baseline"]["1"]["output_tok_s"] > 0
    assert "specbench: no answer: no candidate was measured" in done.stderr
    run = one_run(tmp_path / "out")
    assert run.report_md.exists()
    assert not run.best_sh.exists()


def test_a_file_that_breaks_in_the_run_leaves_report_and_json(tmp_path: Path) -> None:
    tiny_sweep(tmp_path, search="trials: 1")
    breaking = (
        "import sys\nimport tuner.runner.stages as course\nfrom tuner.cli import main\n"
        "from tuner.core.errors import UserError\n"
        "def refuse(*_): raise UserError('broken', 'somewhere')\n"
        "course.search_candidates = refuse\nmain(sys.argv[1:])\n"
    )
    words = ["sweep", str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out"), "--json"]
    command = [sys.executable, "-c", breaking, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert json.loads(done.stdout)["trials"] == 0
    run = one_run(tmp_path / "out")
    assert f"go on with: specbench sweep --resume {run.path}" in done.stderr
    assert done.stderr.endswith("specbench: somewhere: broken\n")
    assert run.report_md.exists()


def test_a_retry_is_announced_with_its_reason(tmp_path: Path) -> None:
    """A second launch of ten minutes is not to be taken for a hang."""
    tiny_sweep(tmp_path, faults="{kind: port-taken, launches: [0]}", search="trials: 1")
    done = specbench("sweep", tmp_path / "tiny.yaml", "--out", tmp_path / "out")
    assert "trial 0, baseline: trying again: PORT_IN_USE: " in done.stdout


def test_an_endpoint_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        text = tiny_sweep(tmp_path).text
        path.write_text(text.replace("kind: simulated", f"kind: endpoint, url: '{url}'"))
        done = specbench("sweep", path, "--out", tmp_path / "out", "--trials", "5")
    assert done.returncode == 1
    assert f"trial 0: measuring the server at {url}" in done.stdout
    assert "baseline" not in done.stdout
    assert "an endpoint is measured once, --trials is not used" in done.stdout
    run = one_run(tmp_path / "out").path
    shown = specbench("dashboard", run)
    assert shown.returncode == 2
    assert "has no study" in shown.stderr


def test_dry_run_and_grid_say_what_becomes_of_trials(tmp_path: Path) -> None:
    tiny_sweep(tmp_path)
    dry = specbench("sweep", tmp_path / "tiny.yaml", "--dry-run", "--trials", "1")
    assert "3 launches" in dry.stdout
    tiny_sweep(tmp_path, search="sampler: grid")
    grid = specbench("sweep", tmp_path / "tiny.yaml", "--dry-run", "--trials", "1", "--json")
    plan = json.loads(grid.stdout)
    assert plan["launches"] == 8
    assert "grid measures all 6 points, --trials is not used" in plan["notes"]
    resume = specbench("sweep", tmp_path / "tiny.yaml", "--dry-run", "--resume", tmp_path)
    assert resume.returncode == 2


def test_a_dashboard_that_cannot_be_shown_gives_no_address(tmp_path: Path) -> None:
    empty = make_run(tmp_path / "empty", [])
    missing = specbench("dashboard", empty.path)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "has measured nothing yet" in missing.stderr
    run = make_run(tmp_path, [Trial(None, 90.0), Trial(make_point(1), 100.0)])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = specbench("dashboard", run.path, "--port", str(taken.getsockname()[1]))
    assert (busy.returncode, busy.stdout) == (2, "")
    assert "Address already in use, choose another" in busy.stderr


def test_runs_without_a_comparable_row_exit_with_4(tmp_path: Path) -> None:
    broken = make_run(tmp_path, [Trial(None, failure="OOM", outcome="infeasible")])
    done = specbench("compare-report", broken.path, broken.path)
    assert done.returncode == 4
    assert "nothing is comparable" in done.stderr


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_no_terminal_is_too_narrow_for_a_figure(
    tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`20...` tok/s looks like a number."""
    run = make_run(tmp_path, [Trial(None, 90.0), Trial(make_point(2), 100.0)])
    monkeypatch.setenv("COLUMNS", str(width))
    print_summary(summarise_run(run), run.report_md)
    shown = capsys.readouterr().out
    best = run.ledger().candidates[0].metrics["1"]
    assert "…" not in shown
    assert f"{best['output_tok_s']:.1f}" in shown
    assert f"{best['speedup']:.3f}" in shown
    words = " ".join(shown.split())
    assert "AL: accept length, tokens a verify; first: accept rate at position 1" in words
    assert f"{best['ttft_ms_p50']:.1f}" in shown and f"{best['tpot_ms_p50']:.2f}" in shown


def test_all_levels_are_shown_in_one_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Throughput at 64 has more digits: a table there and lines here cannot be read together."""
    run = make_run(tmp_path, [Trial(None, 190.0), Trial(make_point(2), 200.0)], levels=(1, 64))
    workload = run.sweep().workload.model_copy(update={"concurrency": (1, 64)})
    sweep = run.sweep().model_copy(update={"workload": workload})
    summary, layouts = summarise_run(run, sweep), set()
    for width in range(68, 84):
        monkeypatch.setenv("COLUMNS", str(width))
        print_summary(summary, run.report_md)
        shown = capsys.readouterr().out
        tables, lines = shown.count("┏"), shown.count("\n  output tok/s: ")
        assert (tables, lines) in ((2, 0), (0, 4)), width
        layouts.add(tables)
    assert layouts == {0, 2}


def test_the_screen_lists_the_answer_among_many_of_a_tie(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The simplest of a tie may have the lowest figure of it, and the table only has ten lines."""
    noisy = [Trial(make_point(steps), 100.0 - 0.01 * (12 - steps)) for steps in range(2, 13)]
    run = make_run(tmp_path, [Trial(None, 90.0), Trial(make_point(1), 99.7), *noisy], noise=0.02)
    result = summarise_run(run)
    assert result.best is not None and result.best.trial == 1
    print_summary(result, run.report_md)
    shown = capsys.readouterr().out
    assert shown.index("1 step, 2 tokens") < shown.index("12 steps, 13 tokens")
