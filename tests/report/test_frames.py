"""The tidy frame: what notebooks group and filter by."""

from pathlib import Path

import pandas as pd

from tests.report.make_run import SWEEP, Trial, chain, make_run
from tuner.report.frames import trials_frame

TRIALS = [
    Trial(None, 90.0),
    Trial(chain(2, env=(("NCCL_PROTO", "LL"),)), 100.0),
    Trial(chain(3, draft_tp=1, flags=(("x", True),)), 95.0),
    Trial(chain(4), failure="OOM", message="no room", outcome="infeasible"),
]


def frame_of(root: Path) -> pd.DataFrame:
    sweep = SWEEP.replace("concurrency: [1]", "concurrency: [1, 4]")
    return trials_frame(make_run(root, TRIALS, sweep=sweep, levels=(1, 4)).ledger().records)


def test_one_row_per_trial_and_concurrency(tmp_path: Path) -> None:
    frame = frame_of(tmp_path)
    pairs = list(zip(frame["trial"], frame["concurrency"].fillna(-1), strict=True))
    assert pairs == [(0, 1), (0, 4), (1, 1), (1, 4), (2, 1), (2, 4), (3, -1)]


def test_dimensions_are_columns_and_unset_is_a_value(tmp_path: Path) -> None:
    """A missing value would fall out of every groupby."""
    frame = frame_of(tmp_path).query("role == 'candidate'")
    assert list(frame["num_steps"]) == [2, 2, 3, 3, 4]
    assert list(frame["draft_tp"]) == ["target", "target", "1", "1", "target"]
    assert list(frame["env.NCCL_PROTO"]) == ["LL", "LL", "unset", "unset", "unset"]
    assert list(frame["flags.x"]) == ["false", "false", "true", "true", "false"]


def test_what_was_not_measured_is_missing_and_not_zero(tmp_path: Path) -> None:
    frame = frame_of(tmp_path)
    assert frame.loc[frame["trial"] == 3, "output_tok_s"].isna().all()
    assert frame.loc[frame["role"] == "baseline", "accept_length"].isna().all()
    assert frame.loc[frame["role"] == "baseline", "num_steps"].isna().all()
    assert list(frame.loc[frame["trial"] == 3, "failure"]) == ["OOM"]


def test_empty_ledger_gives_an_empty_frame() -> None:
    frame = trials_frame([])
    assert len(frame) == 0
    assert {"trial", "concurrency", "num_steps", "draft_tp"} <= set(frame.columns)
