"""Files of other benchmarks beside runs: rows that say where they come from, and no verdict
that the file does not bear."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.compare.external.files import (
    REAL,
    bench_serving,
    bench_speculative,
    jsonl,
    specforge,
    vllm,
)
from tests.compare.rows import row
from tests.factories import SIMULATED, make_compared_run
from tuner.compare.comparison import Comparison, compare
from tuner.compare.render import comparison_markdown, comparison_text
from tuner.compare.sources import open_sources
from tuner.core.errors import NotComparable, UserError


def compared(*paths: Path) -> Comparison:
    return compare([source for path in paths for source in open_sources(path)])


def test_a_file_is_a_row_without_a_verdict(tmp_path: Path) -> None:
    """1.1 times the tok/s of other prompts is no speed-up."""
    run = make_compared_run(tmp_path, "a")
    file = jsonl(tmp_path / "x.jsonl", bench_serving(output_throughput=200.0))
    comparison = compared(run.path, file)
    found = row(comparison, "B", "best candidate")
    assert found.tok_s is not None and found.tok_s.value == 200.0
    assert found.verdict == "not comparable: no interval in x.jsonl"
    assert found.ratio is not None and found.ratio.low is None
    comparison.refuse_incomparable()
    with pytest.raises(NotComparable, match=r"no interval in x\.jsonl"):
        comparison.refuse_unjudged()
    for text in (comparison_text(comparison), comparison_markdown(comparison)):
        assert "x.jsonl: dataset sharegpt, sharegpt\\_output\\_len 100".replace("\\", "") in text
        assert "sglang.bench" in text and "since its start" in text
    assert json.loads(json.dumps(comparison.to_json()))["runs"]["B"]["foreign"] is True


def test_each_format_has_its_rows(tmp_path: Path) -> None:
    run = make_compared_run(tmp_path, "a")
    files = [
        jsonl(tmp_path / "vllm.json", vllm()),
        jsonl(tmp_path / "output.jsonl", bench_speculative(0), bench_speculative(3)),
        jsonl(tmp_path / "results.jsonl", specforge()),
    ]
    comparison = compared(run.path, *files)
    assert row(comparison, "B", "best candidate").figures.metrics["accept_rate"] == 0.5
    assert row(comparison, "C", "best candidate").verdict.endswith("no tok/s in output.jsonl")
    assert row(comparison, "D", "no speculation").tok_s is not None
    assert not any(each.compared for each in comparison.rows)


def test_two_files_with_the_same_requests_have_an_interval(tmp_path: Path) -> None:
    """Requests one by one, sent in the same order: all that a verdict needs."""
    first, second = (json.loads(line) for line in REAL.read_text().splitlines())
    files = [jsonl(tmp_path / "a.jsonl", first), jsonl(tmp_path / "b.jsonl", first)]
    found = row(compared(*files), "B", "best candidate", 2)
    assert found.verdict == "no difference seen"
    assert found.ratio is not None and found.ratio.low is not None
    second["input_lens"] = [each + 1 for each in second["input_lens"]]
    other = row(compared(files[0], jsonl(tmp_path / "c.jsonl", second)), "B", "best candidate", 2)
    assert other.verdict == "not comparable: the prompts are not known to be the same"


def test_requests_of_a_file_are_not_those_of_a_run(tmp_path: Path) -> None:
    sweep = SIMULATED.replace("concurrency: [1]", "concurrency: [2]")
    sweep = sweep.replace("example/target", "example/target".replace("example", "real-pair"))
    run = make_compared_run(tmp_path, "a", sweep=sweep, levels=(2,))
    found = row(compared(run.path, REAL), "B", "best candidate", 2)
    assert found.tok_s is not None and found.tok_s.low is not None
    assert found.verdict == "not comparable: the prompts are not known to be the same"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (
            {"max_concurrency": 16},
            r"no level in common \(concurrency 1 in the first and concurrency 16 here\)",
        ),
        ({"server_info": {"model_path": "example/other"}}, "the model is example/target in the"),
        ({"server_info": {"simulated": {}}}, "one is measured on hardware, the other simulated"),
    ],
)
def test_a_file_of_another_question_is_refused(
    tmp_path: Path, changed: dict[str, Any], reason: str
) -> None:
    run = make_compared_run(tmp_path, "a")
    file = jsonl(tmp_path / "x.jsonl", bench_serving(**changed))
    with pytest.raises(NotComparable, match=reason):
        compared(run.path, file)


@pytest.mark.parametrize(
    "name", ["/models/Target", "hub/models--example--target/snapshots/abc", "example/target/"]
)
def test_a_model_is_the_same_wherever_it_lies(tmp_path: Path, name: str) -> None:
    run = make_compared_run(tmp_path, "a")
    compared(run.path, jsonl(tmp_path / "x.json", vllm(model_id=name)))


def test_a_file_can_be_the_reference_but_shares_no_points(tmp_path: Path) -> None:
    run = make_compared_run(tmp_path, "a")
    file = jsonl(tmp_path / "x.json", vllm())
    comparison = compared(file, run.path)
    assert row(comparison, "B", "best candidate").verdict.endswith("no interval in x.json")
    with pytest.raises(UserError, match="--all needs a run"):
        compare([*open_sources(file), *open_sources(run.path)], every=True)
