"""The first line says no more than the intervals of the levels that decide."""

from pathlib import Path

import pytest

from tests.factories import SWEEP, Trial, make_point, make_run
from tuner.analysis.summary import summarise_run
from tuner.config.load_level import Level
from tuner.metrics.statistics import Interval
from tuner.report.answer import answer
from tuner.report.winner_evidence import describe_confirmation

Ratio = tuple[float, float | None, float | None]
BARE_ABOVE, BARE_BELOW = (1.3, None, None), (0.4, None, None)
FASTER, SLOWER, OPEN_ABOVE, OPEN_BELOW = (
    (1.15, 1.12, 1.18),
    (0.70, 0.65, 0.75),
    (1.05, 0.99, 1.11),
    (0.80, 0.60, 1.10),
)


def figures(ratio: Ratio) -> dict[str, float | None]:
    value, low, high = ratio
    return {"output_tok_s": 90 * value, "speedup": value, "speedup_low": low, "speedup_high": high}


def first_line(folder: Path, over: str, *ratios: Ratio) -> str:
    levels = {1: "1", 8: "8", 64: "64"}
    used = list(levels)[: len(ratios)]
    sweep = SWEEP.replace("concurrency: [1]", f"concurrency: {used}")
    sweep = sweep.replace("trials: 6", f"trials: 6, objective: {{over: {over}}}")
    its = {levels[level]: figures(ratio) for level, ratio in zip(used, ratios, strict=True)}
    base = {levels[level]: {"output_tok_s": 90.0} for level in used}
    trials = [Trial(None, metrics=base), Trial(make_point(2), metrics=its)]
    return answer(summarise_run(make_run(folder, trials, sweep=sweep)))[0]


@pytest.mark.parametrize(
    ("over", "ratios", "words"),
    [
        ("geomean", (BARE_ABOVE,), "**No candidate is shown to be faster yet.**"),
        ("geomean", (BARE_BELOW,), "**No candidate is shown to be faster.**"),
        ("min", (FASTER, OPEN_BELOW), "**No candidate is shown to be faster.**"),
        ("geomean", (FASTER, OPEN_BELOW), "**No candidate is shown to be faster.**"),
        ("geomean", (OPEN_ABOVE, SLOWER), "**No speculation is fastest here.**"),
        ("8", (FASTER, OPEN_ABOVE), "**No candidate is shown to be faster yet.**"),
        ("1", (FASTER, OPEN_BELOW), "**Run "),
        ("8", (SLOWER, OPEN_BELOW), "**No candidate is shown to be faster.**"),
        ("geomean", (FASTER, OPEN_ABOVE), "**Run "),
        ("geomean", ((1.4, 0.9, 1.9), (0.95, 0.93, 0.97)), "**No candidate is shown to be faster"),
    ],
)
def test_a_difference_at_another_level_or_the_other_way_round_shows_nothing(
    tmp_path: Path, over: str, ratios: tuple[Ratio, ...], words: str
) -> None:
    """Read as an order: somebody would deploy noise, or give up a gain that was measured."""
    assert first_line(tmp_path, over, *ratios).startswith(words)


def test_other_prompts_are_told_level_by_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gain that is shown at one level is not taken back for another."""
    sweep = SWEEP.replace("concurrency: [1]", "concurrency: [1, 8]")
    trials = [
        Trial(None, 90.0, unseen_tok_s=90.0),
        Trial(make_point(2), 99.0),
        Trial(make_point(2), 99.0, unseen_tok_s=99.0, role="confirm"),
    ]
    run = make_run(tmp_path, trials, sweep=sweep, levels=(1, 8))
    summary = summarise_run(run)
    told: dict[Level, tuple[float, float, float]] = {1: FASTER, 8: OPEN_ABOVE}
    monkeypatch.setattr(
        "tuner.report.winner_evidence.held_out_speedups",
        lambda record: {level: Interval(*each) for level, each in told.items()},
    )
    assert summary.best_candidate is not None
    words = describe_confirmation(summary, summary.best_candidate) or ""
    assert "at concurrency 8 that includes 1, so none is shown there; elsewhere expect" in words
