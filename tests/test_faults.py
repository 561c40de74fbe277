"""Whole runs in which all goes wrong that can: each fault costs its own trial and no other."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fault_table import ELSEWHERE, MATRIX, Row, rows
from tests.seals import left_behind
from tests.sweeps import Listener
from tuner.campaign.campaign import begin_run, reopen_run, run_sweep
from tuner.engine.footprint import footprints
from tuner.engine.make import make_engine
from tuner.engine.simulated.faults import FAULTS
from tuner.ledger.record import TrialRecord
from tuner.ledger.run import Run
from tuner.sweep.door import LoadedSweep, load_sweep

SWEEP = """
name: faulty
engine:
  kind: simulated
  preset: quickstart
  faults:
FAULTS
model: {target: some/model, draft: some/draft, algorithm: EAGLE3, tp: 4}
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
    assert (again.records, again.notes) == ([], [])
