"""Whole sweeps on a Ray cluster of several nodes: on one machine, with simulated servers."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.execution.ray.local import LocalCluster
from tests.sweeps import tiny_sweep
from tuner.runs.run import Run

pytestmark = pytest.mark.timeout(400)
LIMIT_S = 180.0


@contextmanager
def sweeping(folder: Path, cluster: LocalCluster, *more: str) -> Iterator[subprocess.Popen[str]]:
    """A sweep of `folder`'s tiny.yaml, killed where it is still there at the end."""
    command = [sys.executable, "-m", "tuner", "sweep", str(folder / "tiny.yaml"), "--ray"]
    process = subprocess.Popen(
        [*command, cluster.address, "--out", str(folder / "runs"), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def said_of(process: "subprocess.Popen[str]", code: int = 0) -> str:
    said, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == code, said
    return said


def run_of(folder: Path) -> Run:
    (path,) = (folder / "runs").iterdir()
    return Run.open(path)


def points(run: Run) -> set[str]:
    return {each.label for each in run.records() if each.role == "candidate"}


def until(what: str, seen: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not seen():
        assert time.monotonic() < deadline, f"{what} does not come"
        time.sleep(0.1)


def has_server(folder: Path, launch: int) -> bool:
    """The log at home says that the launch's server is up."""
    log = run_of(folder).log_file(launch) if any(folder.glob("runs/*/run.json")) else None
    return log is not None and log.exists() and "ready to roll" in log.read_text()


SEARCH = "sampler: grid, trials: 4"
SLOW = "{kind: slow-start, value: 1}"


@pytest.fixture(scope="module")
def undisturbed(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run of a sweep that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    tiny_sweep(folder, SLOW, SEARCH, steps="1, 2")
    with sweeping(folder, cluster) as process:
        said_of(process)
    return run_of(folder)


def test_a_sweep_says_where_each_trial_was_measured(
    cluster: LocalCluster, undisturbed: Run
) -> None:
    """One ledger, whichever nodes; what decides has one node to itself, the same for all of it."""
    records = undisturbed.records()
    roles = [each.role for each in records if each.role != "plain"]
    assert roles == ["baseline", "abreast", "abreast", *["candidate"] * 4]
    assert all(each.outcome == "ok" for each in records)
    assert all(each.place is not None for each in records)
    baselines = [each.place for each in records if each.role in ("baseline", "plain")]
    assert len({each.name for each in baselines if each}) == 1
    assert all(each.alone and each.gpus == ["0", "1", "2", "3"] for each in baselines if each)
    abreast = {each.place.name for each in records if each.role == "abreast" and each.place}
    assert {name.partition("/")[2] for name in abreast} == {each[:6] for each in cluster.ids}
    assert len(undisturbed.machine()["nodes"]) == 2
    for record in records:
        assert "ready to roll" in undisturbed.log_file(record.launch_id).read_text()
    assert not cluster.left()


@pytest.fixture
def whole(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The cluster, of which nodes may be killed."""
    yield cluster
    cluster.complete()


def test_a_node_that_dies_midway_costs_no_point(
    whole: LocalCluster, undisturbed: Run, tmp_path: Path
) -> None:
    """A night's sweep must not end, or lose a configuration, with one machine of eight."""
    tiny_sweep(tmp_path, SLOW, SEARCH, steps="1, 2")
    with sweeping(tmp_path, whole) as process:
        until("a launch of each node beside the first one", lambda: has_server(tmp_path, 3))
        whole.kill(whole.ids[0])
        said_of(process)
    run = run_of(tmp_path)
    assert points(run) == points(undisturbed) and len(points(run)) == 4
    assert {each.outcome for each in run.records() if each.role == "candidate"} == {"ok"}
    retried = [
        check["message"]
        for each in run.records()
        for check in each.checks
        if check["check"] == "retried"
    ]
    assert retried and all("LOST" in each for each in retried)
    until("the end of every server", lambda: not whole.left())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["SIGKILL", "SIGINT"])
def test_no_server_outlives_the_coordinator(
    cluster: LocalCluster, tmp_path: Path, number: signal.Signals
) -> None:
    """Its GPUs would be taken until somebody looks; and what was measured is not lost."""
    tiny_sweep(tmp_path, f"{{kind: outlive}}, {SLOW}", "trials: 1", steps="1")
    with sweeping(tmp_path, cluster) as process:
        until("a launch after the baseline", lambda: has_server(tmp_path, 1))
        process.send_signal(number)
        process.wait(LIMIT_S)
        until("the end of every server", lambda: not cluster.left())
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert run_of(tmp_path).ledger().baseline is not None
