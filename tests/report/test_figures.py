"""Figures: there where there is something to show, readable anywhere, small enough to commit."""

import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.factories import SWEEP, Trial, make_point, make_run
from tuner.analysis.summary import summarise_run
from tuner.config.point import Point
from tuner.report.figures import figures, style
from tuner.report.figures.figures import acceptance_by_position, draw_figures
from tuner.report.figures.load import chosen, speedup_by_load
from tuner.report.figures.steps import series, with_gaps
from tuner.runs.run import Run


def names(run: Run) -> set[str]:
    return {drawn.name for drawn in draw_figures(summarise_run(run), run.figures)}


def test_every_figure_of_a_usual_run_is_small_and_has_its_text_as_text(tmp_path: Path) -> None:
    trials = [Trial(None, 90.0)] + [Trial(make_point(n), 100.0 - n) for n in range(1, 7)]
    run = make_run(tmp_path, trials)
    assert names(run) == {
        "speedup",
        "tok_s_by_steps",
        "accept_length_by_steps",
        "accept_rate_by_position",
        "cycle",
        "history",
    }
    assert all(file.stat().st_size <= 150_000 for file in run.figures.glob("*.png"))
    drawn = (run.figures / "tok_s_by_steps.svg").read_text()
    assert "num_steps" in drawn
    assert "speculation" in drawn
    assert "<dc:date>" not in drawn
    for file in run.figures.glob("*.svg"):
        ET.parse(file)


def test_figures_of_what_was_not_measured_are_left_out(tmp_path: Path) -> None:
    """NGRAM has no steps, and this engine told no acceptance."""
    figures = {
        "1": {"output_tok_s": 95.0, "speedup": 1.05, "speedup_low": None, "speedup_high": None}
    }
    sweep = SWEEP.replace("draft: example/draft, algorithm: EAGLE3", "algorithm: NGRAM")
    sweep = sweep.replace("  num_steps: {low: 1, high: 6}\n  draft_tp: [target, 1]\n", "")
    trial = Trial(Point(num_draft_tokens=8), metrics=figures)
    assert names(make_run(tmp_path, [Trial(None, 90.0), trial], sweep=sweep)) == {
        "speedup",
        "history",
    }


def test_no_candidate_no_figure(tmp_path: Path) -> None:
    run = make_run(tmp_path, [Trial(None, 90.0)])
    assert names(run) == set()
    assert not run.figures.exists()


def test_dollar_signs_and_brackets_in_values_are_drawn_as_they_are(tmp_path: Path) -> None:
    """matplotlib reads $...$ as a formula and fails on most of them."""
    point = make_point(2, flags=(("x", "$\\frac<&"),))
    run = make_run(tmp_path, [Trial(None, 90.0), Trial(point, 99.0), Trial(make_point(3), 98.0)])
    names(run)
    ET.parse(run.figures / "speedup.svg")


def test_only_what_differs_from_the_best_in_num_steps_alone_is_joined(tmp_path: Path) -> None:
    """A line through other settings, or over counts that nobody measured, shows a made-up trend."""
    env = (("NCCL_PROTO", "LL"),)
    trials = [Trial(None, 90.0), *(Trial(make_point(n, env=env), 99.0 - n) for n in (1, 2, 5))]
    summary = summarise_run(
        make_run(tmp_path, [*trials, Trial(make_point(3), 95.0), Trial(make_point(2), 80.0)])
    )
    joined, others = series(summary.ranked, 1, "output_tok_s")
    assert [dot[0] for dot in joined] == [1, 2, 5]
    assert [dot[0] for dot in others] == [3, 2]
    best = summary.ranked[0].metrics(1)
    assert joined[0][1:] == (
        best["output_tok_s"],
        best["output_tok_s"] - best["output_tok_s_low"],
        best["output_tok_s_high"] - best["output_tok_s"],
    )
    assert [dot[0] for dot in with_gaps(joined)] == [1, 2, 4, 5]
    assert math.isnan(with_gaps(joined)[2][1])


def test_a_marker_at_one_hundred_percent_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = []
    monkeypatch.setattr(style, "save", lambda figure, *rest: figures.append(figure))
    run = make_run(tmp_path, [Trial(None, 90.0), Trial(make_point(2), 99.0, accepted=1.0)])
    acceptance_by_position(summarise_run(run), run.figures)
    (line,) = figures[0].axes[0].lines
    assert list(line.get_ydata()) == [1.0, 1.0]
    assert not line.get_clip_on()


def test_where_speculation_stops_paying_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best over all levels first, then each level's own fastest, each once."""
    trials = [Trial(None, 90.0), *(Trial(make_point(n), 130.0 - n) for n in (2, 3, 4))]
    sweep = SWEEP.replace("concurrency: [1]", "concurrency: [1, 8, 64]")
    run = make_run(tmp_path, trials, sweep=sweep, levels=(1, 8, 64))
    assert "speedup_by_load" in names(run)
    drawn = (run.figures / "speedup_by_load.svg").read_text()
    assert ">concurrency<" in drawn and ">64<" in drawn
    figures = []
    monkeypatch.setattr(style, "save", lambda figure, *rest: figures.append(figure))
    summary = summarise_run(run)
    speedup_by_load(summary, run.figures)
    lines = list(figures[0].axes[0].containers)
    assert [each.get_label() for each in lines] == [each.label for each in chosen(summary)]
    assert lines[0].get_label() == summary.best_candidate.label
    ratios = [summary.best_candidate.speedups[level].value for level in (1, 8, 64)]
    assert list(lines[0].lines[0].get_ydata()) == ratios


def test_many_levels_are_thinned_to_four_panels(tmp_path: Path) -> None:
    levels = (1, 2, 4, 8, 16, 32)
    sweep = SWEEP.replace("concurrency: [1]", f"concurrency: {list(levels)}")
    run = make_run(
        tmp_path, [Trial(None, 90.0), Trial(make_point(2), 99.0)], sweep=sweep, levels=levels
    )
    names(run)
    drawn = (run.figures / "speedup.svg").read_text()
    shown = [level for level in levels if f">concurrency {level}<" in drawn]
    assert shown == [1, 4, 8, 32]


def test_trials_of_a_long_run_are_thinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "MOST_TRIALS", 3)
    run = make_run(
        tmp_path, [Trial(None, 100.0), *(Trial(make_point(n), 100.0 + n) for n in range(1, 7))]
    )
    draw_figures(summarise_run(run), tmp_path)
    figure = ET.parse(tmp_path / "history.svg")
    assert "trial, one of 2" in "".join(figure.getroot().itertext())
