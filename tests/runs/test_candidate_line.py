"""A candidate's line that is read the quick way says what it says the careful way, and no line is
taken that is none."""

import json
import random
from copy import deepcopy
from pathlib import Path

import pytest

from tests.fuzz import damage
from tests.runs.test_compact import a_candidate
from tuner.core.errors import UserError
from tuner.runs.candidate_line import read_candidate
from tuner.runs.lazy_line import Line
from tuner.runs.ledger import parse_ledger
from tuner.runs.records import (
    AskedLine,
    BrokenLimit,
    DecisionLine,
    OutputCounts,
    OutputsLine,
    PlaceLine,
    TrialRecord,
)

COUNTS = OutputCounts(
    prompts=4, equal=3, early=0, looping=0, off=1, prefix={"p50": 32}, tokens_to_part=12.0
)


def full_record() -> TrialRecord:
    """With every part that a candidate's line can have."""
    return a_candidate(
        7,
        point={
            "num_steps": 2,
            "eagle_topk": 1,
            "num_draft_tokens": 3,
            "draft_tp": "target",
            "env": {"NCCL_PROTO": "LL"},
            "flags": {"a": True, "b": 1, "c": 0.5, "d": "é"},
        },
        checks=[{"check": "noisy", "level": "doubt", "message": "±7 %"}],
        outputs={
            "1": OutputsLine(outcome="differ", found=COUNTS, itself=COUNTS),
            "8": OutputsLine(outcome="not compared", why="one window"),
        },
        decision=DecisionLine(stage="model", why="the best", predicted=1, excluded={"slow": 3}),
        broken=[BrokenLimit(concurrency=8, metric="ttft_ms_p99", value=3.0, limit=2.0)],
        place=PlaceLine(name="slot 0", gpus=["0"]),
        asked=AskedLine(number=6, after=6, drawn=[[1, 0, 2]]),
        warm_steps=[1, 2],
    )


def line_of(record: TrialRecord) -> bytes:
    return json.dumps(record.model_dump(), ensure_ascii=False).encode() + b"\n"


def quickly(data: bytes, file: Path) -> TrialRecord | None:
    return read_candidate(data, Line.of(data, file, 0))


def carefully(data: bytes, file: Path, monkeypatch: pytest.MonkeyPatch) -> TrialRecord:
    with monkeypatch.context() as patch:
        patch.setattr("tuner.runs.ledger.read_candidate", lambda *_: None)
        (found,) = parse_ledger(data, file).records
    return found


def written(record: TrialRecord) -> str:
    return json.dumps(record.model_dump(), sort_keys=True)


@pytest.mark.parametrize("record", [a_candidate(1), full_record(), a_candidate(2, point=None)])
def test_usual_lines_are_read_the_quick_way(record: TrialRecord, tmp_path: Path) -> None:
    file = tmp_path / "trials.jsonl"
    file.write_bytes(data := line_of(record))
    found = quickly(data, file)
    assert found == record and found is not None
    assert written(found) == written(record)


def test_a_line_of_an_older_version_is_too(tmp_path: Path) -> None:
    """It lacks what came later."""
    whole = full_record().model_dump()
    for name in ("checks", "warm_steps", "decision", "outputs", "place", "asked", "task"):
        del whole[name]
    data = json.dumps(whole).encode() + b"\n"
    found = quickly(data, tmp_path / "trials.jsonl")
    assert found is not None and found.asked is None and found.checks == []


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_line_is_the_same_both_ways(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken with the same values to their types, or left to the careful way, which refuses it."""
    draw, file = random.Random(seed), tmp_path / "trials.jsonl"
    whole = json.loads(line_of(full_record()))
    taken = 0
    for _ in range(700):
        if draw.random() < 0.7:
            text = json.dumps(damage.value(draw, deepcopy(whole)), ensure_ascii=draw.random() < 0.5)
        else:
            text = damage.text(draw, json.dumps(whole))
        data = text.encode("utf-8", "surrogatepass").replace(b"\n", b" ") + b"\n"
        file.write_bytes(data)
        found = quickly(data, file)
        if found is None:
            continue
        try:
            other = carefully(data, file, monkeypatch)
        except UserError as error:
            pytest.fail(f"{error}: {text}")
        assert written(found) == written(other), text
        taken += 1
    assert taken > 20
