"""Each concurrency has its own answer, and one server can be told all of them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.factories import SWEEP, Trial, make_point, make_run
from tuner.analysis.summary import summarise_run
from tuner.config.point import Point
from tuner.report.report import write_report
from tuner.runs.run import Run

LL = (("NCCL_PROTO", "LL"),)
TWO_LEVELS = SWEEP.replace("concurrency: [1]", "concurrency: [1, 8]")


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take nearly all of a report's time."""
    monkeypatch.setattr("tuner.report.report.draw_figures", lambda summary, folder: [])


def figures(one: float, eight: float, spread: float = 0.01) -> dict[str, dict[str, float]]:
    """Metrics of a candidate with these speed-ups at concurrency 1 and 8."""
    return {
        level: {
            "output_tok_s": 90.0 * ratio,
            "speedup": ratio,
            "speedup_low": ratio - spread,
            "speedup_high": ratio + spread,
        }
        for level, ratio in (("1", one), ("8", eight))
    }


BASELINE = Trial(None, metrics={"1": {"output_tok_s": 90.0}, "8": {"output_tok_s": 400.0}})
MIXED = [
    BASELINE,
    Trial(make_point(1), metrics=figures(1.05, 0.995)),
    Trial(make_point(2), metrics=figures(1.10, 0.90)),
    Trial(make_point(4), metrics=figures(1.30, 0.80)),
]


def run_of(
    folder: Path, trials: list[Trial], release: str = "0.5.17", sweep: str = TWO_LEVELS
) -> Run:
    run = make_run(folder, [replace(each, version=release) for each in trials], sweep=sweep)
    write_report(summarise_run(run))
    return run


def content(run: Run) -> object:
    return json.loads(run.adaptive_json.read_text())


def test_no_speculation_is_the_answer_where_it_wins_and_only_there(tmp_path: Path) -> None:
    """A server's one setting would lose at one end of the load or at the other."""
    run = run_of(tmp_path, MIXED)
    shown = summarise_run(run).to_json()["by_concurrency"]
    assert shown["1"]["best"] == make_point(4).to_json()
    assert shown["1"]["speedup"] == {"value": 1.3, "low": 1.29, "high": 1.31}
    assert shown["1"]["not_told_apart"] == []
    assert shown["8"]["best"] is None
    assert shown["8"]["speedup"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert shown["8"]["not_told_apart"] == [make_point(1).to_json()]
    report = run.report_md.read_text()
    assert "| 1 | `4 steps, 5 tokens` | - | 117.0 | 1.300 (1.290 to 1.310) |" in report
    assert "| 8 | no speculation | `1 step, 2 tokens` | 400.0 | 1 |" in report
    assert report.index("fastest there") < report.index("## Measured")


def test_what_the_samples_do_not_tell_apart_is_named(tmp_path: Path) -> None:
    """Else a reader would take a choice by chance for a finding."""
    trials = [
        Trial(None, 90.0),
        Trial(make_point(2), 99.0),
        Trial(make_point(3), 98.9),
        Trial(make_point(4), 91),
    ]
    run = make_run(tmp_path, trials, noise=0.01, levels=(1, 8), sweep=TWO_LEVELS)
    shown = summarise_run(run).to_json()["by_concurrency"]
    for level in ("1", "8"):
        assert shown[level]["best"] == make_point(2).to_json()
        assert shown[level]["not_told_apart"] == [make_point(3).to_json()]


def test_a_single_concurrency_needs_no_table_of_its_own(tmp_path: Path) -> None:
    run = make_run(tmp_path, [Trial(None, 90.0), Trial(make_point(2), 99.0)])
    write_report(summarise_run(run))
    assert "fastest there" not in run.report_md.read_text()
    assert content(run) == {"1": {"candidate_steps": [2]}}


def test_one_server_is_told_each_batch_sizes_length(tmp_path: Path) -> None:
    run = run_of(tmp_path, MIXED)
    assert content(run) == {"1": {"candidate_steps": [4]}, "8": {"candidate_steps": [0]}}
    report = run.report_md.read_text()
    assert "4 steps at batch size 1 to 7; 0 steps from batch size 8 on. Measured were " in report
    assert "batch sizes 1, 8; what lies between and beyond is assumed." in report


def test_lengths_that_may_be_noise_are_said_to_be(tmp_path: Path) -> None:
    """`5 steps at batch size 1 to 15` was measured at 1 alone, and its interval had 1 in it."""
    trials = [BASELINE, Trial(make_point(4), metrics=figures(1.05, 0.70, spread=0.1))]
    report = run_of(tmp_path, trials).report_md.read_text()
    assert (
        "At concurrency 1 the fastest is not told apart from others (the table above), at "
        "concurrency 1 not from no speculation either." in report
    )
    sure = [BASELINE, Trial(make_point(4), metrics=figures(1.30, 0.70))]
    assert "not told apart from others" not in run_of(tmp_path / "s", sure).report_md.read_text()


def test_a_release_that_takes_no_zero_gets_the_best_chain_instead(tmp_path: Path) -> None:
    """0.5.13 ends at launch over a 0."""
    run = run_of(tmp_path, MIXED, "0.5.13")
    assert content(run) == {"1": {"candidate_steps": [4]}, "8": {"candidate_steps": [1]}}
    told = "At concurrency 8 no speculation is faster, but SGLang 0.5.13 takes no 0."
    assert told in run.report_md.read_text()


def test_the_first_releases_with_adaptive_speculation_have_one_list(tmp_path: Path) -> None:
    run = run_of(tmp_path / "two", MIXED, "0.5.12")
    assert content(run) == {"candidate_steps": [1, 4]}
    run = run_of(
        tmp_path / "one", [BASELINE, Trial(make_point(2), metrics=figures(1.1, 1.1))], "0.5.12"
    )
    assert not run.adaptive_json.exists()
    assert "wants two chain lengths or more" in run.report_md.read_text()


def test_lengths_come_from_one_group_of_settings(tmp_path: Path) -> None:
    """A server has one environment: lengths measured under another do not hold in it."""
    trials = [
        *MIXED,
        Trial(make_point(2, env=LL), metrics=figures(1.28, 1.20)),
        Trial(make_point(3, env=LL), metrics=figures(1.10, 1.25)),
        Trial(make_point(3, draft_tp=1), metrics=figures(1.5, 0.5)),
    ]
    run = run_of(tmp_path, trials)
    assert content(run) == {"1": {"candidate_steps": [2]}, "8": {"candidate_steps": [3]}}


def test_the_launch_is_the_longest_chains_with_the_file(tmp_path: Path) -> None:
    """SGLang refuses --speculative-num-steps that is not in the file."""
    words = ["python", "-m", "sglang.launch_server", "--speculative-num-steps"]
    command = {"argv": [*words, "4"], "env": {"NCCL_ALGO": "Ring"}, "unset": ["NCCL_PROTO"]}
    run = run_of(tmp_path, [*MIXED[:3], replace(MIXED[3], command=command)])
    launch = run.report_md.read_text().split("Such a server is launched by:")[1].split("```")[1]
    assert "--speculative-num-steps 4" in launch
    assert "unset NCCL_PROTO" in launch
    assert launch.rstrip().endswith(f"--speculative-adaptive-config {run.adaptive_json}")


@pytest.mark.parametrize(
    ("change", "release", "why"),
    [
        (("", ""), "0.5.10", "0.5.11 is the first that has"),
        (("EAGLE3", "STANDALONE"), "0.5.17", "works with EAGLE, EAGLE3 and NEXTN only"),
        (
            ("space:", "server: {flags: {enable-two-batch-overlap: true}}\nspace:"),
            "0.5.17",
            "does not work with enable-two-batch-overlap",
        ),
    ],
)
def test_where_no_server_would_take_it_the_report_says_why(
    tmp_path: Path, change: tuple[str, str], release: str, why: str
) -> None:
    """A file that a server ignores or dies of is worse than none."""
    run = run_of(tmp_path, MIXED, release, TWO_LEVELS.replace(*change))
    assert not run.adaptive_json.exists()
    assert why in run.report_md.read_text()


def test_trees_alone_give_no_file(tmp_path: Path) -> None:
    tree = Point(num_steps=3, eagle_topk=4, num_draft_tokens=16, draft_tp="target")
    run = run_of(tmp_path, [BASELINE, Trial(tree, metrics=figures(1.2, 1.1))])
    assert not run.adaptive_json.exists()
    assert "no chain (eagle_topk 1) was measured" in run.report_md.read_text()


def test_a_file_of_earlier_findings_does_not_stay(tmp_path: Path) -> None:
    """After more trials the answer may be another."""
    run = make_run(tmp_path, [BASELINE, Trial(make_point(2), metrics=figures(0.9, 0.8))])
    run.adaptive_json.write_text("{}")
    write_report(summarise_run(run))
    assert not run.adaptive_json.exists()
    assert "no speculation is fastest at each concurrency" in run.report_md.read_text()
