"""Answers that looked right: what speaks against a launch counts wherever it is shown."""

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.factories import SIMULATED, SWEEP, Trial, make_point, make_run
from tuner.analysis.baselines import DriftCorrector
from tuner.analysis.summary import summarise_run
from tuner.analysis.winner import confirmed_choice
from tuner.cli.result import print_summary
from tuner.compare.comparison import compare
from tuner.config.point import Point
from tuner.core.errors import NotComparable
from tuner.dashboard.serve import study_to_view
from tuner.report.answer import answer
from tuner.report.best_per_level import adaptive, levels_table
from tuner.report.report import write_report
from tuner.runner import candidates, closing
from tuner.runs.raw_samples import RawSamples
from tuner.runs.run import Run
from tuner.runs.status import Ended, read_ended

LL = (("NCCL_PROTO", "LL"),)
ALONE = Point(env=LL)
COUNTS = {"prompts": 8, "equal": 0, "early": 8, "looping": 0, "off": 8, "tokens_to_part": 3.0,
          "prefix": {"p10": 2, "p25": 2, "p50": 2, "p75": 2, "p90": 2}}  # fmt: skip
FAR = {"1": {"outcome": "far", "stops": True, "found": COUNTS}}
SCORES = {"marks": "0" * 8, "lost": 8, "won": 0, "p": 0.004, "stops": True, "samples": "x"}


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.report.report.draw_figures", lambda summary, folder: [])


UNHURRIED: dict[str, Any] = {
    "budget": SimpleNamespace(why_not=lambda seconds=0.0: None),
    "pace": SimpleNamespace(
        expected=lambda *points, **how: 0.0, launching=lambda: contextlib.nullcontext([])
    ),
    "blocks": SimpleNamespace(of_sweep=()),
    "shared_points": 1,
    "wanted": 6,
}
"""Of a search whose time never ends."""


def marked(run: Run, changes: dict[int, dict[str, Any]]) -> Run:
    """The run with other fields in some of its lines."""
    path = run.path / "trials.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for trial, fields in changes.items():
        lines[trial].update(fields)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Run.open(run.path)


def told(run: Run) -> str:
    return " ".join(answer(summarise_run(run)))


SETTINGS_WIN = [
    Trial(None, 100.0),
    Trial(make_point(2, env=LL), 145.0),
    Trial(make_point(1), 101.0),
    Trial(ALONE, 150.0, role="plain"),
]


def test_settings_with_other_outputs_are_not_the_answer(tmp_path: Path) -> None:
    """Otherwise best.sh launches a server that says something else, since it is faster."""
    run = marked(make_run(tmp_path, SETTINGS_WIN), {3: {"outputs": FAR}})
    result = summarise_run(run)
    assert result.best is not None and result.best.at == make_point(2, env=LL)
    write_report(summarise_run(run))
    assert "--speculative-num-steps 2" in run.best_sh.read_text()
    assert "What that launch says is not the baseline's." in told(run)
    made = adaptive(summarise_run(run))
    assert not isinstance(made, str) and made.longest.point == make_point(2, env=LL)


def test_the_words_are_of_what_is_to_be_run(tmp_path: Path) -> None:
    """Otherwise `How sure` is of a candidate that is not to be run."""
    trials = [*SETTINGS_WIN[:3], Trial(ALONE, 150.0, role="plain")]
    differ = {"outcome": "differ", "found": {**COUNTS, "equal": 5, "early": 0, "off": 0}}
    run = marked(make_run(tmp_path, trials, noise=0.002), {3: {"outputs": {"1": differ}}})
    figures = {"speedup": 1.5, "speedup_low": 0.9, "speedup_high": 2.5}
    lines = [json.loads(line) for line in (run.path / "trials.jsonl").read_text().splitlines()]
    run = marked(run, {3: {"metrics": {"1": {**lines[3]["metrics"]["1"], **figures}}}})
    words = told(run)
    assert words.startswith("**Run `no speculation, NCCL_PROTO=LL`.**")
    assert "the interval includes 1, so no difference has been shown" in words
    assert "5 of 8 equal the baseline's" in words


@pytest.mark.parametrize("why", ["far", "failed", "unseen"])
def test_nothing_is_sure_of_a_candidate_that_does_not_stand(tmp_path: Path, why: str) -> None:
    """Otherwise one paragraph says that it does not stand and the next that it surely does."""
    baseline = Trial(None, 100.0, unseen_tok_s=100.0)
    again = Trial(make_point(3), 129.0, unseen_tok_s=98.0, role="confirm")
    if why == "failed":
        again = Trial(make_point(3), failure="CRASH", message="x", outcome="failed", role="confirm")
    run = make_run(tmp_path, [baseline, Trial(make_point(3), 130.0), again])
    if why == "far":
        run = marked(run, {1: {"outputs": FAR}})
    words = told(run)
    assert "**No candidate stands.**" in words
    assert "so it is faster by more than noise" not in words
    assert "Measured: 1 of" in words
    report = write_report(summarise_run(run)).read_text()
    assert "no chain (eagle_topk 1) stands" in report
    assert "faster than every candidate" not in run.best_yaml.read_text()


def test_a_refuted_candidate_is_no_equal_of_the_winner(tmp_path: Path) -> None:
    """Otherwise a user takes it as an equal that the report itself refuses."""
    trials = [
        Trial(None, 100.0),
        Trial(make_point(3), 130.0),
        Trial(make_point(2), 130.0),
        Trial(make_point(3), failure="CRASH", message="x", outcome="failed", role="confirm"),
    ]
    words = told(make_run(tmp_path, trials))
    assert words.startswith("**Run `2 steps, 3 tokens`.**")
    assert "Not told apart" not in words


def test_the_front_has_no_candidate_that_does_not_stand(tmp_path: Path) -> None:
    """Otherwise nsga2's table offers a configuration with wrong outputs as not beaten."""
    sweep = SWEEP.replace("concurrency: [1]", "concurrency: [1, 8]")
    sweep = sweep.replace("{trials: 6}", "{trials: 6, sampler: nsga2}")
    trials = [Trial(None, 100.0), Trial(make_point(3), 130.0), Trial(make_point(2), 120.0)]
    run = marked(make_run(tmp_path, trials, sweep=sweep, levels=(1, 8)), {1: {"outputs": FAR}})
    table = levels_table(summarise_run(run))
    assert table is not None
    assert "Not beaten at every concurrency by another one: `2 steps, 3 tokens`" in table


def test_a_task_is_not_said_to_be_far_outputs(tmp_path: Path) -> None:
    """Otherwise a user looks for a broken verification where answers only got worse."""
    trials = [
        Trial(None, 100.0),
        Trial(make_point(3), 130.0),
        Trial(make_point(2), 120.0),
        Trial(make_point(3), 129.0, role="confirm"),
    ]
    run = make_run(tmp_path, trials)
    verdict = summarise_run(marked(run, {3: {"task": SCORES}})).verdict
    assert "since the task's score is clearly lower: 3 steps" in verdict
    assert "outputs are far" not in verdict
    both = summarise_run(marked(run, {2: {"outputs": FAR}})).verdict
    assert "since outputs are far from the baseline's: 2 steps" in both
    assert "since the task's score is clearly lower: 3 steps" in both


def test_wrong_tokens_are_not_faster_in_a_comparison(tmp_path: Path) -> None:
    """Otherwise an upgrade that breaks verification passes the gate as a speed-up."""
    fine = make_run(tmp_path, [Trial(None, 100.0), Trial(make_point(3), 120.0)])
    wrong = make_run(tmp_path, [Trial(None, 100.0), Trial(make_point(3), 140.0)])
    marked(wrong, {1: {"outputs": FAR}})
    found = compare([fine, wrong])
    [row] = [r for r in found.rows if r.what == "best candidate" and r.run == "B"]
    assert row.verdict.startswith("not comparable: its outputs are far from the baseline's")
    assert any(note.startswith("B: the run's answer is no speculation") for note in found.notes)
    with pytest.raises(NotComparable):
        found.refuse_unjudged()


def test_a_comparison_says_where_the_settings_alone_are_the_answer(tmp_path: Path) -> None:
    """Otherwise it shows as a run's best what that run advises against."""
    runs = [make_run(tmp_path, SETTINGS_WIN) for _ in range(2)]
    notes = compare(runs).notes
    assert any("A: the run's answer is no speculation, NCCL_PROTO=LL" in each for each in notes)


def confirmed_again(run: Run, study: Any) -> list[Point | None]:
    """What a resumed run would launch once more."""
    launched: list[Point | None] = []

    def measure(asked: Any, baseline: Any) -> Any:
        launched.append(asked.point)
        raise KeyboardInterrupt

    search = SimpleNamespace(
        bench=SimpleNamespace(run=run, sweep=run.sweep(), task=(), measure=measure),
        settling=DriftCorrector(run, "output_tok_s", RawSamples(run)),
        study=study,
        **UNHURRIED,
        baseline={},
    )
    with contextlib.suppress(KeyboardInterrupt):
        closing._confirm(search)  # type: ignore[arg-type]
    return launched


def test_a_resume_confirms_no_more_winners_than_an_undisturbed_run(tmp_path: Path) -> None:
    """Otherwise each resume of a finished run launches three more servers and may turn its answer
    over."""
    lost = [
        Trial(make_point(n), failure="CRASH", message="x", outcome="failed", role="confirm")
        for n in (4, 3, 2)
    ]
    tried = [Trial(make_point(n), 110.0 + 10 * n) for n in (1, 2, 3, 4)]
    run = make_run(tmp_path, [Trial(None, 100.0), *tried, *lost])
    result = summarise_run(run)
    assert result.best is not None and result.best.at == make_point(1)
    nothing = SimpleNamespace(recommended=lambda: None)
    assert confirmed_again(run, nothing) == []
    fewer = make_run(tmp_path, [Trial(None, 100.0), *tried, *lost[:2]])
    assert confirmed_again(fewer, nothing) == [make_point(2)]


def test_the_searchs_choice_stays_where_a_simpler_equal_of_it_was_confirmed(tmp_path: Path) -> None:
    """Otherwise the confirming launches are of two candidates and the answer is a third one."""
    trials = [
        Trial(None, 100.0),
        Trial(make_point(6), 150.0),
        Trial(make_point(3), 140.0),
        Trial(make_point(2), 139.0),
        Trial(make_point(3), 140.0, role="confirm"),
        Trial(make_point(2), 139.0, role="confirm"),
    ]
    run = make_run(tmp_path, trials, noise=0.01)
    decision = {"stage": "confirm", "why": "by all measurements together"}
    run = marked(run, {4: {"decision": decision}})
    ledger = run.ledger()
    chosen = confirmed_choice(ledger)
    assert chosen is not None and chosen.at == make_point(3)
    result = summarise_run(run)
    assert result.best is not None and result.best.at == make_point(2)
    assert result.confirmed is not None and result.confirmed.trial == 5


def test_a_search_that_ends_has_its_baseline_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its last baseline is one of the middle, without the prompts that are held out, and
    the winner cannot be confirmed on them."""
    done: list[str] = []
    monkeypatch.setattr(candidates, "_finish_cut_off", lambda search: None)
    flight = SimpleNamespace(tags=[], has_room=True)
    monkeypatch.setattr(candidates, "TrialPool", lambda bench: flight)
    monkeypatch.setattr(candidates, "is_baseline_due", lambda search: False)
    monkeypatch.setattr(candidates, "measure_concurrent_baselines", lambda search, ahead: None)
    monkeypatch.setattr(candidates, "closing_s", lambda search: 0.0)
    monkeypatch.setattr(candidates, "baseline_in_the_middle", lambda search: done.append("middle"))
    monkeypatch.setattr(candidates, "close", lambda search: done.append("end"))
    run = make_run(tmp_path, [])
    monkeypatch.setattr(candidates, "has_closing", lambda search: True)
    search = SimpleNamespace(
        study=SimpleNamespace(
            handed_over=None, stopped=None, propose=lambda along: None, pending=()
        ),
        bench=SimpleNamespace(sweep=run.sweep(), run=run, alone=None),
        undone=[],
        unclosed=[],
        **UNHURRIED,
        progress=None,
        room=1,
        together=None,
    )
    candidates.search_candidates(search)  # type: ignore[arg-type]
    assert done == ["end"]
    assert read_ended(run) == Ended(True)


@pytest.mark.parametrize("drift", [False, True])
def test_the_dashboard_has_the_reports_answer(tmp_path: Path, drift: bool) -> None:
    """Otherwise two pages of one run recommend two servers, or the same with two figures."""
    trials = [*SETTINGS_WIN, *([Trial(None, 90.0)] if drift else [])]
    run = make_run(tmp_path, trials)
    result = summarise_run(run)
    assert result.best is not None and result.best.role == "plain"
    storage, _ = study_to_view(run)
    [study] = storage.get_all_studies()
    shown = f"trial 3: no speculation, NCCL_PROTO=LL, {result.fastest_value:.3f} times the baseline"
    assert study.user_attrs["answer"] == shown


def test_the_answer_is_what_is_said_to_be_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the mark stands behind whichever line is the last, as if that alone were so."""
    run = make_run(tmp_path, SETTINGS_WIN[:3], sweep=SIMULATED)
    print_summary(summarise_run(run), run.report_md)
    shown = capsys.readouterr().out.splitlines()
    assert "best: 2 steps, 3 tokens, NCCL_PROTO=LL (simulated)" in shown


def test_a_clock_that_was_set_back_turns_no_candidate_over(tmp_path: Path) -> None:
    """Otherwise a machine that slows down, and whose clock is set meanwhile, recommends what ran
    first or last. The machine loses 20 %; the second chain ran late, and is the faster one."""
    trials = [
        Trial(None, 100.0),
        Trial(make_point(3), 130.0),
        Trial(make_point(2), 90.0 * 1.25),
        Trial(make_point(1), 85.0 * 1.5),
        Trial(None, 80.0),
    ]
    ahead = make_run(tmp_path / "ahead", trials)
    back = make_run(tmp_path / "back", trials)
    begun = {0: "18:00", 1: "18:01", 2: "17:02", 3: "17:03", 4: "17:04"}
    marked(back, {n: {"started": f"2026-11-29T{at}:00Z"} for n, at in begun.items()})
    found = [summarise_run(run) for run in (ahead, back)]
    assert all(each.best is not None and each.best.at == make_point(1) for each in found)
    values = [each.fastest_value for each in found]
    assert values[0] == pytest.approx(values[1])
