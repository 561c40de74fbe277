"""What a run tells of each kind of prompt: an average hides that a draft fails on one of them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.factories import SWEEP, Trial, make_point, make_run, make_windows
from tuner.analysis.prompt_categories import kinds_found
from tuner.analysis.summary import summarise_run
from tuner.cli.progress import outcome
from tuner.cli.result import print_summary
from tuner.metrics.catalogue import summarise
from tuner.metrics.samples import Window
from tuner.metrics.samples_file import write_samples
from tuner.metrics.statistics import speedup
from tuner.report.dataframes import kinds_frame
from tuner.report.prompt_categories import kind_tables, length_tables
from tuner.report.report import write_report
from tuner.runs.raw_samples import RawSamples
from tuner.runs.run import Run

CODE = {0: 1.0, 1: 1.6, 2: 1.2}
"""How much faster than chat code is, by trial: chain 2 is made for code, chain 3 for chat."""


def uneven(window: Window, factor: float) -> Window:
    """The window with answers to code that came `factor` times as fast."""
    samples = []
    for each in window.samples:
        first, last = each.chunk_times
        if each.kind == "code":
            last = first + (last - first) / factor
        samples.append(replace(each, chunk_times=(first, last), ended=last))
    return replace(window, samples=tuple(samples))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Chain 2: chat 100, code 160; chain 3: chat 120, code 144; baseline 100 on both."""
    trials = [Trial(None, 100.0), Trial(make_point(2), 100.0), Trial(make_point(3), 120.0)]
    sweep = SWEEP.replace("space:", "search: {objective: {metric: decode_tok_s}}\nspace:", 1)
    sweep = sweep.replace("search: {trials: 6}\n", "")
    made = make_run(tmp_path, trials, sweep=sweep)
    below: list[Window] = []
    lines = []
    for number, (trial, record) in enumerate(zip(trials, made.ledger().records, strict=True)):
        windows = [uneven(each, CODE[number]) for each in make_windows(trial, 1, 0.002, number)]
        below = below or windows
        point = record.at
        figures: dict[str, Any] = summarise(windows, point and point.num_steps, 1)
        if point is not None:
            ratio = speedup(below, windows, "decode_tok_s")
            assert ratio is not None
            figures |= {"speedup": ratio.value}
            figures |= {"speedup_low": ratio.low, "speedup_high": ratio.high}
        write_samples(made.samples_file(number), {1: windows})
        lines.append(record.model_copy(update={"metrics": {"1": figures}}).model_dump_json())
    made.trials_file.write_text("\n".join(lines) + "\n")
    return Run.open(made.path)


def test_each_kind_has_its_speed_up_and_its_fastest(run: Run) -> None:
    """A user whose traffic is chat alone would run what code made the winner."""
    result = summarise_run(run)
    assert result.best is not None
    assert result.best.at == make_point(3)
    chat, code = result.by_kind[1]
    assert (chat.kind, code.kind) == ("chat", "code")
    for found, value in ((chat, 1.2), (code, 1.44)):
        assert found.speedup is not None
        assert found.speedup.value == pytest.approx(value, rel=0.01)
        assert found.speedup.low is not None
        assert found.speedup.high is not None
        assert found.speedup.low < value < found.speedup.high
    assert chat.fastest is result.best
    assert code.fastest.at == make_point(2)
    assert code.fastest_speedup is not None
    assert code.fastest_speedup.value == pytest.approx(1.6, rel=0.01)
    told = result.to_json()["by_kind"]["1"]["code"]
    assert told["fastest"] == make_point(2).to_json()
    assert told["baseline_decode_tok_s"] == pytest.approx(100, rel=0.01)
    assert told["accept_rate"] is not None


def test_the_report_shows_them(run: Run) -> None:
    text = write_report(summarise_run(run)).read_text()
    line = next(each for each in text.splitlines() if each.startswith("| code"))
    assert "1.439, 1.43 to 1.45" in line
    assert "(1.599, 1.59 to 1.61)" in line
    assert "By kind of prompt, decode speed of one stream, of" in text


def test_one_kind_needs_no_table(tmp_path: Path) -> None:
    """Three tables of one row each said what the tables of the levels have."""
    run = make_run(tmp_path, [Trial(None, 100.0), Trial(make_point(2), 125.0)])
    for record in run.ledger().records:
        assert record.metrics["1"].get("by_kind")
    summary = summarise_run(run)
    assert len(kind_tables(summary)) == 1
    for found in summary.kinds.values():
        assert len(found) == 2
    one_kind = {level: found[:1] for level, found in summary.kinds.items()}
    summary = replace(summary, by_kind=one_kind)
    assert kind_tables(summary) == []


def test_an_older_ledger_is_read_from_its_samples(run: Run) -> None:
    """Kinds would be lost for every run that was made before they were in the ledger."""
    lines = [json.loads(line) for line in run.trials_file.read_text().splitlines()]
    for line in lines:
        del line["metrics"]["1"]["by_kind"]
    run.trials_file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    ledger = run.ledger()
    spec = run.sweep().search.objective
    (found, _) = kinds_found(ledger, ledger.candidates[1], RawSamples(run), spec)[1]
    assert found.figures["requests"] == 12
    assert found.figures["accept_rate"] is not None


def test_the_frame_has_a_row_for_each_kind(run: Run) -> None:
    frame = kinds_frame(run.ledger().records)
    assert list(frame["kind"]) == ["chat", "code"] * 3
    assert list(frame["requests"]) == [12] * 6
    assert list(frame["decode_speedup"]) == pytest.approx([1, 1, 1, 1.6, 1.2, 1.44], rel=0.01)
    assert list(frame["num_steps"].fillna(0)) == [0, 0, 2, 2, 3, 3]
    assert len(kinds_frame([])) == 0
    failed = make_run(
        run.path.parent / "other", [Trial(make_point(2), failure="OOM", outcome="failed")]
    )
    assert len(kinds_frame(failed.ledger().records)) == 0


def test_a_run_without_a_candidate_has_no_kinds(tmp_path: Path) -> None:
    summary = summarise_run(make_run(tmp_path, [Trial(None, 90.0)]))
    assert summary.kinds == {}


def test_the_report_shows_lengths_where_there_are_several(run: Run) -> None:
    """Acceptance on long prompts is what a user of long prompts needs, and drowns in the rest."""
    assert length_tables(summarise_run(run)) == []
    summary = summarise_run(run)
    lines = [each.model_dump_json() for each in summary.ledger.records]
    for number, record in enumerate(summary.ledger.records):
        parts = record.metrics["1"]["by_length"]
        told = parts["0-511"]
        parts |= {"2048-8191": {**told, "ttft_ms_p50": 400.0}, "512-2047": {**told}}
        lines[number] = record.model_dump_json()
    run.trials_file.write_text("\n".join(lines) + "\n")
    ((words, table),) = length_tables(summarise_run(Run.open(run.path)))
    assert words.startswith("By prompt tokens, of")
    shown = [line.split(" | ")[0] for line in table.splitlines()[2:]]
    assert shown == ["| 0-511", "| 512-2047", "| 2048-8191"]
    assert "400" in table.splitlines()[-1]


def test_no_speculation_may_be_the_fastest_of_a_kind(tmp_path: Path) -> None:
    """`this one` beside a speed-up of 0.75 tells a reader to run what loses."""
    run = make_run(
        tmp_path, [Trial(None, 200.0), Trial(make_point(2), 150.0), Trial(make_point(3), 140.0)]
    )
    (chat, _) = summarise_run(run).kinds[1]
    assert chat.fastest.role == "baseline"
    assert chat.fastest_speedup is not None and chat.fastest_speedup.value == 1
    assert chat.to_json()["fastest"] is None
    row = next(
        x
        for x in write_report(summarise_run(run)).read_text().splitlines()
        if x.startswith("| chat")
    )
    assert row.endswith("| no speculation |")


def test_a_speed_stands_beside_the_speed_up_that_is_of_it(run: Run) -> None:
    """tok/s over all streams beside the speed-up of one stream looks like a wrong quotient."""
    text = write_report(summarise_run(run)).read_text()
    assert "no speculation, decode tok/s | best candidate, decode tok/s" in text
    record = run.ledger().candidates[1]
    speed = record.metrics["1"]["decode_tok_s"]
    assert outcome(record, "decode_tok_s").startswith(f"{speed:.1f} decode tok/s, ")
    output = record.metrics["1"]["output_tok_s"]
    assert f"{output:.1f}" != f"{speed:.1f}"
    assert outcome(record, "output_tok_s").startswith(f"{output:.1f} output tok/s, ")


def test_the_screens_table_has_the_objectives_speed(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    print_summary(summarise_run(run), Path("report.md"))
    told = capsys.readouterr().out
    speed = run.ledger().candidates[1].metrics["1"]["decode_tok_s"]
    assert "decode" in told.splitlines()[2]
    assert "speed-up: of decode tok/s" in told
    assert f"{speed:.1f}" in told
