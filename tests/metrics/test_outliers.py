"""What stands out is found, and only that."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.factories import Trial, World, make_point, make_run
from tuner.analysis.summary import summarise_run
from tuner.metrics.outliers import requests_off, robust_spread, standing_out, windows_off
from tuner.metrics.samples import Window
from tuner.metrics.samples_file import write_samples
from tuner.report.report import write_report
from tuner.runs.raw_samples import recorded_samples


def stalled(window: Window, index: int, seconds: float) -> Window:
    """One request of a window took longer, and so did the window."""
    slow = window.samples[index]
    times = (slow.chunk_times[0], *(at + seconds for at in slow.chunk_times[1:]))
    samples = list(window.samples)
    samples[index] = replace(slow, chunk_times=times, ended=slow.ended + seconds)
    return replace(window, samples=tuple(samples), wall_s=window.wall_s + seconds)


def test_a_stall_is_found_and_does_not_widen_the_spread() -> None:
    """Otherwise one hiccup of the machine passes for the configuration's speed."""
    windows = World(0, 16, 0.002, 0.005).windows(3)
    broken = [windows[0], stalled(windows[1], 4, 3.0), windows[2]]
    quiet, loud = (requests_off(each, "output_tok_s") for each in (windows, broken))
    spreads = [robust_spread([one.by for one in each]) for each in (quiet, loud)]
    assert spreads[0] is not None and spreads[1] == pytest.approx(spreads[0], rel=0.2)
    assert standing_out(quiet, spreads[0]) == []
    (found, *_) = standing_out(loud, spreads[1])
    assert (found.window, found.prompt) == (2, "p4")
    assert found.ratio < 0.9
    slow = windows_off(broken, "output_tok_s")
    assert min(slow, key=lambda each: each.by).window == 2


def test_two_windows_do_not_say_which_is_off() -> None:
    """Otherwise the good one is shown as often as the bad one."""
    windows = World(0, 4, 0.0, 0.1).windows(2)
    assert windows_off(windows, "output_tok_s") == requests_off(windows, "output_tok_s") == []
    assert robust_spread([0.1, 0.2]) is None
    assert standing_out([], None) == []


def test_the_report_shows_it_and_drops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a figure hides what was left out of it, or what is in it."""
    monkeypatch.setattr("tuner.report.report.draw_figures", lambda summary, folder: [])
    run = make_run(tmp_path, [Trial(None, 100.0), Trial(make_point(2), 125.0)])
    assert "Nothing stands out." in write_report(summarise_run(run)).read_text()
    before = summarise_run(run).speedup
    windows = dict(recorded_samples(run, run.records()[1]))
    windows[1] = [windows[1][0], stalled(windows[1][1], 3, 2.0), windows[1][2]]
    write_samples(run.samples_file(1), windows)
    report = write_report(summarise_run(run)).read_text()
    assert "## What stands out" in report and "none was dropped" in report
    assert "| `2 steps, 3 tokens` | 1 | 1 | 2 | p3 |" in report
    assert summarise_run(run).speedup == before


def test_a_slow_window_is_one_row_and_not_one_for_each_of_its_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty rows of the same window push everything else out of the table."""
    monkeypatch.setattr("tuner.report.report.draw_figures", lambda summary, folder: [])
    calm = [Trial(make_point(n), 110.0) for n in (1, 3, 4, 5)]
    run = make_run(tmp_path, [Trial(None, 100.0), Trial(make_point(2), 125.0), *calm])
    windows = dict(recorded_samples(run, run.records()[1]))
    slow = windows[1][2]
    for index in range(len(slow.samples)):
        slow = stalled(slow, index, 1.5)
    write_samples(run.samples_file(1), {1: [*windows[1][:2], slow]})
    report = write_report(summarise_run(run)).read_text()
    rows = [x for x in report.splitlines() if " | 1 | 1 | 3 | " in x]
    assert len(rows) == 1
    assert "8 requests by themselves" in rows[0]
    assert "Whole windows of trial 1 ran at another speed than the others of the same" in report


def test_many_single_requests_are_five_rows_and_a_conclusion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """18 rows of single prompts off by 5 to 11 %, and no word of what follows from them."""
    monkeypatch.setattr("tuner.report.report.draw_figures", lambda summary, folder: [])
    trials = [Trial(None, 100.0), *(Trial(make_point(steps), 125.0) for steps in range(1, 8))]
    run = make_run(tmp_path, trials, noise=0.0002)
    for trial in range(1, 8):
        windows = dict(recorded_samples(run, run.records()[trial]))
        windows[1] = [windows[1][0], stalled(windows[1][1], 3, 0.08), windows[1][2]]
        write_samples(run.samples_file(trial), windows)
    told = (
        write_report(summarise_run(run))
        .read_text()
        .split("## What stands out")[1]
        .split("\n## ")[0]
    )
    assert "Single requests alone, 7 slower and 0 faster than the same prompt's others" in told
    assert "The 5 that stand out most; they are in every figure" in told
    assert told.count("| p3 |") == 5 and told.rstrip().endswith("2 more.")


def test_prompts_that_a_window_repeats_are_said_beside_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 streams of the 20 built-in prompts are three times the same texts."""
    monkeypatch.setattr("tuner.report.report.draw_figures", lambda summary, folder: [])
    run = make_run(tmp_path, [Trial(None, 100.0), Trial(make_point(2), 125.0)])
    windows = dict(recorded_samples(run, run.records()[0]))
    windows[1] = [replace(w, samples=(*w.samples, *w.samples[:4])) for w in windows[1]]
    write_samples(run.samples_file(0), windows)
    said = "A window sends at concurrency 1 each of the 8 prompts 1.5 times: a file of your own"
    assert said in write_report(summarise_run(run)).read_text()
