"""Latency limits: the fastest configuration is no answer where users wait too long for it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.config.conftest import BASE
from tests.factories import SWEEP, TTFT, Trial, make_point, make_queue_window, make_run
from tests.sweeps import Listener, tiny_sweep
from tuner.analysis.summary import summarise_run
from tuner.analysis.winner import fastest_candidate
from tuner.config.load_level import Rate
from tuner.config.loader import load_sweep
from tuner.config.point import Point
from tuner.config.schema import ObjectiveSpec, SearchSpec
from tuner.core.errors import UserError
from tuner.engines import make_engine
from tuner.report.best_per_level import levels_table
from tuner.report.report import write_report
from tuner.report.results_table import top_tables
from tuner.report.winner_files import one_point_sweep
from tuner.runner.observations import to_observation
from tuner.runner.sweep_run import begin_run, run_sweep
from tuner.runs.latency_limits import broken_limits, describe_broken_limits, excess, format_limits
from tuner.runs.records import BrokenLimit
from tuner.runs.run import Run
from tuner.search.forecast import Observations
from tuner.search.observation import LevelFigures, Observation
from tuner.search.optuna_study import FEASIBLE, Study
from tuner.search.staged import StagedPlanner

LIMITS = SearchSpec(limits={"tpot_ms_p50": 9.0, "ttft_ms_p99": 1000 * TTFT + 1})


def limited(root: Path, *speeds: float, limit: float = 9.0) -> Run:
    """A run whose baseline has the first speed, chains of 1, 2, ... steps the others; TPOT is
    1000 / speed."""
    trials = [Trial(None, speeds[0])]
    trials += [Trial(make_point(steps), speed) for steps, speed in enumerate(speeds[1:], 1)]
    spec = f"search: {{limits: {{tpot_ms_p50: {limit}}}, trials: 6}}"
    made = make_run(root, trials, sweep=SWEEP.replace("search: {trials: 6}", spec))
    search, lines = made.sweep().search, []
    for record in made.ledger().records:
        broken = broken_limits(record.metrics, search)
        lines.append(record.model_copy(update={"broken": broken}).model_dump_json())
    made.trials_file.write_text("\n".join(lines) + "\n")
    return Run.open(made.path)


def test_what_is_over_a_limit_is_broken_by_how_much() -> None:
    metrics = {
        "1": {"tpot_ms_p50": 8.0, "ttft_ms_p99": None},
        "8": {"tpot_ms_p50": 13.5, "ttft_ms_p99": 1.0},
    }
    (broken,) = broken_limits(metrics, LIMITS)
    assert (broken.concurrency, broken.metric, broken.value) == (8, "tpot_ms_p50", 13.5)
    assert broken.excess == pytest.approx(0.5)
    assert excess([broken]) == broken.excess
    assert excess([]) == 0
    assert broken_limits({"1": {"tpot_ms_p50": 9.0}}, LIMITS) == []


def test_limits_hold_where_the_objective_looks() -> None:
    """A limit for 8 users would be broken by a level of 256 that is measured for curiosity."""
    only = LIMITS.model_copy(update={"objective": LIMITS.objective.model_copy(update={"over": 1})})
    metrics = {"1": {"tpot_ms_p50": 8.0}, "8": {"tpot_ms_p50": 13.5}}
    assert broken_limits(metrics, only) == []


def test_a_faster_candidate_that_breaks_a_limit_is_no_answer(tmp_path: Path) -> None:
    """Its figures: the second is slower than the first, and keeps what the first breaks."""
    run = limited(tmp_path, 105.0, 118.0, 112.0)
    lines = [json.loads(line) for line in run.trials_file.read_text().splitlines()]
    lines[1]["broken"] = [
        {"concurrency": 1, "metric": "ttft_ms_p99", "value": 600.0, "limit": 500.0}
    ]
    run.trials_file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    run = Run.open(run.path)
    spec, ledger = run.sweep().search.objective, run.ledger()
    assert fastest_candidate(ledger, spec)[0] is ledger.candidates[1]
    result = summarise_run(run)
    assert result.best is not None
    assert result.best.at == make_point(2)
    told = result.to_json()["limits"]
    assert told["asked"] == {"tpot_ms_p50": 9.0}
    assert told["baseline"][0]["value"] == pytest.approx(1000 / 105, rel=0.01)
    assert told["not_recommended"][0]["point"] == make_point(1).to_json()
    assert told["not_recommended"][0]["broken"][0]["excess"] == pytest.approx(0.2)
    text = write_report(summarise_run(run)).read_text()
    assert "9. `2 steps, 3 tokens` keeps them. The server without speculation breaks them" in text
    assert "`2 steps, 3 tokens` keeps them" in text
    assert "Not taken for breaking them: `1 step, 2 tokens` (ttft_ms_p99 is 600" in text
    assert "tpot_ms_p50: 9" in run.best_yaml.read_text()


def test_where_all_break_them_the_answer_says_so(tmp_path: Path) -> None:
    """`no candidate beats the baseline` alone would be untrue: they do, and keep users waiting."""
    run = limited(tmp_path, 90.0, 100.0, 105.0)
    result = summarise_run(run)
    assert result.best is None
    assert result.exit_code == 0
    for words in ("it breaks the limits itself: tpot_ms_p50", "no faster one keeps"):
        assert words in result.verdict
    assert "**No candidate stands.**" in write_report(summarise_run(run)).read_text()


def test_a_slower_candidate_may_be_the_only_one_to_keep_them(tmp_path: Path) -> None:
    run = limited(tmp_path, 105.0, 104.0)
    lines = [json.loads(line) for line in run.trials_file.read_text().splitlines()]
    lines[1]["broken"] = []
    run.trials_file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    assert summarise_run(Run.open(run.path)).verdict.endswith("1 step, 2 tokens keeps them")


def test_a_launch_of_its_own_that_breaks_them_refutes_a_candidate(tmp_path: Path) -> None:
    run = limited(tmp_path, 105.0, 118.0)
    with run.locked():
        first = run.ledger().candidates[0]
        broken = [{"concurrency": 1, "metric": "tpot_ms_p50", "value": 10.0, "limit": 9.0}]
        data = first.model_dump() | {"trial": 2, "role": "confirm", "broken": broken}
        run.append(type(first).model_validate(data))
    result = summarise_run(Run.open(run.path))
    assert result.best is None
    assert result.limits.broken[0][1][0].value == 10.0


def test_the_search_is_told_how_far_over_a_point_is(tmp_path: Path) -> None:
    """A sampler that only knows `infeasible` cannot tell which way leads back under the limit."""
    run = limited(tmp_path, 90.0, 100.0, 118.0)
    spec = run.sweep().search.objective
    over, kept = (to_observation(each, spec) for each in run.ledger().candidates)
    assert over.outcome == "ok"
    assert over.levels
    assert over.excess == pytest.approx(1000 / 100 / 9 - 1, rel=0.02)
    assert kept.excess == 0
    study = Study(tiny_sweep(tmp_path).space, SearchSpec(stages=[]), 2)
    for verdict in (over, kept):
        proposal = study.propose()
        assert proposal is not None
        study.tell(proposal, verdict)
    told = [each.constraints[FEASIBLE] for each in study.optuna_trials]
    assert (told[0], told[-1]) == (over.excess, 0.0)
    assert set(told) == {over.excess, 0.0}  # also where a point is asked for again


def test_the_forecast_learns_from_a_point_that_is_no_answer(tmp_path: Path) -> None:
    """It ran and its cycle is true; but what others have to beat is what keeps the limits."""
    figures = {1: LevelFigures(12.0, 1.8, (0.5, 0.3), 1.5)}
    plain, points = {1: LevelFigures(10.0)}, tiny_sweep(tmp_path).space.points
    told = {
        points[0]: Observation("ok", 1.5, None, figures, excess=0.2),
        points[1]: Observation("ok", 1.2, None, {1: LevelFigures(15.0, 1.8, (0.5, 0.3), 1.2)}),
    }
    known = Observations(plain, told)
    assert set(known.usable) == set(told)
    stages = StagedPlanner(points, ObjectiveSpec(), 0)
    found = next(iter(stages.smoothed(known).items()))
    assert found is not None
    assert found[0] == points[1]
    only = Observations(plain, {points[0]: told[points[0]]})
    assert stages.smoothed(only) == {}
    assert "is still the best" in stages.decide(only).why  # the baseline is


def test_the_best_so_far_is_one_that_keeps_them(tmp_path: Path) -> None:
    """Else a point that is no answer ends the search for one."""
    limits = "limits: {ttft_ms_p50: 0.001}"
    loaded = tiny_sweep(tmp_path, search=f"trials: 3, {limits}", steps="1, 2")
    run = begin_run(tmp_path / "out", loaded, None)
    run_sweep(loaded, run, make_engine(loaded.sweep), Listener())
    ledger = run.ledger()
    assert all(record.broken for record in ledger.records)
    assert not any(record.role == "confirm" for record in ledger.records)
    assert summarise_run(run).best is None


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ("{ttft_ms_p95: 3}", "search.limits.ttft_ms_p95: 'ttft_ms_p95' is no latency"),
        ("{ttft_ms_p99: 0}", "search.limits.ttft_ms_p99"),
        ("{ttft_ms_p99: fast}", "search.limits.ttft_ms_p99"),
        ("[3]", "search.limits"),
    ],
)
def test_a_wrong_limit_is_refused_at_its_line(tmp_path: Path, limits: str, words: str) -> None:
    (tmp_path / "s.yaml").write_text(BASE + f"search: {{limits: {limits}}}\n")
    with pytest.raises(UserError) as caught:
        load_sweep(tmp_path / "s.yaml")
    assert f"s.yaml:6: {words}" in str(caught.value)


def test_best_yaml_keeps_the_limits(tmp_path: Path) -> None:
    run = limited(tmp_path, 105.0, 118.0)
    assert one_point_sweep(run.sweep(), make_point(1)).search.limits == {"tpot_ms_p50": 9.0}


def broken_at(run: Run, *trials: int) -> Run:
    """The run with a limit broken in these lines alone."""
    lines = [json.loads(line) for line in run.trials_file.read_text().splitlines()]
    for number, line in enumerate(lines):
        found = {"concurrency": 1, "metric": "ttft_ms_p99", "value": 124.3, "limit": 100.0}
        line["broken"] = [found] if number in trials else []
    run.trials_file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return Run.open(run.path)


def test_limits_are_not_blamed_where_nothing_is_faster_without_them(tmp_path: Path) -> None:
    """`No candidate that keeps the limits beats it` sent its reader to relax a limit."""
    run = broken_at(limited(tmp_path, 105.0, 92.0, 80.0), 1, 2)
    result = summarise_run(run)
    assert result.verdict == "no candidate beats the baseline: serve without speculation"
    assert "the baseline keeps them" in result.limits.words()
    text = write_report(summarise_run(run)).read_text()
    assert "**No speculation is fastest here.** Launch the server without speculation." in text
    assert re.search(r"candidate, `1 step, 2 tokens`, is 1\d\.\d % slower", text)
    assert "How sure: the interval lies below 1" in text
    assert "No candidate that keeps" not in text
    limits = text[text.index("Limits: ") :].partition("\n")[0]
    assert limits.startswith(
        "Limits: tpot_ms_p50 at most 9. The server without speculation, which is to be launched, "
        "keeps them. They decide nothing: no candidate is faster than no speculation. Broken by: "
        "`1 step, 2 tokens` (ttft_ms_p99 is 124.3 at concurrency 1, 24 % over 100)"
    )


def test_where_they_decide_the_candidate_is_named(tmp_path: Path) -> None:
    result = summarise_run(broken_at(limited(tmp_path, 105.0, 118.0), 1))
    assert result.verdict.endswith(
        "; no faster one keeps tpot_ms_p50 at most 9: of 1 step, 2 tokens ttft_ms_p99 is 124.3 at "
        "concurrency 1, 24 % over 100"
    )


def test_what_is_as_fast_is_told_at_each_level_though_it_breaks_a_limit(tmp_path: Path) -> None:
    """One report said `unclear` of a level and, below, that no speculation is fastest there, not
    told apart from nothing."""
    run = broken_at(limited(tmp_path, 105.0, 104.9, 80.0), 1, 2)
    lines = [json.loads(line) for line in run.trials_file.read_text().splitlines()]
    for line in lines[1:]:
        value = line["metrics"]["1"]["speedup"]
        line["metrics"]["1"] |= {"speedup_low": value - 0.05, "speedup_high": value + 0.05}
    for line in lines:
        line["metrics"]["8"] = line["metrics"]["1"]
    run.trials_file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    run = Run.open(run.path)
    best = summarise_run(run).by_level[1]
    assert best.record.role == "baseline"
    assert [each.at for each in best.alike] == [make_point(1)]
    table = levels_table(summarise_run(run))
    assert table is not None
    assert "`1 step, 2 tokens` (breaks a limit)" in table
    assert "2 steps" not in table


def test_a_limit_that_is_broken_at_one_level_says_nothing_of_another(tmp_path: Path) -> None:
    """`fastest at 5/s: no speculation, not told apart from nothing` stood below a candidate that is
    11 % faster there and keeps the limits there."""
    run = broken_at(limited(tmp_path, 105.0, 118.0), 1)
    lines = [json.loads(line) for line in run.trials_file.read_text().splitlines()]
    for line in lines:
        line["metrics"]["8"] = line["metrics"]["1"]
    run.trials_file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    found = summarise_run(Run.open(run.path)).by_level
    assert found[1].record.role == "baseline"
    assert found[8].record.at == make_point(1)
    table = levels_table(summarise_run(Run.open(run.path))) or ""
    assert "| 8 | `1 step, 2 tokens` | - |" in table


@pytest.mark.parametrize(("also_plain", "says"), [(False, "loses"), (True, "pays")])
def test_speculation_does_not_pay_where_it_breaks_a_limit_that_is_kept_without(
    tmp_path: Path, also_plain: bool, says: str
) -> None:
    """`Speculation pays at every rate` stood beside `no candidate keeps the limits`."""
    trials = (0, 1) if also_plain else (1,)
    run = broken_at(limited(tmp_path, 105.0, 118.0), *trials)
    lines = [json.loads(line) for line in run.trials_file.read_text().splitlines()]
    for line in lines:
        figures = line["metrics"].pop("1")
        line["metrics"] = {"4/s": figures, "8/s": figures}
        for each in line["broken"]:
            each["concurrency"] = "8/s"
    run.trials_file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    found = summarise_run(Run.open(run.path)).by_rate
    assert [each.says for each in found.values()] == ["pays", says]
    assert [each.to_json()["breaks_limits"] for each in found.values()] == [False, not also_plain]


def test_large_figures_are_written_out() -> None:
    """`ttft_ms_p99 is 1.235e+04, 5.7e+02 % over 60`."""
    broken = BrokenLimit(concurrency="200/s", metric="ttft_ms_p99", value=12345.6, limit=60)
    assert (
        describe_broken_limits([broken])
        == "ttft_ms_p99 is 12346 at 200 requests/s, 20476 % over 60"
    )
    assert format_limits({"ttft_ms_p99": 2_000_000}) == "ttft_ms_p99 at most 2000000"


def test_a_running_server_is_told_whether_it_keeps_them(tmp_path: Path) -> None:
    """Its report said nothing of limits that were asked for."""
    endpoint = "engine: {kind: endpoint, url: 'http://127.0.0.1:1'}"
    sweep = SWEEP.replace("engine: {kind: sglang, python: /opt/sglang/bin/python}", endpoint)
    sweep = sweep.replace("search: {trials: 6}", "search: {limits: {ttft_ms_p99: 100}}")
    run = make_run(tmp_path, [Trial(None, 100.0)], sweep=sweep)
    kept = "Limits: ttft_ms_p99 at most 100. The server keeps them."
    assert kept in write_report(summarise_run(run)).read_text()
    broken = "The server breaks them: ttft_ms_p99 is 124.3 at concurrency 1, 24 % over 100."
    assert broken in write_report(summarise_run(broken_at(run, 0))).read_text()


def test_goodput_is_shown_of_whatever_was_measured(tmp_path: Path) -> None:
    """What was measured of the settings alone was a dash, as if it had not been."""
    ll = {"env": (("NCCL_PROTO", "LL"),)}
    trials = [
        Trial(None, 100.0),
        Trial(make_point(2, **ll), 120.0),
        Trial(Point(**ll), 101.0, role="plain"),
    ]
    made = make_run(tmp_path, trials)
    lines = [json.loads(line) for line in made.trials_file.read_text().splitlines()]
    for line, good in zip(lines, (3.25, 4.5, 3.75), strict=True):
        line["metrics"]["1"]["goodput_request_s"] = good
    made.trials_file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    [(_, table)] = top_tables(summarise_run(Run.open(made.path)))
    header, _, *rows = ([cell.strip() for cell in row.split(" | ")] for row in table.splitlines())
    column = header.index("goodput, requests/s")
    assert [row[column] for row in rows] == ["3.25", "-", "3.75", "4.50"]  # -: the reference


@pytest.mark.parametrize(
    ("failed", "below", "words"),
    [
        (9, 0, "30 % of the requests failed at 16 requests/s, at most 10 % may"),
        (9, 15, None),  # without speculation as many fail
        (3, 0, None),
        (0, 0, None),
    ],
)
def test_a_server_that_turns_requests_away_is_no_answer(
    failed: int, below: int, words: str | None
) -> None:
    """It has fewer at a time, so that those which it answers are fast and keep every limit:
    recommended with `40 % faster`, and a doubt far below."""
    whole = make_queue_window(4.0, lambda _: 0.5, 30)
    some = [
        replace(each, error="HTTP 503" if number < below else None)
        for number, each in enumerate(whole.samples)
    ]
    metrics = {"16/s": {"requests": 30, "failed_requests": failed, "ttft_ms_p99": 5.0}}
    baseline = {Rate(16): [replace(whole, samples=tuple(some))]}
    found = broken_limits(metrics, SearchSpec(limits={"ttft_ms_p99": 100}), baseline)
    assert (describe_broken_limits(found) or None) == words
    assert all(each.excess > 0 for each in found)
    assert broken_limits(metrics, SearchSpec()) == []  # the baseline itself


def test_what_is_asked_of_every_server_is_named(tmp_path: Path) -> None:
    run = limited(tmp_path, 105.0, 118.0)
    lines = [json.loads(line) for line in run.trials_file.read_text().splitlines()]
    found = {"concurrency": 1, "metric": "failed_share", "value": 0.3, "limit": 0.1}
    lines[0]["broken"], lines[1]["broken"] = [], [found]
    run.trials_file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    run.sweep_file.write_text(
        run.sweep_file.read_text().replace("limits: {tpot_ms_p50: 9.0}, ", "")
    )
    result = summarise_run(Run.open(run.path))
    assert result.best is None
    assert result.verdict.endswith(
        "; no faster one answers requests: of 1 step, 2 tokens 30 % of the requests failed at "
        "concurrency 1, at most 10 % may"
    )
    assert "limits: to answer requests; the baseline" not in result.limits.words()
    assert result.limits.words().startswith("limits: to answer requests; 1 candidate not")
    assert (
        "Limits: to answer requests." in write_report(summarise_run(Run.open(run.path))).read_text()
    )
