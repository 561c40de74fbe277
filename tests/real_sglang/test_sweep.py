"""A whole sweep by the command line, on real servers."""

from pathlib import Path

import pytest

from tests.real_sglang import build
from tests.real_sglang.serving import OLD
from tests.real_sglang.sweeping import check_figures, sweep_file, swept


def test_a_whole_sweep(tmp_path: Path) -> None:
    """Otherwise the command that the README begins with does not work on the engine it is for."""
    result, run = swept(sweep_file(tmp_path, OLD, "STANDALONE", {"num_steps": [1, 3]}))
    baseline, *candidates = run.records()
    assert baseline.role == "baseline"
    assert [each.at and each.at.num_steps for each in candidates] == [1, 3]
    assert (result["trials"], result["launches"]) == (2, 3)
    for record in (baseline, *candidates):
        check_figures(run, record, OLD)
    assert baseline.metrics["1"]["accept_length"] is None
    assert baseline.metrics["1"]["accept_rate_first"] is None
    for record in candidates:
        steps = record.at.num_steps if record.at else 0
        for figures in record.metrics.values():
            assert 1 < figures["accept_length"] < 1 + steps
            assert figures["accept_length"] == pytest.approx(1 + steps * figures["accept_rate"])
            rates = figures["accept_rate_by_position"]
            assert len(rates) == steps
            assert rates == sorted(rates, reverse=True)
            assert rates[0] == figures["accept_rate_first"]
            assert figures["accept_length"] == pytest.approx(1 + sum(rates))
            assert figures["engine_accept_rate"] == pytest.approx(figures["accept_rate"])
            assert figures["cycle_ms"] > 0
            assert figures["speedup_low"] <= figures["speedup"] <= figures["speedup_high"]
    report = run.report_md.read_text()
    assert OLD in report
    for record in candidates:
        assert f"{record.metrics['1']['accept_length']:.2f}" in report
    assert "simulated" not in report.lower()
    assert run.best_yaml.is_file()
    assert str(build.interpreter(OLD)) in run.best_sh.read_text()
