"""The winner is confirmed on prompts that it was not chosen on."""

from pathlib import Path

import pytest

from tests.factories import Trial, make_point, make_run
from tests.sweeps import Listener, tiny_sweep
from tuner.analysis.summary import summarise_run
from tuner.config.loader import load_sweep
from tuner.config.prompts import Prompt, held_out, pick
from tuner.engines import make_engine
from tuner.report.report import write_report
from tuner.runner.sweep_run import begin_run, reopen_run, run_sweep
from tuner.runs.raw_samples import held_out_samples, recorded_samples
from tuner.runs.run import Run

CONFIRMED = "sampler: grid, stages: [confirm]"


def prompts(count: int) -> tuple[Prompt, ...]:
    return tuple(Prompt(str(n), ("chat", "code")[n % 2], (("user", "x"),)) for n in range(count))


@pytest.mark.parametrize(
    ("there", "count", "left"), [(40, 16, 16), (24, 16, 8), (23, 16, 0), (16, 16, 0), (6, 3, 3)]
)
def test_no_prompt_is_in_both_sets(there: int, count: int, left: int) -> None:
    """Otherwise a winner is confirmed by what it was picked for."""
    found = held_out(prompts(there), count, 7)
    assert not {p.id for p in found} & {p.id for p in pick(prompts(there), count, 7)}
    assert (len({p.id for p in found}), len(found)) == (left, count if left else 0)


@pytest.mark.parametrize("baselines", [1, 2])
def test_the_baseline_and_the_winner_have_windows_of_other_prompts(
    tmp_path: Path, baselines: int
) -> None:
    """Otherwise unlike prompts are compared, or none."""
    loaded = tiny_sweep(tmp_path, search=CONFIRMED, steps="2", baselines=baselines)
    run = begin_run(tmp_path / "runs", loaded, None)
    result = run_sweep(loaded, run, make_engine(loaded.sweep), Listener())
    records = run.records()
    roles = ["baseline", "candidate", "candidate", "baseline", "confirm", "plain"]
    if baselines == 1:
        del roles[3]
    assert [each.role for each in records] == roles
    having = [each for each in records if each.held_out is not None]
    assert [each.role for each in having] == ["baseline", "confirm"]
    assert having[0] is records[0 if baselines == 1 else 3]
    sets = [
        {s.prompt_id for windows in of(run, each).values() for w in windows for s in w.samples}
        for each in having
        for of in (recorded_samples, held_out_samples)
    ]
    assert sets[0] == sets[2] and sets[1] == sets[3] and not sets[0] & sets[1]
    shown = result.to_json()
    assert shown["held_out"]["prompts"] == 3
    assert shown["held_out"]["speedup"]["1"]["value"] > 1
    assert shown["confirmed"]["1"]["value"] != shown["held_out"]["speedup"]["1"]["value"]
    report = write_report(summarise_run(run)).read_text()
    assert "On 3 other prompts, which no candidate was measured on, it is 1." in report
    again = Listener()
    opened = reopen_run(run.path, loaded, None)
    assert run_sweep(loaded, opened, make_engine(loaded.sweep), again) == result
    assert again.records == []
    assert result == summarise_run(Run.open(run.path))


def test_too_few_prompts_are_said(tmp_path: Path) -> None:
    """Otherwise nobody knows that the figure leans high."""
    loaded = tiny_sweep(tmp_path, search=CONFIRMED, steps="2")
    (tmp_path / "mine.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n{"prompt": "c"}\n')
    loaded.path.write_text(loaded.text.replace("requests: 3", "prompts: mine.jsonl, requests: 3"))
    loaded = load_sweep(loaded.path)
    run, listener = begin_run(tmp_path / "runs", loaded, None), Listener()
    result = run_sweep(loaded, run, make_engine(loaded.sweep), listener)
    assert any("hold some out (there are 3, 6 are needed)" in note for note in listener.notes)
    assert result.confirmed is not None and "held_out" not in result.to_json()
    said = (
        "Both on the prompts that it was chosen on: there are 3, and 6 are needed to hold some out."
    )
    assert said in write_report(summarise_run(run)).read_text()
    again = Listener()
    run_sweep(loaded, reopen_run(run.path, loaded, None), make_engine(loaded.sweep), again)
    assert any("hold some out (there are 3, 6 are needed)" in note for note in again.notes)


WINNER = Trial(make_point(3), 128.0, role="confirm")


@pytest.mark.parametrize(
    ("there", "trials", "why"),
    [
        (12, [Trial(None, 98.0), WINNER], "there are 12, and 16 are needed to hold some out"),
        (None, [Trial(None, 98.0), WINNER], "no others were held out, for which 16 are needed"),
        (32, [WINNER], "the baseline, launched once more at the end on others, was not"),
        (
            32,
            [Trial(None, outcome="failed", failure="CRASH"), WINNER],
            "the baseline's last launch, on others, failed (`CRASH`)",
        ),
        (32, [Trial(None, 98.0, unseen_tok_s=97.0), WINNER], "this launch was not sent others"),
        (32, [Trial(None, 98.0), WINNER], "the baseline was not measured on others"),
    ],
)
def test_why_there_is_no_figure_on_other_prompts_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    there: int | None,
    trials: list[Trial],
    why: str,
) -> None:
    """More prompts are no remedy for a launch that failed, and the other way round."""
    monkeypatch.setattr("tuner.report.report.draw_figures", lambda summary, folder: [])
    begun = [Trial(None, 100.0), Trial(make_point(3), 130.0)]
    run = make_run(tmp_path, [*begun, *trials], settings={"prompts_there": there})
    assert f"that it was chosen on: {why}." in write_report(summarise_run(run)).read_text()


def test_a_winner_that_loses_on_other_prompts_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise best.sh slows down every prompt but those that were tried."""
    monkeypatch.setattr("tuner.report.report.draw_figures", lambda summary, folder: [])
    trials = [
        Trial(None, 100.0, unseen_tok_s=100.0),
        Trial(make_point(1), 110.0),
        Trial(make_point(3), 130.0),
        Trial(make_point(3), 128.0, unseen_tok_s=97.0, role="confirm"),
    ]
    run = make_run(tmp_path, trials)
    result = summarise_run(run)
    assert result.best is not None and result.best.at == make_point(1)
    report = write_report(summarise_run(run)).read_text()
    assert "was not faster than no speculation on prompts that it was not chosen on" in report


def test_drift_is_allowed_for_on_other_prompts_too(tmp_path: Path) -> None:
    """Otherwise the two figures of one launch are by two yardsticks."""
    trials = [
        Trial(None, 100.0),
        Trial(make_point(3), 130.0),
        Trial(None, 90.0, unseen_tok_s=80.0),
        Trial(make_point(3), 117.0, unseen_tok_s=104.0, role="confirm"),
    ]
    result = summarise_run(make_run(tmp_path, trials))
    shown = result.to_json()
    assert shown["confirmed"]["1"]["value"] == pytest.approx(1.28, abs=0.02)
    unseen = shown["held_out"]["speedup"]["1"]
    assert unseen["value"] == pytest.approx(1.28, abs=0.02)
    assert unseen["high"] - unseen["low"] > 0.05, "launches that differ widen it too"
