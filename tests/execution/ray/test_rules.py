"""What needs no cluster: refusals, counting, and the process that performs on a node."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.seals import SEAL, left_behind
from tests.server.launching import processes_with
from tests.sweeps import tiny_sweep
from tuner.cli import cluster
from tuner.cli.cluster import refuse_unplaced
from tuner.config.loader import load_sweep
from tuner.core.errors import UserError
from tuner.engines import make_engine
from tuner.execution.launch import LaunchJob, portable
from tuner.execution.launch_process import LaunchEnd, LaunchOrder
from tuner.execution.progress import Phase
from tuner.execution.ray.node_launch import (
    LogPart,
    NodeLaunch,
    clear_left_behind,
    own_environment,
)
from tuner.execution.trial import TrialRunner
from tuner.preflight.plan import make_plan
from tuner.runner.sweep_run import begin_run
from tuner.server.launch_script import launch_script, of_every_rank


def order_of(folder: Path, faults: str = "") -> LaunchOrder:
    loaded = tiny_sweep(folder, faults)
    run = begin_run(folder / "runs", loaded, None)
    bench = TrialRunner.prepare(make_engine(loaded.sweep), loaded, run, lambda phase: None)
    return LaunchOrder(portable(bench), LaunchJob(Phase(0, "baseline", None, "launching"), 0))


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A TMPDIR for what launches keep on a node."""
    import tempfile

    path = tmp_path_factory.mktemp("node")
    monkeypatch.setenv("TMPDIR", str(path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return path


def folders(temporary: Path) -> list[Path]:
    return list(temporary.glob("specbench-*/launch-*"))


def test_a_launch_comes_home_whole_and_leaves_nothing_on_the_node(
    tmp_path: Path, temporary: Path, seal: str
) -> None:
    said = list(NodeLaunch(order_of(tmp_path), os.environ).messages())
    assert isinstance(said[-1], LaunchEnd) and said[-1].result is not None
    assert said[-1].result.failure is None
    log = bytearray()
    for part in (each for each in said if isinstance(each, LogPart)):
        log[part.start :] = part.data
    assert b"ready to roll" in log
    assert next(each.doing for each in said if isinstance(each, Phase)) == "launching"
    assert not left_behind(seal) and not folders(temporary)


def test_ending_it_from_outside_ends_its_server_and_brings_its_log(
    tmp_path: Path, temporary: Path, seal: str
) -> None:
    held = NodeLaunch(order_of(tmp_path, "{kind: hang-capture}, {kind: outlive}"), os.environ)
    said = []
    for each in held.messages():
        said.append(each)
        if isinstance(each, LogPart) and b"Capture" in each.data and len(said) > 1:
            held.end()
    assert isinstance(said[-1], LaunchEnd) and said[-1].result is None and said[-1].why is None
    assert not left_behind(seal) and not folders(temporary)


HOLDING = """
import os, sys
from pathlib import Path
from tests.execution.ray.test_rules import order_of
from tuner.execution.ray.node_launch import NodeLaunch
for each in NodeLaunch(order_of(Path(sys.argv[1]), "{kind: hang-after, value: 1}, {kind: outlive}"),
                 os.environ).messages():
    pass
"""


@pytest.mark.parametrize("victim", ["the Ray worker", "both"])
def test_a_worker_that_is_killed_leaves_no_server(
    tmp_path: Path, temporary: Path, seal: str, victim: str
) -> None:
    """Ray kills its workers, and the kernel whatever it likes, without asking."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDING, str(tmp_path)])

    def those(word: str) -> list[int]:
        found = []
        for each in processes_with(SEAL, seal):
            with suppress(psutil.Error):  # it has ended since
                found += [each.pid for part in each.cmdline() if word in part]
        return found

    deadline = time.monotonic() + 60
    while not list(temporary.glob("specbench-*/launch-*/logs/0000.running.json")) or not those(
        "tuner.simulator"
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    if victim == "both":
        for pid in those("execution.launch_process"):
            os.kill(pid, signal.SIGKILL)
    holder.kill()
    holder.wait()
    while victim != "both" and left_behind(seal):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    while victim == "both" and those(
        "execution.launch_process"
    ):  # its lock is held until it is gone
        assert time.monotonic() < deadline
        time.sleep(0.05)
    if victim == "both":
        assert those("tuner.simulator"), "nobody was there to end it"
        clear_left_behind()  # what the next launch on the node does first
    assert not left_behind(seal) and not folders(temporary)


def test_servers_get_the_nodes_environment_without_what_ray_put_there() -> None:
    """OMP_NUM_THREADS=1 would make a server slow, and nobody would know why."""
    rays = {"RAY_JOB_ID": "1", "OMP_NUM_THREADS": "1", "NCCL_PROTO": "LL"}
    assert own_environment(rays, {}) == {"NCCL_PROTO": "LL"}
    assert own_environment(rays, {"OMP_NUM_THREADS": "8"})["OMP_NUM_THREADS"] == "8"


@pytest.mark.parametrize(
    ("more", "address", "resource", "words"),
    [
        ("server: {flags: {nnodes: 2}}", None, None,
         r"server\.flags\.nnodes: a server on 2 nodes is launched by a cluster's Ray: give --ray"),
        ("", None, "fast", "--ray-resource chooses nodes of a cluster"),
        ("slots: 2", "auto", None, "slots: slots are of one machine"),
    ],
)  # fmt: skip
def test_a_sweep_without_a_place_is_refused(
    tmp_path: Path, more: str, address: str | None, resource: str | None, words: str
) -> None:
    file = tiny_sweep(tmp_path).path
    file.write_text(file.read_text() + more)
    with pytest.raises(UserError, match=words):
        refuse_unplaced(load_sweep(file), address, resource)


def test_ray_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'sglang-specbench\[ray\]'"):
        refuse_unplaced(tiny_sweep(tmp_path), "auto", None)


def test_an_endpoint_has_no_launches_to_place(tmp_path: Path) -> None:
    file = tiny_sweep(tmp_path).path
    text = file.read_text().replace("kind: simulated,", "kind: endpoint, url: 'http://h:1',")
    file.write_text(text.replace("preset: quickstart, faults: []", ""))
    with pytest.raises(UserError, match=r"engine\.kind: an endpoint is launched by nobody"):
        refuse_unplaced(load_sweep(file), "auto", None)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("nnodes: 3", "4 ranks .* cannot be split over 3 nodes alike, write a divisor of 4"),
        ("nnodes: two", "nnodes is a number of nodes, such as 2"),
        ("nnodes: 2, node-rank: 1", "specbench sets this flag, each rank's own"),
        ("dist-init-addr: 'a:1'", "specbench sets this flag, each rank's own"),
    ],
)
def test_nodes_that_no_server_could_have_are_refused(
    tmp_path: Path, flags: str, words: str
) -> None:
    file = tiny_sweep(tmp_path).path
    file.write_text(file.read_text() + f"server: {{flags: {{{flags}}}}}\n")
    with pytest.raises(UserError, match=words):
        load_sweep(file)


def test_a_plan_shows_every_ranks_command(tmp_path: Path) -> None:
    """What is typed on each node, without a cluster and without Ray."""
    file = tiny_sweep(tmp_path).path
    file.write_text(file.read_text() + "server: {flags: {nnodes: 2}}\n")
    plan = make_plan(load_sweep(file))
    shown = [" ".join(each.argv) for each in of_every_rank(plan.baseline)]
    assert [f"--nnodes 2 --node-rank {r} --dist-init-addr RANK0:DIST_PORT" in words
            for r, words in enumerate(shown)] == [True, True]  # fmt: skip
    assert '--node-rank "${NODE_RANK:?' in launch_script(plan.baseline)
    assert '--dist-init-addr "${DIST_INIT_ADDR:?' in launch_script(plan.baseline)


def node(gpus: int, alive: bool = True, **resources: float) -> dict[str, object]:
    return {"Alive": alive, "Resources": {"GPU": float(gpus), **resources}}


@pytest.mark.parametrize(
    ("gpus", "nodes", "held", "count"),
    [
        (4, 1, [node(8), node(4), node(2)], 3),
        (8, 1, [node(8), node(8, alive=False)], 1),
        (8, 2, [node(8)], 0),
        (4, 2, [node(8), node(8)], 2),
        (4, 2, [node(16), node(4)], 1),
        (4, 2, [node(8), node(4), node(4)], 2),
    ],
)
def test_launches_are_counted_by_the_nodes_that_each_takes(
    gpus: int, nodes: int, held: list[dict[str, object]], count: int
) -> None:
    """One too many would wait for GPUs for ever."""
    ray = pytest.importorskip("tuner.execution.ray.nodes", exc_type=ImportError)
    assert ray.Need(gpus, nodes).at_a_time(held) == count


def test_servers_without_gpus_have_no_place(tmp_path: Path) -> None:
    """Ray would put all of them on one node at once."""
    ray = pytest.importorskip("tuner.execution.ray.nodes", exc_type=ImportError)
    file = tiny_sweep(tmp_path).path
    file.write_text(file.read_text() + "server: {flags: {device: cpu}}\n")
    with pytest.raises(UserError, match="places servers by the GPUs that they need"):
        ray.Need.of(load_sweep(file).sweep)


def test_nodes_with_other_gpus_are_refused_and_other_drivers_are_said() -> None:
    """A speed-up over a baseline of another GPU would be no speed-up."""
    ray = pytest.importorskip("tuner.execution.ray.nodes", exc_type=ImportError)
    h200 = {"hostname": "a", "gpus": [{"name": "H200"}], "driver": "580.1", "cpu": "x", "cores": 8}
    h100 = {**h200, "hostname": "b", "gpus": [{"name": "H100"}]}
    with pytest.raises(UserError, match=r"different GPUs.*H100: b; H200: a.*--ray-resource"):
        ray._refuse_unlike({"1": h200, "2": h100})
    found = ray._differences({"1": h200, "2": {**h200, "hostname": "b", "driver": "570.2"}})
    assert found == ["the nodes differ in driver (580.1: a; 570.2: b): so may their speeds"]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("ray://h:10001", "is no address of a cluster's head"),
        ("here", "is no HOST:PORT"),
        ("127.0.0.1:1", "nothing answers there"),
    ],
)
def test_an_address_without_a_cluster_is_refused_at_once(address: str, words: str) -> None:
    """Ray itself tries for minutes."""
    ray = pytest.importorskip("tuner.execution.ray.nodes", exc_type=ImportError)
    with pytest.raises(UserError, match=words):
        ray.join(address)
