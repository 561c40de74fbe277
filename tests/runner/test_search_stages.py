"""A run with stages: why each point was launched is on the disk, in the report, and after a resume
the search goes on as if nothing had been."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.factories import make_point_json, make_record, make_speedup
from tests.sweeps import Listener, tiny_sweep
from tuner.analysis.summary import summarise_run
from tuner.analysis.winner import fastest_candidate
from tuner.config.schema import ObjectiveSpec
from tuner.core.errors import UserError
from tuner.engines import make_engine
from tuner.report.report import write_report
from tuner.report.search_history import EARLIER, not_launched, other_launches
from tuner.runner.observations import make_study
from tuner.runner.sweep_run import begin_run, reopen_run, run_sweep
from tuner.runs.ledger import Ledger
from tuner.runs.records import DecisionLine, TrialRecord, read_record
from tuner.search.staged import CANNOT_WIN

STAGED = "stages: [anchors, model, confirm], trials: 3, seed: 1"


def test_decisions_are_in_the_ledger_and_the_report_and_are_made_again(tmp_path: Path) -> None:
    loaded = tiny_sweep(tmp_path, search=STAGED, steps="1, 2, 3, 4")
    run = begin_run(tmp_path / "runs", loaded, None)
    run_sweep(loaded, run, make_engine(loaded.sweep), Listener())
    baseline, first, *rest = run.records()
    assert baseline.decision is None
    assert first.decision is not None
    assert (first.at.num_steps, first.decision.stage) == (4, "anchors")
    assert "longest chain" in first.decision.why
    assert rest
    for record in (each for each in rest if each.role == "candidate"):
        assert record.decision is not None
        assert "times the baseline" in record.decision.why

    # What the answer rests on is in the line that confirms it, so the report comes to the same one.
    (last,) = (each for each in run.records() if each.role == "confirm")
    assert last.smoothed is not None
    assert set(last.smoothed) == {str(each.trial) for each in run.ledger().candidates}
    assert all(each.smoothed is None for each in run.ledger().candidates)

    report = write_report(summarise_run(run)).read_text()
    assert "## How it was searched" in report
    assert "the longest chain, settings as plain as can be" in report

    study = make_study(loaded, run)
    lines = run.trials_file.read_bytes().splitlines(keepends=True)
    run.trials_file.write_bytes(b"".join(lines[:2]))
    again = Listener()
    run_sweep(loaded, reopen_run(run.path, loaded, None), make_engine(loaded.sweep), again)
    if rest and rest[0].role == "candidate":
        assert run.records()[2].at == rest[0].at
    assert study.handed_over is None


def test_an_older_ledger_has_no_decisions_and_is_read(tmp_path: Path) -> None:
    loaded = tiny_sweep(tmp_path, search="trials: 1")
    run = begin_run(tmp_path / "runs", loaded, None)
    run_sweep(loaded, run, make_engine(loaded.sweep), Listener())
    line = json.loads(run.trials_file.read_text().splitlines()[1])
    assert line.pop("decision") is None
    assert read_record(json.dumps(line), "trials.jsonl:2").decision is None
    assert "How it was searched" not in write_report(summarise_run(run)).read_text()


def record(
    trial: int, steps: int, value: float, role: str = "candidate", why: str = ""
) -> TrialRecord:
    decision = DecisionLine(stage="confirm", why=why) if why else None
    metrics = {"1": make_speedup(value)}
    point = make_point_json(steps)
    return make_record(trial, role=role, point=point, metrics=metrics, decision=decision)


def test_the_searchs_choice_goes_before_one_launchs_luck() -> None:
    candidates = (record(1, 2, 1.10), record(2, 3, 1.12))
    spec = ObjectiveSpec()
    assert fastest_candidate(Ledger(candidates), spec)[0] == candidates[1]
    chosen = (*candidates, record(3, 2, 1.11, "confirm", "the fastest by all measurements"))
    assert fastest_candidate(Ledger(chosen), spec) == (candidates[0], 1.10)
    # A run that went on afterwards has to choose again.
    later = (*chosen, record(4, 4, 1.01))
    assert fastest_candidate(Ledger(later), spec)[0] == candidates[1]


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("sampler: grid, stages: [anchors]", "grid measures every point"),
        ("stages: [model]", "model needs anchors"),
        ("sampler: grid, stages: [comm]", "grid measures every point"),
        ("stages: [warp]", "stages"),
    ],
)
def test_stages_that_cannot_be_are_refused(tmp_path: Path, search: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        tiny_sweep(tmp_path, search=search)


NOT_EVEN = "would not beat no speculation, even at the top of what is expected of them"


@pytest.mark.parametrize("cannot_win", [CANNOT_WIN, EARLIER])
@pytest.mark.parametrize(
    ("excluded", "measured", "says"),
    [  # a check launches one of the points that cannot win; a launch by the model is none of them
        ({"NCCL": 204, "?": 5, "HANG": 2}, 6, f"210 of 216 points. 204: NCCL; 4: {NOT_EVEN}; 2"),
        ({"NCCL": 204, "?": 1}, 11, f"205 of 216 points. 204: NCCL; 1: {NOT_EVEN}"),
        (
            {"NCCL": 204},
            6,
            "210 of 216 points. 204: NCCL; 6: not ruled out when the last launch was decided.",
        ),
    ],
)
def test_what_was_not_launched_adds_up(
    cannot_win: str, excluded: dict[str, int], measured: int, says: str
) -> None:
    """204 + 5 + 2 beside 210 makes a reader doubt the other numbers. `cannot beat the best so far`
    of a run in which nothing beat the baseline makes one look for what that was."""
    found = {cannot_win if why == "?" else why: n for why, n in excluded.items()}
    last = SimpleNamespace(decision=SimpleNamespace(excluded=found), trial=measured)
    candidates = [record(trial, 2, 0.9) for trial in range(measured)]
    (told,) = not_launched(in_a_space(216, candidates), [cast(Any, last)])
    assert told.startswith(f"Not launched: {says}")
    won = [record(0, 3, 1.2), *candidates[1:]]
    (told,) = not_launched(in_a_space(216, won), [cast(Any, last)])
    assert "no speculation" not in told


def in_a_space(points: int, candidates: list[TrialRecord]) -> Any:
    """Return the part of `RunSummary` that the lines below the table read."""
    return SimpleNamespace(
        space=SimpleNamespace(points=range(points)),
        ledger=Ledger(tuple(candidates)),
        sweep=SimpleNamespace(search=SimpleNamespace(objective=ObjectiveSpec())),
    )


def test_launches_that_no_row_has_are_accounted_for() -> None:
    """A table of launches 1, 2, 4, 5 and trials 0 to 5 elsewhere: is something hidden?"""
    lines = [
        record(0, 2, 1.0).model_copy(update={"role": "baseline", "point": None}),
        record(1, 2, 1.1),
        record(2, 3, 1.2).model_copy(update={"launch_id": 3}),
        record(3, 3, 1.2, "confirm").model_copy(update={"launch_id": 4}),
    ]
    (told,) = other_launches(in_a_space(9, lines))
    assert told.endswith(
        "Not of candidates: 0 (the baseline), 4 (the winner once more), 2 (ended without a trial: "
        "tried again, or cut off)."
    )
