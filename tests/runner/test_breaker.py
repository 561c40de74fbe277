"""Failures in a row stop a run, and so does a baseline that fails: nobody pays a night for one."""

from pathlib import Path

import pytest

from tests.sweeps import Listener
from tuner.analysis.summary import RunSummary, summarise_run
from tuner.config.loader import LoadedSweep, load_sweep
from tuner.core.errors import EngineFailure, Failure
from tuner.engines import make_engine
from tuner.runner.sweep_run import begin_run, reopen_run, run_sweep
from tuner.runs.run import Run

SWEEP = """
name: breaking
engine: {kind: simulated, preset: quickstart, faults: [FAULTS]}
model: {target: some/model, draft: some/draft, algorithm: EAGLE3, tp: 4}
server: {step_switch: SWITCH}
space: {num_steps: [1, 2, 3, 4, 5], env: {NCCL_PROTO: [LL, unset]}}
workload: {requests: 1, output_tokens: 8, concurrency: [1]}
measure: {warmup_requests: 0, repeats: 1}
search: {sampler: grid}
timeouts: {launch: 60s, request: 20s}
"""


def breaking(folder: Path, fault: str, launches: range, switch: bool) -> LoadedSweep:
    faults = f"{{kind: {fault}, launches: {list(launches)}}}"
    text = SWEEP.replace("FAULTS", faults).replace("SWITCH", str(switch).lower())
    path = folder / "breaking.yaml"
    path.write_text(text)
    return load_sweep(path)


def go(loaded: LoadedSweep, run: Run, listener: Listener | None = None) -> RunSummary:
    return run_sweep(loaded, run, make_engine(loaded.sweep), listener or Listener())


def launches_of(run: Run) -> int:
    return len(list(run.logs.glob("*.log")))


@pytest.mark.parametrize(
    ("fault", "switch", "launches"),
    [
        ("die-loading", False, 3),
        ("die-warming", False, 3 * 2),  # each has its second launch
        ("die-loading", True, 2 + 3),  # two blocks' shared launches, then points alone
        ("die-warming", True, (2 + 3) * 2),
    ],
)
def test_three_trials_in_a_row_that_fail_stop_the_run(
    tmp_path: Path, fault: str, switch: bool, launches: int
) -> None:
    """Something is wrong with the machine then: all other points would be marked failed too."""
    loaded = breaking(tmp_path, fault, range(1, 1 + launches), switch)
    assert loaded.sweep.search.max_failures == 3
    run, listener = begin_run(tmp_path / "runs", loaded, None), Listener()
    result = go(loaded, run, listener)
    assert [each.outcome for each in run.records()] == ["ok"] + ["failed"] * 3
    assert launches_of(run) == 1 + launches
    assert "3 trials in a row failed, the run stops" in listener.notes
    assert "3 trials in a row failed" in result.verdict
    assert result.exit_code == 1
    # The user has mended it: the run goes on with the points that are left.
    again = go(loaded, reopen_run(run.path, loaded, None))
    outcomes = [each.outcome for each in run.ledger().candidates]
    assert outcomes == ["failed"] * 3 + ["ok"] * 7
    assert again.exit_code == 0


@pytest.mark.parametrize("switch", [False, True])
@pytest.mark.parametrize(
    ("fault", "launches", "label"),
    [("die-loading", 1, Failure.MODEL_LOAD), ("die-warming", 2, Failure.CRASH)],
)
def test_a_baseline_that_fails_stops_the_run(
    tmp_path: Path, fault: str, launches: int, label: Failure, switch: bool
) -> None:
    """Without it there is nothing to compare with, however many launches would follow."""
    loaded = breaking(tmp_path, fault, range(launches), switch)
    run = begin_run(tmp_path / "runs", loaded, None)
    with pytest.raises(EngineFailure) as caught:
        go(loaded, run)
    assert caught.value.label is label
    assert [(each.role, each.failure) for each in run.records()] == [("baseline", label.value)]
    assert launches_of(run) == launches
    assert summarise_run(run).exit_code == 1
