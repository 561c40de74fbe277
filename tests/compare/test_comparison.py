"""Comparisons: like with like, plain verdicts, and a reason wherever there is none."""

import json
import re
from pathlib import Path

import pytest

from tests.compare.rows import row
from tests.factories import SIMULATED, SWEEP, Trial, make_compared_run, make_point, make_run
from tuner.compare.comparison import compare
from tuner.compare.render import comparison_markdown, comparison_text
from tuner.core.errors import NotComparable, UserError
from tuner.runs.run import Run

BEST = 100.0


def test_verdicts_faster_slower_and_no_difference_seen(tmp_path: Path) -> None:
    runs = [
        make_compared_run(tmp_path, "a"),
        make_compared_run(tmp_path, "b", best=110.0),
        make_compared_run(tmp_path, "c", best=95.0),
        make_compared_run(tmp_path, "d", best=100.05),
    ]
    comparison = compare(runs)
    found = [row(comparison, letter, "best candidate").verdict for letter in "ABCD"]
    assert found == ["reference", "faster", "slower", "no difference seen"]
    assert {row(comparison, x, "no speculation").verdict for x in "BCD"} == {"no difference seen"}


def test_ratio_is_that_of_the_throughputs_with_an_interval_around_it(tmp_path: Path) -> None:
    comparison = compare(
        [make_compared_run(tmp_path, "a"), make_compared_run(tmp_path, "b", best=110.0)]
    )
    ratio = row(comparison, "B", "best candidate").ratio
    assert ratio is not None and ratio.low is not None and ratio.high is not None
    assert ratio.value == pytest.approx((0.05 + 100 / 100) / (0.05 + 100 / 110))
    assert ratio.low < ratio.value < ratio.high


def test_any_run_can_be_the_reference(tmp_path: Path) -> None:
    runs = [make_compared_run(tmp_path, "a"), make_compared_run(tmp_path, "b", best=110.0)]
    comparison = compare(runs, reference=1)
    assert comparison.reference == "B"
    assert row(comparison, "A", "best candidate").verdict == "slower"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("example/target", "example/other", "model.target is example/target in the first run and"),
        ("tp: 4", "tp: 2", "model.tp is 4 in the first run and 2 here"),
        ("output_tokens: 100", "output_tokens: 200", "output_tokens"),
        ("requests: 8", "requests: 8, temperature: 0.7", "temperature"),
        ("concurrency: [1]", "concurrency: [2]", "no level in common"),
    ],
)
def test_unlike_runs_are_refused_with_the_reason(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    """A ratio between different questions looks like an answer."""
    level = 2 if "concurrency" in old else 1
    other = make_compared_run(tmp_path, "b", sweep=SWEEP.replace(old, new), levels=(level,))
    with pytest.raises(NotComparable, match=re.escape(reason)) as caught:
        compare([make_compared_run(tmp_path, "a"), other])
    assert caught.value.exit_code == 4
    assert str(other.path) in str(caught.value)


def test_simulated_and_real_never_mix(tmp_path: Path) -> None:
    with pytest.raises(NotComparable, match="one is measured on hardware, the other simulated"):
        compare(
            [make_compared_run(tmp_path, "a"), make_compared_run(tmp_path, "b", sweep=SIMULATED)]
        )


def test_other_prompts_are_refused(tmp_path: Path) -> None:
    other = make_compared_run(tmp_path, "b", settings={"prompts": "fedcba9876543210"})
    with pytest.raises(NotComparable, match="prompts' content"):
        compare([make_compared_run(tmp_path, "a"), other])


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("draft: example/draft", "draft: example/b", "EAGLE3 with example/b"),
        ("EAGLE3", "STANDALONE", "STANDALONE with example/draft"),
    ],
)
def test_another_draft_or_algorithm_is_said_and_not_refused(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    """Which of two drafts is faster for a target is what people ask."""
    other = make_compared_run(tmp_path, "b", best=110.0, sweep=SWEEP.replace(old, new))
    comparison = compare([make_compared_run(tmp_path, "a"), other])
    assert row(comparison, "B", "best candidate").verdict == "faster"
    assert f"speculation: A EAGLE3 with example/draft, B {told}" in comparison.differences


def test_other_release_and_machine_are_said_and_not_refused(tmp_path: Path) -> None:
    """That is what people compare."""
    trials = [Trial(None, 90.0, version="0.5.18"), Trial(make_point(2), 100.0, version="0.5.18")]
    other = make_run(tmp_path / "b", trials)
    facts = json.loads(other.machine_file.read_text()) | {"driver": "999.1"}
    other.machine_file.write_text(json.dumps(facts))
    comparison = compare([make_compared_run(tmp_path, "a"), other])
    assert "engine version: A 0.5.17, B 0.5.18" in comparison.differences
    assert any(line.startswith("driver: ") and "B 999.1" in line for line in comparison.differences)
    top = comparison_text(comparison).split("concurrency 1")[0]
    assert "engine version: A 0.5.17, B 0.5.18" in top


ONE, OTHER = "1" * 40, "2" * 40


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([ONE, OTHER], f"target's files: A {ONE}, B {OTHER}"),
        ([ONE, OTHER, None], f"target's files: A {ONE}, B {OTHER}, C not recorded"),
        ([ONE, None], None),
        (["2:26fed1a4d52dea86", "2:79a7a1ae31707ecc"], "target's files: A 2:26fed1a4d52dea86, B"),
        # The older digest covers other files: that of the same folder is another one.
        (["ae41301e571f0afe", "2:26fed1a4d52dea86"], None),
    ],
)
def test_other_files_of_the_same_model_are_said(
    tmp_path: Path, files: list[str | None], said: str | None
) -> None:
    """Two commits of a name on the hub may be two models, and the ratio would be of neither."""
    runs = []
    for name, known in zip("abc", files, strict=False):
        path = make_compared_run(tmp_path, name).path / "run.json"
        told = json.loads(path.read_text())
        if known is not None:
            key, none = ("digest", "revision") if len(known) < 40 else ("revision", "digest")
            target = {"name": "t", "source": "cache", key: known, none: None}
            told["models"] = {"target": target}
        path.write_text(json.dumps(told))
        runs.append(Run.open(path.parent))
    differences = "\n".join(compare(runs).differences)
    assert said in differences if said is not None else "files" not in differences


def test_without_samples_there_is_a_ratio_and_no_verdict(tmp_path: Path) -> None:
    """Samples are not always kept with a published run."""
    comparison = compare(
        [make_compared_run(tmp_path, "a"), make_compared_run(tmp_path, "b", keep_samples=False)]
    )
    found = row(comparison, "B", "best candidate")
    assert found.ratio is not None and found.ratio.low is None
    assert found.verdict == "not comparable: no raw samples, so no interval"


def test_run_without_a_baseline_says_so_in_its_row(tmp_path: Path) -> None:
    broken = make_run(tmp_path / "b", [Trial(None, failure="OOM", outcome="infeasible")])
    comparison = compare(
        [make_compared_run(tmp_path, "a"), broken, make_compared_run(tmp_path, "c")]
    )
    found = row(comparison, "B", "no speculation")
    assert (found.tok_s, found.ratio) == (None, None)
    assert found.verdict == "not comparable: not measured here"
    assert row(comparison, "C", "no speculation").verdict == "no difference seen"
    assert " - " in comparison_text(comparison)


def test_level_that_only_one_run_has_is_left_out(tmp_path: Path) -> None:
    sweep = SWEEP.replace("concurrency: [1]", "concurrency: [1, 4]")
    comparison = compare(
        [
            make_compared_run(tmp_path, "a", sweep=sweep, levels=(1, 4)),
            make_compared_run(tmp_path, "b"),
        ]
    )
    assert {r.concurrency for r in comparison.rows} == {1}


def test_regressions_are_rows_surely_below_the_threshold(tmp_path: Path) -> None:
    """A gate that fires on noise is switched off."""
    comparison = compare(
        [make_compared_run(tmp_path, "a"), make_compared_run(tmp_path, "b", best=95.0)]
    )
    assert [(r.run, r.what) for r in comparison.regressions(0.02)] == [("B", "best candidate")]
    assert comparison.regressions(0.10) == ()


def test_text_and_markdown_show_every_run(tmp_path: Path) -> None:
    comparison = compare(
        [make_compared_run(tmp_path, "a"), make_compared_run(tmp_path, "b", best=110.0)]
    )
    text, markdown = comparison_text(comparison), comparison_markdown(comparison)
    for shown in (text, markdown):
        assert "2 steps, 3 tokens" in shown
        assert "ratio to A" in shown
        assert "faster" in shown
    assert "| B | 105." in markdown
    assert "simulated" not in text


def test_simulated_comparison_says_so(tmp_path: Path) -> None:
    runs = [make_compared_run(tmp_path, name, sweep=SIMULATED) for name in "ab"]
    assert comparison_text(compare(runs)).startswith("simulated runs")
    assert comparison_markdown(compare(runs)).startswith("# Comparison (simulated)")


def test_json_has_the_intervals(tmp_path: Path) -> None:
    comparison = compare(
        [make_compared_run(tmp_path, "a"), make_compared_run(tmp_path, "b", best=110.0)]
    )
    data = json.loads(json.dumps(comparison.to_json()))
    assert data["runs"]["A"]["best"] == "2 steps, 3 tokens"
    last = data["rows"][-1]
    assert (last["run"], last["what"], last["verdict"]) == ("B", "best candidate", "faster")
    assert set(last["ratio"]) == {"value", "low", "high"}
    assert data["rows"][0]["ratio"] is None


def test_runs_with_nothing_in_common_are_not_comparable(tmp_path: Path) -> None:
    """A gate that exits with 0 has said that nothing is slower."""
    broken = make_run(tmp_path / "b", [Trial(None, failure="OOM", outcome="infeasible")])
    for runs in ([make_compared_run(tmp_path, "a"), broken], [broken, broken]):
        with pytest.raises(NotComparable, match="nothing is comparable: no "):
            compare(runs).refuse_incomparable()
    other = make_compared_run(tmp_path, "c", keep_samples=False)
    with pytest.raises(NotComparable, match="no raw samples"):
        compare([make_compared_run(tmp_path, "d"), other]).refuse_incomparable()
    compare(
        [make_compared_run(tmp_path, "e"), make_compared_run(tmp_path, "f"), broken]
    ).refuse_incomparable()


def share(run: Run, *numbers: int) -> Run:
    """The trials as measured on one server that switched chain lengths."""
    lines = [json.loads(line) for line in run.trials_file.read_text().splitlines()]
    for number in numbers:
        lines[number]["warm_steps"] = [1, 2]
    run.trials_file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return Run.open(run.path)


def test_a_shared_launch_is_told_from_one_of_its_own(tmp_path: Path) -> None:
    """A shared server is not what best.sh starts: a ratio to it may be the sharing's."""
    comparison = compare(
        [
            make_compared_run(tmp_path, "a"),
            share(make_compared_run(tmp_path, "b", best=110.0), 1, 2),
        ]
    )
    told = "best candidate's launch: A its own, B shared by several chain lengths"
    assert told in comparison.differences
    (note,) = comparison.notes
    assert (
        note.startswith("B, 2 steps, 3 tokens: ") and "chains of 1, 2 steps, not confirmed" in note
    )
    for text in (comparison_text(comparison), comparison_markdown(comparison)):
        assert note in text
        assert "of one launch each" not in text
    assert compare([make_compared_run(tmp_path, "c"), make_compared_run(tmp_path, "d")]).notes == ()


def test_the_confirming_launch_is_the_figure(tmp_path: Path) -> None:
    """The first figure was picked for being the highest; the second was not."""
    trials = [Trial(None, 90.0), Trial(make_point(1), 91.0), Trial(make_point(2), 110.0)]
    again = Trial(make_point(2), 95.0, role="confirm", launch_s=77.0)
    confirmed = share(make_run(tmp_path / "b", [*trials, again]), 1, 2)
    comparison = compare([make_compared_run(tmp_path, "a"), confirmed])
    found = row(comparison, "B", "best candidate")
    assert (found.verdict, found.figures.launch_s, found.configuration) == (
        "slower", 77.0, "2 steps, 3 tokens",
    )  # fmt: skip
    assert not any(line.startswith("best candidate's launch") for line in comparison.differences)
    assert "those of its second launch (trial 3)" in comparison.notes[0]
    assert json.loads(json.dumps(comparison.to_json()))["notes"] == list(comparison.notes)


def test_a_confirming_launch_that_failed_is_said(tmp_path: Path) -> None:
    """The figure then is of a server that production cannot start."""
    trials = [Trial(None, 90.0), Trial(make_point(2), 110.0)]
    again = Trial(make_point(2), role="confirm", outcome="infeasible", failure="OOM")
    broken = share(make_run(tmp_path / "b", [*trials, again]), 1)
    comparison = compare([make_compared_run(tmp_path, "a"), broken])
    assert row(comparison, "B", "best candidate").verdict.startswith("not comparable: a launch of")
    assert "a launch of its own failed (trial 2: OOM)" in comparison.notes[0]


def test_one_run_is_no_comparison(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="two runs or more"):
        compare([make_compared_run(tmp_path, "a")])
