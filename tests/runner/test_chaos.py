"""Two hundred trials, random faults, specbench itself ended now and then; all by one seed.

SPECBENCH_CHAOS_SEED and SPECBENCH_CHAOS_TRIALS play another run, or a longer one.
"""

import os
import random
import signal
from pathlib import Path
from typing import get_args

import pytest

from tests.fault_table import Row, rows
from tests.played import speed
from tests.seals import left_behind
from tests.sessions import INTERRUPTED, SIGNALS, End, Moment, session
from tuner.analysis.summary import summarise_run
from tuner.analysis.winner import is_refuted
from tuner.config.loader import LoadedSweep, load_sweep
from tuner.report.report import write_report
from tuner.runner.sweep_run import begin_run
from tuner.runs.run import Run

SEED = int(os.environ.get("SPECBENCH_CHAOS_SEED", "1"))
TRIALS = int(os.environ.get("SPECBENCH_CHAOS_TRIALS", "200"))
LENGTHS = 20
"""Chain lengths, which share a launch where nothing goes wrong."""
FAULTY = 0.3
"""Of the launches."""
ENDINGS = 6

SWEEP = """
name: chaos
engine:
  kind: simulated
  preset: quickstart
  startup_scale: 0.0001
  faults:
FAULTS
model: {target: some/model, draft: some/draft, algorithm: EAGLE3, tp: 4}
baseline: {launches: 1}
server: {step_switch: true}
space:
  num_steps: {low: 1, high: LENGTHS}
  env: {NCCL_MAX_NCHANNELS: [CHANNELS]}
workload: {requests: 1, output_tokens: 8, concurrency: [1]}
measure: {warmup_requests: 0, repeats: 1, racing: false}
search: {sampler: grid, max_failures: 1000}
timeouts: {launch: 60s, request: 2s}
"""


def plan_of(draw: random.Random) -> dict[int, Row]:
    """A fault for some of the launches, by launch; none for those that are to come after all."""
    known = [row for row in rows("starting", "measuring", "stopping") if row.kind != "orphan-child"]
    return {launch: draw.choice(known) for launch in range(TRIALS + 50) if draw.random() < FAULTY}


def chaos_sweep(folder: Path, plan: dict[int, Row]) -> LoadedSweep:
    by_row: dict[Row, list[int]] = {}
    for launch, row in plan.items():
        by_row.setdefault(row, []).append(launch)
    lines = [
        f"    - {{kind: {row.kind}, launches: {launches}"
        + ("}" if row.value is None else f", value: {row.value:g}}}")
        for row, launches in by_row.items()
    ]
    lines.append("    - {kind: outlive}")
    channels = ", ".join(map(str, range(1, TRIALS // LENGTHS + 1)))
    text = SWEEP.replace("FAULTS", "\n".join(lines))
    text = text.replace("LENGTHS", str(LENGTHS)).replace("CHANNELS]", f"{channels}]")
    path = folder / "chaos.yaml"
    path.write_text(text)
    return load_sweep(path)


@pytest.mark.timeout(max(600, 6 * TRIALS))
def test_chaos_loses_nothing_and_ends_with_the_right_answer(tmp_path: Path, seal: str) -> None:
    draw = random.Random(SEED)
    plan = plan_of(draw)
    loaded = chaos_sweep(tmp_path, plan)
    run = begin_run(tmp_path / "runs", loaded, None)
    ends = [random_end(draw) for _ in range(ENDINGS)]
    before, codes = run.records(), []
    while not codes or codes[-1] != 0:
        end = ends.pop() if ends else None
        codes.append(session(loaded.path, run.path, seal, end, limit_s=5.0 * TRIALS))
        killed = codes[-1] == -signal.SIGKILL
        assert codes[-1] in (0, 1, INTERRUPTED) or killed, (codes, end)
        assert killed or left_behind(seal) == []
        records = run.records()
        assert records[: len(before)] == before
        assert codes[-1] != 1 or records[-1].role == "baseline"  # which failed: it stops the run
        before = records
        assert len(codes) < 10 * ENDINGS
    check(loaded, run, plan)
    assert left_behind(seal) == []


def random_end(draw: random.Random) -> End:
    moment = draw.choice(get_args(Moment))
    return End(moment, draw.choice(SIGNALS), after=draw.randrange(TRIALS // ENDINGS))


def check(loaded: LoadedSweep, run: Run, plan: dict[int, Row]) -> None:
    """Each point is there once, each failure by its name, and the fastest is the answer."""
    ledger = run.ledger()
    assert [each.trial for each in ledger.records] == list(range(len(ledger.records)))
    candidates = ledger.candidates
    assert {each.at for each in candidates} == set(loaded.space.points)
    assert len(candidates) == len(loaded.space.points)
    for each in ledger.records:
        if each.outcome != "ok":
            row = plan[each.launch_id]
            assert (each.failure, each.outcome) == (row.label, row.outcome), (row, each)
        else:
            assert each.metrics["1"]["requests"] == 1
            assert each.samples is not None and (run.path / each.samples).exists()
    assert sum(run.log_file(launch).exists() for launch in plan) > 5, "this seed plays no chaos"
    objective = loaded.sweep.search.objective
    stands = [
        each.at
        for each in candidates
        if each.outcome == "ok" and not is_refuted(ledger, each, objective)
    ]
    result = summarise_run(run)
    assert result.best is not None and result.exit_code == 0
    assert speed(result.best.at) > 0.99 * max(map(speed, stands))
    assert write_report(summarise_run(run)).exists()
