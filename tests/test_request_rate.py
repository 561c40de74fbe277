"""A sweep whose requests come at a rate."""

from pathlib import Path

import pytest

from tests.sweeps import Listener, tiny_sweep
from tuner.campaign.campaign import begin_run, run_sweep
from tuner.engine.make import make_engine
from tuner.errors import UserError
from tuner.measure.samples_file import read_samples
from tuner.plan import make_plan
from tuner.report.run_report import write_report
from tuner.sweep.door import LoadedSweep, load_sweep

DECODE = "trials: 1, objective: {metric: decode_tok_s}, limits: {ttft_ms_p99: 100000}"


def rated(folder: Path, search: str = DECODE, rate: str = "40") -> LoadedSweep:
    path = tiny_sweep(folder, search="trials: 1", steps="2").path
    text = path.read_text().replace("stages: [], trials: 1", f"stages: [], {search}")
    text = text.replace("concurrency: [1]", f"concurrency: [8], request_rate: {rate}")
    path.write_text(text)
    return load_sweep(path)


def test_every_configuration_gets_the_same_arrivals(tmp_path: Path) -> None:
    loaded = rated(tmp_path)
    run = begin_run(tmp_path / "out", loaded, None)
    run_sweep(loaded, run, make_engine(loaded.sweep), Listener())
    records = run.ledger().records
    due = set()
    for record in records:
        assert record.outcome == "ok", record.message
        assert record.samples is not None
        for window in read_samples(run.path / record.samples)[8]:
            due.add(tuple(each.due for each in window.samples))
            assert None not in due
        figures = record.metrics["8"]
        assert figures["goodput_request_s"] == pytest.approx(figures["request_s"])
        assert figures["queue_ms_p99"] is not None
    assert len(records) > 1
    assert len(due) == 1
    text = write_report(run).read_text()
    assert "they come at 40 a second (Poisson" in text
    assert "queue p99, ms" in text


def test_a_throughput_that_is_the_rate_is_refused(tmp_path: Path) -> None:
    """Every speed-up would be 1.00, after hours."""
    with pytest.raises(UserError, match=r"tiny\.yaml:\d+: workload\.request_rate: whatever keeps"):
        rated(tmp_path, search="trials: 1")
    with pytest.raises(UserError, match=r"workload\.request_rate: 0 does not fit"):
        rated(tmp_path, rate="0")


def test_the_plan_counts_the_wait_for_the_last_one(tmp_path: Path) -> None:
    slow, fast = (make_plan(rated(tmp_path, rate=r), []).estimate for r in ("0.01", "1000"))
    assert slow.measure_s > fast.measure_s + 2 * 8 / 0.01 * 0.99
