"""Figures: there where there is something to show, readable anywhere, small enough to commit."""

import xml.etree.ElementTree as ET
from pathlib import Path

from tests.report.make_run import SWEEP, Trial, chain, make_run
from tuner.ledger.run import Run
from tuner.report.figures import draw_figures
from tuner.report.findings import Findings
from tuner.sweep.point import Point


def names(run: Run) -> set[str]:
    return {drawn.name for drawn in draw_figures(Findings(run), run.figures)}


def test_every_figure_of_a_usual_run_is_small_and_has_its_text_as_text(tmp_path: Path) -> None:
    trials = [Trial(None, 90.0)] + [Trial(chain(n), 100.0 - n) for n in range(1, 7)]
    run = make_run(tmp_path, trials)
    assert names(run) == {
        "speedup",
        "tok_s_by_steps",
        "accept_length_by_steps",
        "accept_rate_by_position",
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
    point = chain(2, flags=(("x", "$\\frac<&"),))
    run = make_run(tmp_path, [Trial(None, 90.0), Trial(point, 99.0), Trial(chain(3), 98.0)])
    names(run)
    ET.parse(run.figures / "speedup.svg")


def test_many_levels_are_thinned_to_four_panels(tmp_path: Path) -> None:
    levels = (1, 2, 4, 8, 16, 32)
    sweep = SWEEP.replace("concurrency: [1]", f"concurrency: {list(levels)}")
    run = make_run(tmp_path, [Trial(None, 90.0), Trial(chain(2), 99.0)], sweep=sweep, levels=levels)
    names(run)
    drawn = (run.figures / "speedup.svg").read_text()
    shown = [level for level in levels if f">concurrency {level}<" in drawn]
    assert shown == [1, 4, 8, 32]
