"""A sweep whose acceptance SGLang makes up, so that it is known."""

from pathlib import Path

import pytest

from tests.real_sglang.serving import NEW
from tests.real_sglang.sweeping import check_figures, sweep_file, swept


def test_an_acceptance_that_is_set_is_reported(tmp_path: Path) -> None:
    """Otherwise accept length would be off by the bonus token, the prefill's or the last cut.

    SGLANG_SIMULATE_ACC_LEN counts the bonus token; a half is one or the other by chance.
    """
    space = {"num_steps": [3], "env": {"SGLANG_SIMULATE_ACC_LEN": ["3", "2.5"]}}
    _, run = swept(sweep_file(tmp_path, NEW, "EAGLE3", space))
    baseline, *others = run.records()
    assert baseline.metrics["1"]["accept_length"] is None
    # Among the others is also the winner's variables without speculation, which has no acceptance.
    by_value = {
        dict(each.at.env)["SGLANG_SIMULATE_ACC_LEN"]: each
        for each in others
        if each.role == "candidate" and each.at
    }
    for record in (baseline, *others):
        check_figures(run, record, NEW)
    for level in ("1", "2"):
        whole = by_value["3"].metrics[level]
        assert whole["accept_length"] == 3.0
        assert whole["accept_rate_by_position"] == [1.0, 1.0, 0.0]
        assert whole["accept_rate"] == pytest.approx(2 / 3)
        half = by_value["2.5"].metrics[level]
        first, second, third = half["accept_rate_by_position"]
        assert (first, third) == (1.0, 0.0)
        assert half["accept_length"] == pytest.approx(2 + second)
        assert 2.2 < half["accept_length"] < 2.8  # about 80 verifies
