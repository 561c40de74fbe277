"""A trial is read from the ledger as it was written."""

import json
from pathlib import Path

import pytest

from tests.factories import CRLF_SWEEP, make_point_json, make_record, make_settings
from tuner.core.secrets import learn
from tuner.runs.records import (
    BrokenLimit,
    DecisionLine,
    OutputCounts,
    OutputsLine,
    PlaceLine,
    TrialRecord,
)
from tuner.runs.run import Run

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
COUNTS = OutputCounts(
    prompts=4, equal=3, early=0, looping=0, off=1, prefix={"p50": 32}, tokens_to_part=12.0
)


def full_record(trial: int) -> TrialRecord:
    """A candidate with every part that a line can have."""
    return make_record(
        trial,
        metrics={"1": FIGURES, "8": {**FIGURES, "prompt_tokens": 2**60 + 1}, "4/s": {}},
        command={"argv": ["python", "-m", "server"], "env": {"A": "1"}, "unset": ["B"]},
        point=make_point_json(
            2, env={"NCCL_PROTO": "LL"}, flags={"a": True, "b": 1, "c": 0.5, "d": "é"}
        ),
        checks=[{"check": "noisy", "level": "doubt", "message": "±7 %"}],
        outputs={
            "1": OutputsLine(outcome="differ", found=COUNTS, itself=COUNTS),
            "8": OutputsLine(outcome="far", stops=True),
        },
        decision=DecisionLine(stage="model", why="the best", predicted=1, excluded={"slow": 3}),
        broken=[BrokenLimit(concurrency=8, metric="ttft_ms_p99", value=3.0, limit=2.0)],
        place=PlaceLine(name="slot 0", gpus=["0"]),
        warm_steps=[1, 2],
    )


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "results", CRLF_SWEEP, make_settings())


def test_full_record_is_read_back_with_its_types(run: Run) -> None:
    """A count of 48 must not become 48.0."""
    written = full_record(1)
    with run.locked():
        run.append(written)
        held = run.records()
    assert held == run.records() == (written,)
    assert json.dumps(run.records()[0].model_dump()) == json.dumps(written.model_dump())
    assert run.records()[0].divergent_outputs == "8"


def test_line_of_an_older_version_is_read(run: Run) -> None:
    """It lacks the parts that came later."""
    line = full_record(1).model_dump()
    for name in ("checks", "warm_steps", "decision", "outputs", "place", "asked", "task"):
        del line[name]
    run.trials_file.write_text(json.dumps(line) + "\n")
    (found,) = run.records()
    assert found.asked is None and found.checks == [] and found.outputs == {}


def test_line_with_the_proposal_of_an_older_version_is_read(run: Run) -> None:
    """Older versions wrote what the search knew when it proposed the point."""
    asked = {"number": 6, "after": 6, "along": [], "beside": [], "drawn": [[1, 0, 2]]}
    line = full_record(1).model_dump() | {"asked": asked}
    run.trials_file.write_text(json.dumps(line) + "\n")
    (found,) = run.records()
    assert found.asked == asked and found.at == full_record(1).at


def test_secret_in_a_line_is_hidden_in_memory_too(run: Run) -> None:
    learn("tell-nobody-1234567", "API_KEY")
    argv = ["python", "--api-key", "tell-nobody-1234567", "é"]
    with run.locked():
        run.append(make_record(1, command={"argv": argv, "env": {}, "unset": []}), make_record(2))
        held = run.records()
    assert held[0].command is not None
    assert held[0].command["argv"] == ["python", "--api-key", "${API_KEY}", "é"]
    assert held == run.records()
