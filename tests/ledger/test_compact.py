"""Many candidates fit into memory, and nothing of a line is lost for that."""

import json
from pathlib import Path

import pytest

from tests.ledger.test_run import TEXT, point, record, settings
from tuner.errors import UserError
from tuner.ledger.figures import Figures, Later
from tuner.ledger.judged import OutputsLine
from tuner.ledger.record import TrialRecord
from tuner.ledger.run import Run

FIGURES = {
    "output_tok_s": 94.25,
    "requests": 48,
    "cached_share": None,
    "accept_rate_by_position": [0.5, 0.25, 0],
    "by_kind": {"chat": {"requests": 4, "decode_tok_s": 91.5, "accept_rate": None}},
    "speedup": 1.5,
    "speedup_low": 1.25,
    "speedup_high": 1.75,
}
COMMAND = {"argv": ["python", "-m", "server"], "env": {"A": "1"}, "unset": ["B"]}


def a_candidate(trial: int, **changes) -> TrialRecord:
    fields = {
        "metrics": {"1": FIGURES, "8": {**FIGURES, "output_tok_s": trial + 0.5}},
        "command": COMMAND,
        "outputs": {"1": OutputsLine(outcome="equal")},
        "point": point(trial, env={"NCCL_PROTO": "LL"}),
    }
    return record(trial, **{**fields, **changes})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "results", TEXT, settings())


def written(run: Run, *records: TrialRecord) -> tuple[TrialRecord, ...]:
    with run.locked():
        for each in records:
            run.append(each)
        held = run.records()
    assert held == run.records()
    return run.records()


def test_a_candidate_is_read_back_as_it_was_written(run: Run) -> None:
    """To its types: a count of 48 that became 48.0 would be another line where it is copied."""
    candidate = a_candidate(1)
    (found,) = written(run, candidate)
    assert found == candidate
    assert json.dumps(found.model_dump()) == json.dumps(candidate.model_dump())
    shown = found.metrics["1"]
    assert isinstance(shown, Figures) and isinstance(found.command, Later)
    assert {name: type(value) for name, value in shown.items()} == {
        name: type(value) for name, value in FIGURES.items()
    }
    assert shown["by_kind"]["chat"]["decode_tok_s"] == 91.5
    assert found.outputs["1"] == OutputsLine(outcome="equal")
    assert found.far_outputs is None


def test_outputs_that_speak_against_a_candidate_are_kept(run: Run) -> None:
    far = OutputsLine(outcome="far", stops=True)
    (found,) = written(run, a_candidate(1, outputs={"1": far}))
    assert found.far_outputs == "1"


def test_a_speed_up_over_all_baselines_takes_the_place_of_the_first_one(run: Run) -> None:
    (found,) = written(run, a_candidate(1))
    figures = found.metrics["1"]
    assert isinstance(figures, Figures)
    told = figures.updated({"speedup": 2.0, "speedup_low": None})
    assert isinstance(told, Figures)
    assert told == {**FIGURES, "speedup": 2.0, "speedup_low": None}
    assert figures == FIGURES


@pytest.mark.parametrize("figure", [2**60 + 1, -(2**60) - 1])
def test_a_number_that_no_float_holds_is_kept(run: Run, figure: int) -> None:
    (found,) = written(run, a_candidate(1, metrics={"1": {**FIGURES, "prompt_tokens": figure}}))
    assert found.metrics["1"]["prompt_tokens"] == figure


def test_a_ledger_that_is_changed_while_it_is_read_is_said(run: Run) -> None:
    with run.locked():
        run.append(a_candidate(1), a_candidate(2))
    found = run.records()[0]
    run.trials_file.write_bytes(b"{}\n")
    with pytest.raises(UserError, match="not where it was"):
        found.metrics["1"]["by_kind"]
    assert found.metrics["1"]["output_tok_s"] == 94.25
