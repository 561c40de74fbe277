"""Single launches on the nodes of a Ray cluster, on one machine, with simulated servers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.execution.ray.local import LocalCluster, joined
from tests.sweeps import tiny_sweep
from tuner.config.loader import LoadedSweep, load_sweep
from tuner.core.errors import Failure, UserError
from tuner.engines import make_engine
from tuner.execution.launch import LaunchJob
from tuner.execution.progress import Phase
from tuner.execution.trial import TrialRunner
from tuner.runner.sweep_run import begin_run

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module", autouse=True)
def driver(cluster: LocalCluster) -> Iterator[None]:
    with joined(cluster):
        yield


def spanning(folder: Path, faults: str) -> LoadedSweep:
    """The tiny sweep with servers on two nodes."""
    file = tiny_sweep(folder, faults).path
    file.write_text(file.read_text().replace("space:", "server: {flags: {nnodes: 2}}\nspace:"))
    return load_sweep(file)


@pytest.mark.parametrize(
    ("faults", "label", "words"),
    [
        ("", None, ""),
        ("{kind: oom-load, rank: 1}", Failure.OOM, "rank 1 on "),
        ("{kind: die-after, value: 20, rank: 1}", Failure.CRASH, "rank 1 on "),
    ],
    ids=["well", "rank 1 without memory", "rank 1 killed under load"],
)
def test_a_server_that_spans_nodes_is_launched_and_ended_as_one(
    cluster: LocalCluster, tmp_path: Path, faults: str, label: Failure | None, words: str
) -> None:
    """A rank that is gone leaves rank 0 silent: a hang, which tells nothing of the cause."""
    from tuner.execution.ray.executor import RayExecutor
    from tuner.execution.ray.nodes import looked_at

    loaded = spanning(tmp_path, faults)
    run = begin_run(tmp_path / "runs", loaded, None)
    bench = TrialRunner.prepare(make_engine(loaded.sweep), loaded, run, lambda phase: None)
    executor = RayExecutor(bench, bench.report, looked_at(loaded.sweep))
    try:
        assert executor.count == 2
        job = LaunchJob(Phase(0, "candidate", loaded.space.points[0], "launching"), 0)
        future = executor.submit(job)
        assert executor.wait([future]) is future
    finally:
        executor.close()
    attempt, place = future.result(), future.result().place
    assert place is not None and place.gpus == ["0", "1", "0", "1"]
    assert place.name.count(" + ") == 1
    assert (attempt.failure and attempt.failure.label) == label
    assert words in str(attempt.failure)
    rank1 = run.log_file(0).with_name("0000.rank1.log").read_text()
    assert "node_rank=1" in rank1 and "node_rank=0" in run.log_file(0).read_text()
    if label is None:
        assert attempt.info is not None and attempt.info["nnodes"] == 2
        assert attempt.taken[loaded.space.points[0]].count(1) == 2
    assert not cluster.left()


def test_a_cluster_without_room_or_alike_nodes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a folder is made, in one sentence with what would help."""
    from tuner.execution.ray import nodes

    loaded = tiny_sweep(tmp_path)
    wide = loaded.sweep.model_copy(
        update={"model": loaded.sweep.model.model_copy(update={"tp": 8})}
    )
    with pytest.raises(UserError, match="needs a node with 8 GPUs, which this cluster does not"):
        nodes.looked_at(wide)
    with pytest.raises(UserError, match="the resource fast, which this cluster does not have"):
        nodes.looked_at(loaded.sweep, "fast")
    monkeypatch.setattr(nodes, "__version__", "9.9.9")
    with pytest.raises(UserError, match=r"and this is 9\.9\.9, install the same on every node"):
        nodes.looked_at(loaded.sweep)
