"""Files of others: what is taken over means what it means here, and the rest is refused."""

import gzip
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
from tuner.compare.external.reader import is_foreign, read_foreign
from tuner.compare.external.record import ForeignRecord, ForeignRun
from tuner.core.errors import NotComparable, UserError


def only(path: Path) -> ForeignRecord:
    (run,) = read_foreign(path)
    (record,) = run.records
    return record


def by_configuration(run: ForeignRun) -> dict[str, ForeignRecord]:
    return {each.configuration: each for each in run.records}


def test_bench_serving_is_mapped(tmp_path: Path) -> None:
    record = only(jsonl(tmp_path / "x.jsonl", bench_serving()))
    assert (record.concurrency, record.output_tok_s) == (1, 100.0)
    assert record.ttft_ms == (30.0, 40.0, 45.0)
    assert record.tpot_ms == (5.0, 5.5, 6.0)
    assert record.accept_length == 2.5
    assert record.configuration == "EAGLE3, 3 steps, 4 tokens"
    assert record.model == "/models/example/target"
    assert record.windows == ()


def test_a_file_that_the_real_tool_wrote_is_read_with_its_requests() -> None:
    """Two measurements of the same prompts: tokens and seconds add up."""
    record = only(REAL)
    found = [json.loads(line) for line in REAL.read_text().splitlines()]
    seconds = sum(each["duration"] for each in found)
    assert record.output_tok_s == pytest.approx(
        sum(each["total_output_tokens"] for each in found) / seconds
    )
    assert [len(each.samples) for each in record.windows] == [8, 8]
    sample, first = record.windows[0].samples[0], found[0]
    assert sample.tokens == first["output_lens"][0]
    assert sample.ended == pytest.approx(first["ttfts"][0] + sum(first["itls"][0]))
    assert record.simulated


def test_no_speculation_is_told_from_what_the_file_does_not_say(tmp_path: Path) -> None:
    """A baseline that speculated would make every speed-up 1."""
    said = only(jsonl(tmp_path / "a.jsonl", bench_serving(speculates=False)))
    unsaid = only(jsonl(tmp_path / "b.jsonl", bench_serving(speculates=None)))
    assert (said.speculates, said.configuration) == (False, "no speculation")
    assert unsaid.speculates is None and "does not say" in unsaid.configuration
    assert only(jsonl(tmp_path / "c.json", vllm(speculates=False))).speculates is None


def test_bench_speculatives_speed_is_no_throughput(tmp_path: Path) -> None:
    """It is the accept length by the 20th percentile of the steps' times."""
    lines = (bench_speculative(0), bench_speculative(3))
    (run,) = read_foreign(jsonl(tmp_path / "output.jsonl", *lines))
    found = by_configuration(run)
    assert {each.output_tok_s for each in found.values()} == {None}
    assert found["3 steps, 4 tokens"].accept_length == 2.5
    assert found["no speculation"].accept_length is None
    assert any("no throughput" in note for note in run.notes)


def test_vllms_rates_are_shares_here(tmp_path: Path) -> None:
    record = only(jsonl(tmp_path / "x.json", vllm()))
    assert record.accept_rate == 0.5
    assert record.accept_rate_by_position == (0.8, 0.5, 0.2)
    assert record.accept_length == 2.5
    assert record.ttft_ms == (30.0, None, 45.0)
    assert record.model == "example/target"


def test_a_vllm_sweep_is_read_from_its_folder(tmp_path: Path) -> None:
    """summary.json is a list, indented; parameters come behind run_number."""
    for tokens, speed in ((2, 100.0), (4, 120.0)):
        folder = tmp_path / f"SERVE--n={tokens}"
        folder.mkdir()
        added: dict[str, Any] = {"speculative_config.num_speculative_tokens": tokens}
        runs = [vllm(output_throughput=speed, run_number=number, **added) for number in range(2)]
        (folder / "summary.json").write_text(json.dumps(runs, indent=4))
    assert is_foreign(tmp_path)
    (run,) = read_foreign(tmp_path)
    names = [f"speculative_config.num_speculative_tokens={n}" for n in (2, 4)]
    assert sorted(by_configuration(run)) == names
    assert {each.tokens for each in run.records} == {2000}
    assert any("added up" in note for note in run.notes)


def test_appended_results_of_vllm_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(vllm()) + "\n" + json.dumps(vllm(max_concurrency=8)))
    assert read_foreign(path)[0].levels == [1, 8]


def test_specforges_accept_length_is_not_taken_over(tmp_path: Path) -> None:
    """It counts the tokens of prefill as if verifies had brought them."""
    path = tmp_path / "results_20261129_170000.jsonl"
    gsm8k = specforge()["mtbench"]
    path.write_text(json.dumps(specforge(gsm8k=gsm8k), indent=4))
    first, second = read_foreign(path)
    assert [first.workload, second.workload] == ["mtbench, 80 questions", "gsm8k, 80 questions"]
    found = by_configuration(first)
    assert {name: each.output_tok_s for name, each in found.items()} == {
        "no speculation": 90.0, "3 steps, 4 tokens": 120.0,
    }  # fmt: skip
    assert {each.accept_length for each in found.values()} == {None}
    assert any("first token" in note for note in first.notes)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (bench_serving(request_rate=4.0), "request rate of 4.0"),
        (bench_serving(request_rate="trace"), "request rate of trace"),
        (bench_serving(max_concurrency=None), "--max-concurrency N"),
        (bench_serving(completed=0, output_throughput=0.0), "no request completed"),
        (vllm(request_rate=2.5), "request rate of 2.5"),
        (vllm(max_concurrency=None), "--max-concurrency N"),
        (
            {"run_number": 0, "error_type": "OSError", "error": "x", "serve_overrides": {},
             "bench_overrides": {}},
            "failed",
        ),
    ],
)  # fmt: skip
def test_what_asks_another_question_is_refused_with_the_reason(
    tmp_path: Path, found: dict[str, object], reason: str
) -> None:
    """An open loop's tok/s is the rate at which requests were sent."""
    path = jsonl(tmp_path / "x.jsonl", found)
    with pytest.raises(NotComparable, match=reason) as caught:
        read_foreign(path)
    assert str(caught.value).startswith(f"{path}:1: ")


def test_a_part_that_is_refused_is_named_and_the_rest_shown(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "x.jsonl", bench_serving(), bench_serving(request_rate=4.0))
    (run,) = read_foreign(path)
    assert len(run.records) == 1
    assert run.notes[0].startswith(f"left out: {path}:2: ")


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (json.dumps(bench_serving()) + "\n" + json.dumps(bench_serving())[:200], 2, "cut off"),
        ("[\n" + json.dumps(vllm()) + ",\n", 3, "cut off"),
        (json.dumps(specforge(), indent=4)[:-40], 38, "cut off"),
        ('{"a": 1}\n', 1, "none of the results"),
        ('\n\n{"trial": 0, "role": "baseline", "point": null}\n', 3, "results/NAME/RUN-ID"),
        (json.dumps(bench_serving(output_throughput="fast")), 1, "'fast', it must be a number"),
        (json.dumps(bench_serving(output_throughput=float("nan"))), 1, "is nan"),
        (json.dumps(bench_serving(output_throughput=10**400)), 1, "is 1000.*to 1e.15"),
        (json.dumps(bench_serving(output_throughput=5e-324)), 1, "is 5e-324, .* from 1e-15"),
        (json.dumps(bench_serving(duration=1e308)), 1, "is 1e.308"),
        (json.dumps(bench_serving(duration=None)), 1, "duration is missing"),
        (json.dumps(bench_serving(max_concurrency=1.5)), 1, "whole number"),
        (json.dumps(bench_speculative()) + "\n" + json.dumps(vllm()), 2, "split them"),
        ("[1, 2]", 1, "not a JSON object"),
        ("Namespace(backend='sglang')\n", 1, "not JSON"),
    ],
)
def test_a_broken_file_is_one_sentence_with_its_line(
    tmp_path: Path, text: str, line: int, reason: str
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match=reason) as caught:
        read_foreign(path)
    assert caught.value.where == f"{path}:{line}"
    assert "\n" not in str(caught.value)


def test_a_specforge_run_that_generated_nothing_takes_no_other_with_it(tmp_path: Path) -> None:
    """What follows it in the file would be missing without a word."""
    found = specforge()
    first = found["mtbench"][0]["metrics"]
    first.insert(0, first[0] | {"output_throughput": 0.0})
    (run,) = read_foreign(jsonl(tmp_path / "x.jsonl", found))
    assert set(by_configuration(run)) == {"no speculation", "3 steps, 4 tokens"}
    assert "nothing was generated" in run.notes[0]
    found = specforge()
    for each in found["mtbench"]:
        each["metrics"] = []
    with pytest.raises(NotComparable, match="no measurement in it"):
        read_foreign(jsonl(tmp_path / "y.jsonl", found))


def test_what_no_terminal_should_get_is_shown_as_escapes(tmp_path: Path) -> None:
    """A file may come from anywhere: it must not move the cursor, nor end in a traceback."""
    hostile = "\x1b[2J\ud800\u202e"
    path = jsonl(tmp_path / "x.jsonl", bench_serving(dataset_name=hostile))
    (run,) = read_foreign(path)
    assert run.workload.isascii()
    assert run.workload == "dataset \\x1b[2J\\ud800\\u202e"
    with pytest.raises(NotComparable, match=r"rate of .*ud800"):
        read_foreign(jsonl(path, bench_serving(request_rate=hostile)))


def test_files_without_any_result(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("\n")
    with pytest.raises(UserError, match="nothing in it"):
        read_foreign(path)
    path.write_bytes(b"\xff\x00\xfe")
    with pytest.raises(UserError, match="not UTF-8"):
        read_foreign(path)
    path.write_bytes(gzip.compress(b"{}"))
    with pytest.raises(UserError, match="unpack it with gunzip"):
        read_foreign(path)


def test_requests_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    found = json.loads(REAL.read_text().splitlines()[0])
    found["ttfts"] = found["ttfts"][:-1]
    with pytest.raises(UserError, match="differ in length"):
        read_foreign(jsonl(tmp_path / "x.jsonl", found))


def test_requests_of_another_measurement_give_no_interval(tmp_path: Path) -> None:
    """Else a file that says 600 tok/s and lists requests of 300 is `no difference seen`."""
    found = json.loads(REAL.read_text().splitlines()[0])
    assert only(jsonl(tmp_path / "x.jsonl", found)).windows
    found["output_throughput"] *= 2
    assert only(jsonl(tmp_path / "y.jsonl", found)).windows == ()
