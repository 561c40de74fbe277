"""compare-report as a pipeline calls it: exit codes, files, and one sentence for a mistake."""

import json
from pathlib import Path

import pytest

from tests.compare.external.files import bench_serving, jsonl
from tests.factories import Trial, make_compared_run, make_run
from tuner.cli import main

BROKEN = [Trial(None, failure="OOM", outcome="infeasible")]


def specbench(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `specbench compare-report ...`."""
    with pytest.raises(SystemExit) as left:
        main(["compare-report", *map(str, words)])
    shown = capsys.readouterr()
    assert isinstance(left.value.code, int)
    return left.value.code, shown.out, shown.err


def test_a_regression_exits_with_3_and_says_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [make_compared_run(tmp_path, "a").path, make_compared_run(tmp_path, "b", best=95.0).path]
    code, out, err = specbench(capsys, *runs, "--fail-on-regression", "2%")
    assert code == 3
    assert "regression of more than 2 %: best candidate of B at concurrency 1 has 0.95" in err
    assert "no speculation" not in err
    assert "slower" in out
    code, out, err = specbench(capsys, *runs, "--fail-on-regression", "10%", "--json")
    assert code == 0
    assert "gate 10 %: passed (the nearest, best candidate of B at concurrency 1, has 0.95" in err
    assert err.rstrip().endswith("is not below 0.9)")
    json.loads(out)
    assert specbench(capsys, *runs)[0] == 0


def test_a_gate_that_cannot_tell_exits_with_4(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = make_compared_run(tmp_path, "a").path
    two = make_compared_run(tmp_path, "b", keep_samples=False).path
    for other in (two, make_run(tmp_path / "c", BROKEN).path):
        code, _, err = specbench(capsys, one, other, "--fail-on-regression", "2%")
        assert code == 4, err
    file = jsonl(tmp_path / "x.jsonl", bench_serving())
    code, out, err = specbench(capsys, one, file, "--fail-on-regression", "0.02")
    assert code == 4 and "no interval in x.jsonl" in err
    assert "sglang.bench_serving" in out
    assert specbench(capsys, one, file)[0] == 0


@pytest.mark.parametrize("text", ["2%", "2 %", "2.0%", "0.02", ".02"])
def test_two_percent_can_be_written_in_several_ways(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    runs = [make_compared_run(tmp_path, "a").path, make_compared_run(tmp_path, "b", best=97.0).path]
    code, _, err = specbench(capsys, *runs, "--fail-on-regression", text)
    assert (code, "more than 2 %" in err) == (3, True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("2", "'2' may be 2 % or 200 %, write 2%"),
        ("0.5", "'0.5' may be 0.5 % or 50 %, write 0.5%"),
        ("two", "'two' is no percentage, write 2%"),
        ("-2%", "'-2%' is no percentage"),
        ("nan", "'nan' is no percentage"),
        ("100%", "allows any slowdown"),
    ],
)
def test_an_ambiguous_threshold_is_refused(
    capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    """2 read as 200 % would pass everything."""
    code, _, err = specbench(capsys, "a", "b", "--fail-on-regression", text)
    assert (code, told in err) == (2, True), err


def test_files_are_written_and_stdout_stays_for_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [make_compared_run(tmp_path, name).path for name in "ab"]
    page, out_file = tmp_path / "c.html", tmp_path / "c.md"
    code, out, err = specbench(capsys, *runs, "--json", "--html", page)
    assert code == 0
    assert json.loads(out)["reference"] == "A"
    assert f"written: {page}" in err
    assert page.read_text().startswith("<!DOCTYPE html>")
    code, out, _ = specbench(capsys, *runs, "--markdown", "--out", out_file)
    assert (code, out) == (0, "")
    assert out_file.read_text().startswith("# Comparison\n")


def test_mistakes_are_told_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_compared_run(tmp_path, "a").path
    nowhere = tmp_path / "gone" / "x.md"
    for words, told in (
        ([run, run, "--out", nowhere], "cannot write this file: No such file or directory"),
        ([run, run, "--json", "--markdown"], "give one of them"),
        ([run, tmp_path / "gone"], "this is no run folder"),
        ([run, jsonl(tmp_path / "x.jsonl", {"a": 1})], "x.jsonl:1: this is none of the results"),
        ([run], "two runs or more"),
    ):
        code, _, err = specbench(capsys, *words)
        assert (code, told in err) == (2, True), err
