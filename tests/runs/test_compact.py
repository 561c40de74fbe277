"""Many candidates fit into memory, and nothing of a line is lost for that."""

import json
from pathlib import Path

import pytest

from tests.runs.test_run import TEXT, point, record, settings
from tuner.core.errors import UserError
from tuner.core.secrets import learn
from tuner.runs.lazy_line import Later, LazyFigures
from tuner.runs.records import OutputsLine, TrialRecord
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
    assert isinstance(shown, LazyFigures) and isinstance(found.command, Later)
    assert {name: type(value) for name, value in shown.items()} == {
        name: type(value) for name, value in FIGURES.items()
    }
    assert shown["by_kind"]["chat"]["decode_tok_s"] == 91.5
    assert found.outputs["1"] == OutputsLine(outcome="equal")
    assert found.divergent_outputs is None


def test_outputs_that_speak_against_a_candidate_are_kept(run: Run) -> None:
    far = OutputsLine(outcome="far", stops=True)
    (found,) = written(run, a_candidate(1, outputs={"1": far}))
    assert found.divergent_outputs == "1"


def test_a_speed_up_over_all_baselines_takes_the_place_of_the_first_one(run: Run) -> None:
    (found,) = written(run, a_candidate(1))
    figures = found.metrics["1"]
    assert isinstance(figures, LazyFigures)
    told = figures.updated({"speedup": 2.0, "speedup_low": None})
    assert isinstance(told, LazyFigures)
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


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ('"output_tok_s": 94.25', '"output_tok_s": NaN'),
        ('"output_tok_s": 94.25', '"output_tok_s": 1e999'),
        ('"output_tok_s": 94.25', '"output_tok_s": true'),
        ('"output_tok_s": 94.25', '"output_tok_s": "94"'),
        ('"output_tok_s": 94.25', '"output_tok_s": [94.25]'),
        ("[0.5, 0.25, 0]", "[0.5, NaN]"),
        ("[0.5, 0.25, 0]", "[0.5, null]"),
        ("[0.5, 0.25, 0]", "0.5"),
        ('"decode_tok_s": 91.5', '"decode_tok_s": -Infinity'),
        ('"decode_tok_s": 91.5', '"decode_tok_s": "fast"'),
        ('{"chat": {"requests": 4', '{"code": 4, "chat": {"requests": 4'),
        ('"speedup_low": 1.25, ', ""),
        ('"launch_s": ', '"launch_s": NaN, "was": '),
    ],
)
def test_a_broken_figure_of_a_candidate_is_refused_at_its_line(
    run: Run, place: str, value: str
) -> None:
    """However many lines are read, and however fast: a NaN makes every comparison false."""
    with run.locked():
        run.append(a_candidate(1), a_candidate(2))
    lines = run.trials_file.read_text().splitlines()
    assert place in lines[1]
    run.trials_file.write_text("\n".join([lines[0], lines[1].replace(place, value)]) + "\n")
    with pytest.raises(UserError) as refused:
        run.records()
    assert refused.value.where == f"{run.trials_file}:2"


def test_lines_of_several_shapes_lie_in_one_ledger(run: Run) -> None:
    """Of several versions, engines and levels; what is alike for some is not for others."""
    shapes = [
        a_candidate(1),
        a_candidate(2, metrics={}),
        a_candidate(3, metrics={"1": {"output_tok_s": 5, "speedup": None}}),
        a_candidate(4, metrics={"1": {"output_tok_s": 1e300, "ttft_ms_p50": 1e300}}),
        a_candidate(5, metrics={"4/s": FIGURES, "8": {}}),
        a_candidate(6, point=point(6, flags={"a": 1}), command=None, outputs={}),
        a_candidate(7, point=point(6, flags={"a": True})),
        a_candidate(8, checks=[{"check": "x", "level": "doubt", "message": "é"}]),
    ]
    found = written(run, *shapes)
    assert list(found) == shapes
    for one, other in zip(found, shapes, strict=True):
        assert json.dumps(one.model_dump()) == json.dumps(other.model_dump())


def test_a_changed_copy_leaves_the_line_as_it_was(run: Run) -> None:
    """Speed-ups over all baselines are such copies; many lines share what is empty or alike."""
    one, other = written(run, a_candidate(1, command=None), a_candidate(2, command=None))
    before = json.dumps([one.model_dump(), other.model_dump()])
    copy = one.model_copy(update={"metrics": {"1": {"speedup": 9.0}}, "warm_steps": [1, 2]})
    assert copy.metrics["1"]["speedup"] == 9.0 and copy.model_fields_set >= {"metrics"}
    assert json.dumps([one.model_dump(), other.model_dump()]) == before
    assert one.metrics["1"]["speedup"] == 1.5


def test_a_secret_in_a_line_is_hidden_and_the_rest_of_it_is_found(run: Run) -> None:
    """What is read from the line later is read where the line is, with what stands there for it."""
    learn("tell-nobody-1234567", "API_KEY")
    command = {**COMMAND, "argv": ["python", "--api-key", "tell-nobody-1234567", "é"]}
    with run.locked():
        run.append(a_candidate(1, command=command), a_candidate(2))
        one, other = run.records()
        assert one.command is not None and other.command is not None
        assert one.command["argv"] == ["python", "--api-key", "${API_KEY}", "é"]
        assert other.command["argv"] == COMMAND["argv"]
        assert run.records()[1].metrics["1"]["by_kind"] == FIGURES["by_kind"]
    assert [each.model_dump() for each in run.records()] == [
        each.model_dump() for each in (one, other)
    ]


def test_lines_that_are_added_meanwhile_change_nothing_that_was_read(run: Run) -> None:
    """`specbench report` while the run goes on."""
    with run.locked():
        run.append(a_candidate(1))
        (found,) = Run.open(run.path).records()
        run.append(a_candidate(2))
        assert found.metrics["1"]["by_kind"] == FIGURES["by_kind"]
        assert found.command == COMMAND


@pytest.mark.parametrize(
    "content", [b"", b"{}\n", b"x" * 100_000, b"[" * 100_000, b"\xff" * 99_999]
)
def test_a_ledger_that_is_replaced_while_it_is_read_is_one_sentence(
    run: Run, content: bytes
) -> None:
    with run.locked():
        run.append(a_candidate(1), a_candidate(2))
    found = run.records()[1]
    run.trials_file.write_bytes(content)
    for look in (
        lambda: found.metrics["1"]["by_kind"],
        lambda: dict(found.command or {}),
        lambda: found.outputs["1"],
    ):
        with pytest.raises(UserError, match="not where it was"):
            look()


def test_another_line_in_its_place_is_not_taken_for_it(run: Run) -> None:
    """Two lines of one length that changed places would say of one what was measured of another."""
    with run.locked():
        run.append(a_candidate(1), a_candidate(2))
    found = run.records()[0]
    lines = run.trials_file.read_bytes().splitlines(keepends=True)
    assert len(lines[0]) == len(lines[1])
    run.trials_file.write_bytes(lines[1] + lines[0])
    with pytest.raises(UserError, match="not where it was"):
        found.metrics["1"]["by_kind"]
