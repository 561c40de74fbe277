"""`specbench worker`: several processes on one search, one of them killed, the database away."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.databases import PASSWORD, Postgres, missing_postgres, running_postgres
from tests.seals import SEAL, left_behind
from tests.server.launching import processes_with
from tests.sweeps import tiny_sweep
from tuner.runs.run import Run

POINTS = 4
HEARTBEAT = 3
"""Seconds. Four of them without a beat are a death: more than the busiest machine makes a living
worker wait, and what the test waits for the dead one's point."""
NO_DEATHS = 100


server = pytest.fixture(scope="module")(running_postgres)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """PostgreSQL if it is installed. tests/workers/test_shared_study.py runs on both."""
    if missing_postgres() is not None:
        return f"sqlite:///{tmp_path / 'shared.db'}"
    server: Postgres = request.getfixturevalue("server")
    return server.url


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    loaded = tiny_sweep(tmp_path, search=f"sampler: random, trials: {POINTS}", steps="1, 2, 3")
    text = loaded.path.read_text().replace(
        "preset: quickstart,", "preset: quickstart, startup_scale: 0.02,"
    )
    text = text.replace("request: 3s", "request: 60s")
    loaded.path.write_text(text)
    return loaded.path


class Workers:
    """Workers of one study as a user starts them."""

    def __init__(self, sweep: Path, url: str, study: str) -> None:
        self._sweep, self._url, self._study = sweep, url, study
        self.seal = f"workers-{os.getpid()}-{time.monotonic_ns()}"
        self.started: list[subprocess.Popen[str]] = []

    def start(self, name: str, *words: str, heartbeat_s: int = NO_DEATHS) -> subprocess.Popen[str]:
        folder = self._sweep.parent
        where = words or (str(self._sweep), "--out", str(folder / name), "--study", self._study)
        with (folder / f"{name}.err").open("w") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "tuner", "worker", *where, "--heartbeat", str(heartbeat_s),
                 "--json"],
                env={**os.environ, SEAL: self.seal, "SPECBENCH_STORAGE": self._url},
                stdout=subprocess.PIPE, stderr=err, text=True,
            )  # fmt: skip
        self.started.append(process)
        return process

    def run(self, name: str) -> Run:
        (path,) = (self._sweep.parent / name).iterdir()
        return Run.open(path)

    def said(self, name: str) -> str:
        return (self._sweep.parent / f"{name}.err").read_text()

    def wait_for(self, name: str, what: Callable[[Run], bool], limit_s: float = 100) -> None:
        """Until a worker's run is so far."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if any((self._sweep.parent / name).glob("*/trials.jsonl")) and what(self.run(name)):
                return
            assert self.started[0].poll() is None, self.said(name)
            time.sleep(0.05)
        pytest.fail(f"{name}: {self.said(name)}")


@pytest.fixture
def workers(sweep: Path, url: str, request: pytest.FixtureRequest) -> Iterator[Workers]:
    made = Workers(sweep, url, request.node.name)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()
        process.communicate()
    left = left_behind(made.seal)
    for process in processes_with(SEAL, made.seal):
        process.kill()
    assert left == []


def is_measuring(run: Run) -> bool:
    """It has recorded and told a candidate, and is at the next one."""
    try:
        state = json.loads(run.state_file.read_text())
    except (OSError, ValueError):
        return False
    done = len(run.ledger().candidates)
    return 0 < done < POINTS and bool(state["trial"] == done + 1)


def points_of(run: Run) -> list[str]:
    return [record.at.key for record in run.ledger().candidates if record.at]


def test_what_a_killed_worker_was_at_is_measured_by_the_other(
    workers: Workers, capfd: pytest.CaptureFixture[str]
) -> None:
    """All points once: no launch is wasted, and none is lost with a node."""
    killed = workers.start("killed", heartbeat_s=HEARTBEAT)
    other = workers.start("other", heartbeat_s=HEARTBEAT)
    workers.wait_for("killed", is_measuring)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    told, _ = other.communicate(timeout=100)
    assert other.returncode == 0, workers.said("other")

    first, second = workers.run("killed"), workers.run("other")
    measured = [*points_of(first), *points_of(second)]
    assert len(measured) == len(set(measured)) == POINTS
    here, elsewhere = len(points_of(second)), len(points_of(first))

    result = json.loads(told)
    assert result["worker"]["others"][0]["candidates"] == elsewhere
    assert f"{here} candidates here, {elsewhere} elsewhere" in second.report_md.read_text()
    for run in (first, second):
        baselines = [each for each in run.ledger().records if each.role == "baseline"]
        assert baselines[0].outcome == "ok"  # its own: a ratio between machines is none
    for file in second.path.rglob("*"):
        assert not file.is_file() or PASSWORD.encode() not in file.read_bytes(), file
    assert PASSWORD not in workers.said("other")

    # The killed one's server is ended by whoever goes on with its run; nothing is left to measure.
    again = workers.start("again", "--resume", str(first.path), heartbeat_s=HEARTBEAT)
    again.communicate(timeout=100)
    assert again.returncode == 0, workers.said("again")
    assert len(points_of(Run.open(first.path))) == elsewhere
    compared = subprocess.run(
        [sys.executable, "-m", "tuner", "compare-report", first.path, second.path, "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert set(json.loads(compared.stdout)["runs"]) == {"A", "B"}


def test_a_worker_s_run_is_not_resumed_alone(workers: Workers) -> None:
    """It would measure again what the others have."""
    first = workers.start("first")
    workers.wait_for("first", lambda run: bool(run.records()))
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=100)
    path = workers.run("first").path
    alone = subprocess.run(
        [sys.executable, "-m", "tuner", "sweep", "--resume", path], capture_output=True, text=True
    )
    assert alone.returncode == 2
    assert f"specbench worker --resume {path} --storage URL" in alone.stderr
    assert f"specbench worker --resume {path} --storage URL" in workers.said("first")


def test_a_database_that_goes_away_for_a_while_loses_nothing(
    sweep: Path, request: pytest.FixtureRequest
) -> None:
    server: Postgres = request.getfixturevalue("server")
    workers = Workers(sweep, server.url, "outage")
    process = workers.start("one")
    try:
        workers.wait_for("one", is_measuring)
        server.stop()
        workers.wait_for("one", lambda run: "cannot be reached" in workers.said("one"))
        time.sleep(1)
        server.start()
        process.communicate(timeout=100)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, workers.said("one")
    measured = points_of(workers.run("one"))
    assert len(measured) == len(set(measured)) == POINTS
    assert workers.said("one").count("cannot be reached") == 1
    assert "can be reached again" in workers.said("one")
    assert PASSWORD not in workers.said("one")
    assert left_behind(workers.seal) == []
