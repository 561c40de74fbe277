"""`tuner.load_run`: what notebooks group and filter by."""

import inspect
import subprocess
import sys
from functools import cached_property
from pathlib import Path

import pandas as pd
import pytest

import tuner
from tests.factories import SWEEP, Trial, make_point, make_run
from tuner.core.errors import UserError
from tuner.report.dataframes import RunFrames, metrics_frame, trials_frame

TRIALS = [
    Trial(None, 90.0),
    Trial(make_point(2, env=(("NCCL_PROTO", "LL"),)), 100.0),
    Trial(make_point(3, draft_tp=1, flags=(("x", True),)), 95.0),
    Trial(make_point(4), failure="OOM", message="no room", outcome="infeasible"),
]
COMMITTED = sorted(path.parent for path in Path("results").glob("*/*/run.json"))
FRAMES = sorted(name for name, kind in vars(RunFrames).items() if isinstance(kind, cached_property))
FRAMES = [name for name in FRAMES if not name.startswith("_")]


def run_of(root: Path) -> RunFrames:
    sweep = SWEEP.replace("concurrency: [1]", "concurrency: [1, 4]")
    return tuner.load_run(make_run(root, TRIALS, sweep=sweep, levels=(1, 4)).path)


def test_one_row_per_trial_and_one_per_concurrency_that_has_numbers(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    assert list(run.trials["trial"]) == [0, 1, 2, 3]
    pairs = list(zip(run.metrics["trial"], run.metrics["concurrency"], strict=True))
    assert pairs == [(0, 1), (0, 4), (1, 1), (1, 4), (2, 1), (2, 4)]


def test_dimensions_are_columns_and_unset_is_a_value(tmp_path: Path) -> None:
    """A missing value would fall out of every groupby."""
    frame = run_of(tmp_path).trials.query("role == 'candidate'")
    assert list(frame["num_steps"]) == [2, 3, 4]
    assert list(frame["draft_tp"]) == ["target", "1", "target"]
    assert list(frame["env.NCCL_PROTO"]) == ["LL", "unset", "unset"]
    assert list(frame["flags.x"]) == ["false", "true", "false"]
    assert frame["label"].iloc[0] == "2 steps, 3 tokens, NCCL_PROTO=LL"


def test_what_was_not_measured_is_missing_and_not_zero(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    assert 3 not in set(run.metrics["trial"])
    assert run.metrics.query("role == 'baseline'")["accept_length"].isna().all()
    assert run.trials.query("role == 'baseline'")["num_steps"].isna().all()
    assert run.requests.query("role == 'baseline'")["verifies"].isna().all()
    assert list(run.trials["failure"])[3] == "OOM"
    assert run.trials["place"].isna().all()
    assert run.trials["alone"].all(), "one place: nothing else of the run was at work"


def test_samples_give_the_metrics_again(tmp_path: Path) -> None:
    """A frame that defines a latency otherwise than the ledger would start a false argument."""
    run = run_of(tmp_path)
    level = ["trial", "concurrency"]
    told = run.metrics.set_index(level)
    windows = run.windows.groupby(level)[["completion_tokens", "wall_s"]].sum()
    requests = run.requests.groupby(level)
    again = {
        "output_tok_s": windows["completion_tokens"] / windows["wall_s"],
        "ttft_ms_p50": requests["ttft_ms"].median(),
        "tpot_ms_p90": requests["tpot_ms"].quantile(0.9),
        "e2e_ms_p99": requests["e2e_ms"].quantile(0.99),
        "accept_length": 1
        + requests["correct_drafts"].sum(min_count=1) / requests["verifies"].sum(min_count=1),
    }
    for name, values in again.items():
        pd.testing.assert_series_equal(
            values.astype("float64"), told[name], check_names=False, obj=name
        )


def test_acceptance_ends_at_the_accept_length(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    last = run.acceptance.groupby(["trial", "concurrency"]).last()
    told = run.metrics.set_index(["trial", "concurrency"])["accept_length"].dropna()
    assert list(last["accept_length_so_far"]) == pytest.approx(list(told))
    assert (run.acceptance["accept_rate"] <= run.acceptance["accept_rate_given_before"]).all()


def test_cycles_are_predicted_from_the_other_configurations() -> None:
    """A prediction that has seen the answer says nothing about the model."""
    run = tuner.load_run("results/h200_llama8b_eagle3/20261129-195508")
    cycles = run.cycles.query("eagle_topk == 1 and num_steps <= 5").sort_values("num_steps")
    off = (cycles["predicted_ms"] / cycles["cycle_ms"] - 1) * 100
    assert [round(each, 1) for each in off][:2] == [-2.5, 4.8]  # as docs/cycle_model.md has them


def test_decisions_stand_beside_what_came_of_them() -> None:
    run = tuner.load_run("results/h200_search/20261130-062711")
    assert set(run.decisions["stage"]) <= {"anchors", "model", "check", "sampler", "confirm"}
    assert run.decisions["objective"].notna().any()
    assert (run.left_out["points"] > 0).all()


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.parent.name)
def test_every_column_of_every_committed_run_is_described(path: Path) -> None:
    """A column without its unit is guessed at. Metrics are in docs/metrics.md."""
    run = tuner.load_run(path)
    metrics = Path("docs/metrics.md").read_text()
    common = {"trial", "role", "label", "concurrency", "request_rate", *run.trials.columns}
    for name in FRAMES:
        told = inspect.getdoc(getattr(RunFrames, name)) or ""
        for column in getattr(run, name).columns:
            if name == "trials" and column.startswith(("env.", "flags.")):
                continue
            if name == "metrics" and column not in common:
                assert f"`{column}`" in metrics, f"docs/metrics.md lacks {column}"
            elif name == "trials" or column not in common:
                assert column in told, f"{name}: {column} is not described"


def test_the_page_shows_the_descriptions_of_the_code() -> None:
    """A page that was copied by hand tells of last month's columns."""
    page = Path("docs/load_run.md").read_text()
    for name in FRAMES:
        described = inspect.getdoc(getattr(RunFrames, name))
        assert described and described in page, f"docs/load_run.md: {name} reads otherwise"


def test_import_tuner_stays_light() -> None:
    """A script that asks for the version should not wait for pandas."""
    code = "import sys, tuner; print([m for m in ('pandas', 'numpy', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_what_is_no_run_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="this is no run folder"):
        tuner.load_run(tmp_path)


def test_an_empty_ledger_gives_empty_frames_with_their_columns() -> None:
    assert {"trial", "num_steps", "draft_tp"} <= set(trials_frame([]).columns)
    assert {"trial", "concurrency"} <= set(metrics_frame([]).columns)
    assert len(trials_frame([])) == len(metrics_frame([])) == 0


def test_a_run_without_samples_has_its_ledger(tmp_path: Path) -> None:
    """Samples are left behind where a run is mailed."""
    run = tuner.load_run(make_run(tmp_path, TRIALS, keep_samples=False).path)
    assert len(run.windows) == len(run.requests) == 0
    assert len(run.metrics) == 3
