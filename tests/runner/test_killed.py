"""A run that is ended at every moment by every signal, and goes on each time as if nothing was."""

import json
import signal
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest

from tests.played import best_of
from tests.seals import left_behind
from tests.sessions import INTERRUPTED, SIGNALS, End, Moment, session
from tests.sweeps import Listener
from tuner.analysis.summary import summarise_run
from tuner.config.loader import LoadedSweep, load_sweep
from tuner.engines import make_engine
from tuner.runner.sweep_run import begin_run, reopen_run, run_sweep
from tuner.runs.run import Run
from tuner.server.base import server_config
from tuner.server.pid_file import footprints

SWEEP = """
name: killed
engine: {kind: simulated, preset: quickstart, faults: [{kind: outlive}]}
model: {target: some/model, draft: some/draft, algorithm: EAGLE3, tp: 4}
baseline: {launches: LAUNCHES}
space:
  num_steps: {low: 1, high: 8}
  env: {NCCL_PROTO: [unset, LL, LL128, Simple]}
workload: {requests: 2, output_tokens: 24, concurrency: [1]}
measure: {warmup_requests: 1, repeats: 1, racing: false}
search: {trials: COUNT, stages: [STAGES], seed: 3}
timeouts: {launch: 60s, request: 20s}
"""

ENDS = [End(moment, number) for moment in get_args(Moment) for number in SIGNALS]
ENDS.append(End("measuring", signal.SIGHUP, after=1))


def killed_sweep(folder: Path, count: int, launches: int = 1, stages: str = "") -> LoadedSweep:
    path = folder / "killed.yaml"
    text = SWEEP.replace("COUNT", str(count)).replace("LAUNCHES", str(launches))
    path.write_text(text.replace("STAGES", stages))
    return load_sweep(path)


@pytest.mark.timeout(600)  # it sleeps more than it works
def test_a_run_survives_every_signal_at_every_moment(tmp_path: Path, seal: str) -> None:
    """At most the trial in flight is lost, no server stays, the answer is the undisturbed one."""
    loaded = killed_sweep(tmp_path, 12)
    run = begin_run(tmp_path / "runs", loaded, None)
    session_of_none(loaded, run, seal)
    before = run.records()
    assert [each.role for each in before] == ["baseline"]
    for end in ENDS:
        code = session(loaded.path, run.path, seal, end)
        killed = end.number == signal.SIGKILL
        assert code == (-signal.SIGKILL if killed else INTERRUPTED), end
        if not killed:
            assert left_behind(seal) == [], end
            assert footprints(run.logs) == [], end
        records = run.records()
        assert records[: len(before)] == before, end
        kept = 1 if end.moment == "written" else end.after
        assert len(records) - len(before) == kept, end
        before = records
    assert session(loaded.path, run.path, seal, None) == 0
    assert left_behind(seal) == []
    check_undisturbed(loaded, run)


def session_of_none(loaded: LoadedSweep, run: Run, seal: str) -> None:
    """The baseline alone: the session is ended when its first candidate is begun."""
    assert session(loaded.path, run.path, seal, End("launching", signal.SIGINT)) == INTERRUPTED


def check_undisturbed(loaded: LoadedSweep, run: Run) -> None:
    """Check that the run is complete, in order, has each point once, and names the best of them.

    The figures are the same in any session."""
    records = run.records()
    assert [each.trial for each in records] == list(range(len(records)))
    assert run.ledger().note is None
    candidates = run.ledger().candidates
    points = [each.at for each in candidates]
    assert len({json.dumps(each.point) for each in candidates}) == len(candidates)
    assert len(points) == loaded.sweep.search.trials
    result = run_sweep(
        loaded, reopen_run(run.path, loaded, None), make_engine(loaded.sweep), Listener()
    )
    assert result.best is not None
    assert result.best.at == best_of([point for point in points if point is not None])


CLOSING_ENDS = [
    End("measuring", signal.SIGKILL, role="baseline"),
    End("timing", signal.SIGKILL),
    End("measuring", signal.SIGKILL, after=2, role="baseline"),
    End("measuring", signal.SIGKILL, role="confirm"),
    End("writing", signal.SIGTERM, role="confirm"),
    End("launching", signal.SIGKILL, role="plain"),
]
KEPT = [0, 1, 2, 1, 0, 1]
"""Records that each of these sessions adds."""


def test_a_run_that_is_killed_before_and_after_its_candidates_closes_as_any_other(
    tmp_path: Path, seal: str
) -> None:
    """Each closing launch is made once, none is left out, and the answer is the undisturbed one."""
    loaded = killed_sweep(tmp_path, 2, launches=2, stages="comm, confirm")
    undisturbed = begin_run(tmp_path / "undisturbed", loaded, None)
    assert session(loaded.path, undisturbed.path, seal, None, played=True) == 0
    roles = [each.role for each in undisturbed.records()]
    assert roles == ["baseline", "candidate", "candidate", "baseline", "confirm", "plain"]
    run = begin_run(tmp_path / "runs", loaded, None)
    counts = [0]
    for end in CLOSING_ENDS:
        code = session(loaded.path, run.path, seal, end, played=True)
        assert code == (-signal.SIGKILL if end.number == signal.SIGKILL else INTERRUPTED), end
        counts.append(len(run.records()))
    assert [b - a for a, b in pairwise(counts)] == KEPT
    assert session(loaded.path, run.path, seal, None, played=True) == 0
    assert left_behind(seal) == []
    assert [(e.role, e.point) for e in run.records()] == [
        (e.role, e.point) for e in undisturbed.records()
    ]
    found, expected = summarise_run(run), summarise_run(undisturbed)
    assert found.best is not None and expected.best is not None
    assert (found.best.point, found.speedup) == (expected.best.point, expected.speedup)


def test_a_killed_runs_server_is_ended_by_the_next_and_said(tmp_path: Path, seal: str) -> None:
    """A server that outlives specbench holds the GPUs; somebody else's is not touched."""
    loaded = killed_sweep(tmp_path, 2)
    run = begin_run(tmp_path / "runs", loaded, None)
    code = session(loaded.path, run.path, seal, End("measuring", signal.SIGKILL))
    assert code == -signal.SIGKILL
    assert len(left_behind(seal)) == 1
    theirs = make_engine(loaded.sweep)
    with theirs.launch(server_config(loaded.sweep, None), tmp_path / "theirs.log", 0) as other:
        listener = Listener()
        run_sweep(loaded, reopen_run(run.path, loaded, None), make_engine(loaded.sweep), listener)
        other.check_alive()
        assert len(left_behind(seal)) == 1
    (note,) = [note for note in listener.notes if "killed specbench" in note]
    assert note.startswith("ended 1 process that launch 0001 of a killed specbench had left")
    assert left_behind(seal) == []
