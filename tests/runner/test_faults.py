"""Whole runs in which all goes wrong that can: each fault costs its own trial and no other."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from tests.fault_table import ELSEWHERE, MATRIX, Row, rows
from tests.seals import left_behind
from tests.sweeps import Listener
from tuner.analysis.summary import summarise_run
from tuner.config.loader import LoadedSweep, load_sweep
from tuner.engines import make_engine
from tuner.report.report import write_report
from tuner.runner.sweep_run import begin_run, reopen_run, run_sweep
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run
from tuner.server.pid_file import footprints
from tuner.simulator.faults import FAULTS

SWEEP = """
name: faulty
engine:
  kind: simulated
  preset: quickstart
  faults:
FAULTS
model: {target: some/model, draft: some/draft, algorithm: EAGLE3, tp: 4}
baseline: {launches: 1}
space: {num_steps: {low: 1, high: COUNT}}
workload: {requests: 3, output_tokens: 24, concurrency: [1]}
measure: {warmup_requests: 1, repeats: 1, racing: false}
search: {sampler: grid, max_failures: 100}
timeouts: {launch: 60s, request: 2s}
"""


def test_every_fault_has_its_row() -> None:
    """A fault that no test plays is one whose label nobody has seen."""
    assert {row.kind for row in MATRIX} | ELSEWHERE == set(FAULTS)


def faulty(folder: Path, table: Sequence[Row]) -> LoadedSweep:
    """A grid whose candidate n has the fault of row n in each of its launches, and one more that
    has none."""
    lines, launch = [], 1
    for row in table:
        value = "" if row.value is None else f", value: {row.value:g}"
        launches = list(range(launch, launch + row.launches))
        lines.append(f"    - {{kind: {row.kind}{value}, launches: {launches}}}")
        launch += row.launches
    path = folder / "faulty.yaml"
    text = SWEEP.replace("FAULTS", "\n".join(lines)).replace("COUNT", str(len(table) + 1))
    path.write_text(text)
    return load_sweep(path)


def go(loaded: LoadedSweep, run: Run) -> Listener:
    listener = Listener()
    run_sweep(loaded, run, make_engine(loaded.sweep), listener)
    return listener


def told(records: Sequence[TrialRecord]) -> list[tuple[str | None, str]]:
    return [(record.failure, record.outcome) for record in records]


@pytest.mark.parametrize(
    "table",
    [rows("starting")[:11], rows("starting")[11:], rows("measuring", "stopping")],
    ids=["starting", "first token", "measuring"],
)
def test_a_fault_costs_its_trial_and_no_other(
    table: Sequence[Row], tmp_path: Path, seal: str
) -> None:
    """Otherwise a night's run learns the wrong thing of a point, or ends with the first bad one."""
    loaded = faulty(tmp_path, table)
    run = begin_run(tmp_path / "runs", loaded, None)
    go(loaded, run)
    baseline, *candidates = run.records()
    expected = [(row.label and row.label.value, row.outcome) for row in table]
    assert told(candidates) == [*expected, (None, "ok")]
    for row, record in zip(table, candidates, strict=False):
        assert (row.label is None) == (record.message is None), row.id
        assert re.search(row.says, record.message or ""), (row.id, record.message)
        assert (record.metrics == {}) == (row.label is not None), row.id
        assert run.log_file(record.launch_id).stat().st_size, row.id
    assert baseline.outcome == "ok"
    assert [record.at for record in candidates] == list(loaded.space.points)
    assert left_behind(seal) == []
    assert footprints(run.logs) == []
    again = go(loaded, reopen_run(run.path, loaded, None))
    points = len(loaded.space.points)
    nothing = f"all {points} points are measured: there is no candidate to add"
    assert (again.records, again.notes) == ([], [nothing])


class Stepping(datetime):
    """A clock that somebody sets back by an hour each time it is read."""

    reads = 0

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "Stepping":
        cls.reads += 1
        return cls(2026, 11, 29, 17, 0, 0, tzinfo=tz) - cls.reads * timedelta(hours=1)


def test_a_clock_that_steps_back_is_only_seen_in_dates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials keep their order, no time is negative, and the dashboard's study takes them."""
    for module in ("tuner.execution.trial", "tuner.runs.run"):
        monkeypatch.setattr(f"{module}.datetime", Stepping)
    loaded = faulty(tmp_path, rows("stopping")[1:2])
    run = begin_run(tmp_path / "runs", loaded, None)
    said = go(loaded, run)
    records = run.records()
    started = [record.started for record in records]
    assert started == sorted(started, reverse=True) and len(set(started)) == len(started) == 3
    for record in records:
        assert record.launch_s and record.launch_s > 0
        assert record.measured_s and record.measured_s > 0
        assert record.metrics["1"]["output_tok_s"] > 0
    assert not any("dashboard" in note for note in said.notes)
    assert write_report(summarise_run(run)).exists()
