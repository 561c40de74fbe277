"""Whole runs whose configurations say something else than the baseline: none is recommended."""

import gzip
import json
import zlib
from pathlib import Path

import pytest

from tests.sweeps import HURRIED, Listener, tiny_sweep
from tuner.analysis.summary import RunSummary, summarise_run
from tuner.config.loader import LoadedSweep, load_sweep
from tuner.config.synthetic import no_output_to_compare
from tuner.core.errors import UserError
from tuner.engines import make_engine
from tuner.metrics.samples_file import read_samples
from tuner.report.answer import answer
from tuner.report.report import write_report
from tuner.runner.sweep_run import begin_run, reopen_run, run_sweep
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run
from tuner.simulator.conversation import NUMBERS

WRONG = "{kind: wrong-output, value: 2, launches: [%s]}"


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take nearly all of a report's time."""
    monkeypatch.setattr("tuner.report.report.draw_figures", lambda summary, folder: [])


def a_sweep(folder: Path, faults: str = "", **changes: str) -> LoadedSweep:
    """Two chains under `LL`, where both beat the baseline, with eight prompts."""
    path = tiny_sweep(folder, faults, "sampler: grid", "2, 3").path
    text = path.read_text().replace("[unset, LL]", "[LL]").replace("requests: 3", "requests: 8")
    text = text.replace("preset: quickstart", f"preset: quickstart, {HURRIED}")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return load_sweep(path)


def swept(loaded: LoadedSweep) -> tuple[Run, RunSummary]:
    run = begin_run(loaded.path.parent / "runs", loaded, None)
    return run, run_sweep(loaded, run, make_engine(loaded.sweep), Listener())


def test_every_winner_is_held_against_the_baseline(tmp_path: Path):
    """Nobody would know that a draft patch changes what the model says."""
    run, result = swept(a_sweep(tmp_path))
    lines = [each.outputs["1"] for each in run.ledger().candidates]
    assert [line.outcome for line in lines] == ["equal", "equal"]
    assert lines[0].found is not None and lines[0].itself is not None
    assert (lines[0].found.prompts, lines[0].itself.prompts) == (8, 8)
    assert run.ledger().baseline is not None and not run.ledger().baseline.outputs
    shown = json.loads(json.dumps(result.to_json()))
    assert shown["outputs"]["1"]["found"]["equal"] == 8
    assert shown["far_outputs"] == []
    assert (
        "8 of 8 are the baseline's, token by token" in write_report(summarise_run(run)).read_text()
    )
    assert "# Greedy outputs against no speculation: at concurrency 1: 8 of 8" in (
        run.best_sh.read_text()
    )


def test_what_is_kept_of_answers(tmp_path: Path):
    """The comparison can be made again from the samples, and they do not grow for nothing."""
    run, _ = swept(a_sweep(tmp_path))
    baseline, candidate = (
        read_samples(run.path / each.samples)[1] for each in run.records()[:2] if each.samples
    )
    kept = [[s.output_ids is not None for s in w.samples] for w in (*baseline, *candidate)]
    assert kept == [[True] * 8, [True] * 8, [True] * 8, [False] * 8]
    texts = [[s.text is not None for s in w.samples] for w in (*baseline, *candidate)]
    assert texts == [[True] * 8, [False] * 8, [True] * 8, [False] * 8]
    first = candidate[0].samples[0]
    assert first.output_ids is not None and first.text is not None
    assert len(first.output_ids) == first.tokens == len(first.text.split()) == 24


def test_the_next_best_takes_the_place_of_wrong_outputs(tmp_path: Path):
    """A configuration that says something else is no faster way to serve the model."""
    run, result = swept(a_sweep(tmp_path, WRONG % 2))
    wrong = run.records()[2]
    assert wrong.outputs["1"].outcome == "far"
    assert "outputs" in [check["check"] for check in wrong.checks if check["level"] == "doubt"]
    assert result.best is not None and result.best.trial == 1
    assert (result.exit_code, [each.trial for each in result.far]) == (0, [2])
    assert result.to_json()["far_outputs"] == [wrong.point]
    assert "not recommended, since outputs are far" in result.verdict
    assert result.by_level[1].record.point != wrong.point
    report = write_report(summarise_run(run)).read_text()
    assert wrong.at is not None
    assert f"Not taken: `{wrong.at.label()}`" in report
    assert "8 of 8 outputs part from the baseline's within the first tokens" in report
    assert "after `" in report and "the baseline says `" in report
    assert f"--speculative-num-steps {wrong.at.num_steps}" not in run.best_sh.read_text()


@pytest.mark.parametrize("kind", ["wrong-output", "looping-output"])
def test_no_speculation_where_all_outputs_are_wrong(tmp_path: Path, kind: str):
    faults = f"{{kind: {kind}, value: 3, launches: [1, 2]}}"
    run, result = swept(a_sweep(tmp_path, faults))
    assert (result.best, result.exit_code, len(result.far)) == (None, 0, 2)
    assert result.to_json()["best"] is None
    text = " ".join(answer(summarise_run(run)))
    assert "**No candidate stands.** Launch the server without speculation." in text
    assert text.count("within the first tokens or end in a loop") == 2
    write_report(summarise_run(run))
    assert "--speculative" not in run.best_sh.read_text()


def test_wrong_outputs_can_be_warned_of_only(tmp_path: Path):
    loaded = a_sweep(tmp_path, WRONG % "1, 2", **{"repeats: 2": "repeats: 2, outputs: warn"})
    run, result = swept(loaded)
    assert result.best is not None
    assert result.far == ()
    assert result.outputs["1"].outcome == "far"
    assert "**Not the baseline's outputs.**" in write_report(summarise_run(run)).read_text()


def test_outputs_can_be_ignored(tmp_path: Path):
    loaded = a_sweep(tmp_path, WRONG % "1, 2", **{"repeats: 2": "repeats: 2, outputs: ignore"})
    run, result = swept(loaded)
    assert result.best is not None
    assert result.outputs == {}
    samples = [gzip.decompress(p.read_bytes()) for p in run.samples_file(0).parent.iterdir()]
    assert not any(b"output_ids" in each for each in samples)
    assert "Greedy outputs" not in write_report(summarise_run(run)).read_text()


def test_near_ties_are_told_with_what_is_normal_and_stop_nothing(tmp_path: Path):
    """Two runs of the same server differ too where requests share a batch."""
    faults = "{kind: near-ties, value: 40, launches: [0, 1, 2]}"
    run, result = swept(a_sweep(tmp_path, faults, **{"output_tokens: 24": "output_tokens: 96"}))
    line = result.outputs["1"]
    assert line.found is not None and line.itself is not None
    assert (line.outcome, line.stops) == ("differ", False)
    assert line.itself.equal < line.itself.prompts
    report = write_report(summarise_run(run)).read_text()
    assert f"{line.found.equal} of 8 equal the baseline's" in report
    assert f"the baseline repeated itself in {line.itself.equal} of 8" in report
    assert "Different is no fault by itself" in report


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("concurrency: [1]", "concurrency: [1], temperature: 0.7", "temperature 0.7"),
        ("space:", "server: {flags: {load-format: dummy}}\nspace:", "random weights"),
        ("space:", "server: {env: {SGLANG_SIMULATE_ACC_LEN: 2}}\nspace:", "makes tokens up"),
    ],
)
def test_made_up_outputs_are_not_compared(tmp_path: Path, old: str, new: str, why: str):
    """A warning about random tokens would teach users to overlook warnings."""
    loaded = a_sweep(tmp_path, WRONG % "1, 2", **{old: new})
    run, result = swept(loaded)
    for record in run.ledger().candidates:
        assert record.outputs["1"].outcome == "not compared"
        assert not any(check["check"] == "outputs" for check in record.checks)
    assert result.far == ()
    report = write_report(summarise_run(run)).read_text()
    assert ("against no speculation: not compared: " in report) == (result.best is not None)
    assert why in (no_output_to_compare(loaded.sweep, {}) or "")


def test_a_variable_that_was_inherited_counts(tmp_path: Path):
    sweep = a_sweep(tmp_path).sweep
    assert no_output_to_compare(sweep, {}) is None
    assert "makes tokens up" in (
        no_output_to_compare(sweep, {"SGLANG_SIMULATE_ACC_LEN": "3"}) or ""
    )


def test_older_ledgers_have_no_outputs():
    """A run folder from before stays readable."""
    folders = sorted(Path("results").glob("smollm2_eagle3/*/"))
    records = Run.open(folders[0]).records()
    assert records and all(each.outputs == {} for each in records)
    assert all(isinstance(each, TrialRecord) and each.divergent_outputs is None for each in records)


def a_task(folder: Path, questions: int = 8) -> None:
    """Questions that the simulated model has all right; it answers a prompt by a number of it."""
    with (folder / "task.jsonl").open("w") as file:
        for n in range(questions):
            question = f"What is {n} and {n}?"
            right = zlib.crc32(question.encode()) % NUMBERS
            file.write(json.dumps({"question": question, "answer": f"so #### {right}"}) + "\n")


TASK = {"concurrency: [1]": "concurrency: [1], task: task.jsonl"}


def test_the_winner_is_scored_beside_the_baseline(tmp_path: Path):
    """Outputs that differ may be as good; a user's own task says it."""
    a_task(tmp_path)
    run, result = swept(a_sweep(tmp_path, **TASK))
    roles = [each.role for each in run.records() if each.task is not None]
    assert roles == ["baseline", "confirm"]
    shown = json.loads(json.dumps(result.to_json()))["task"]
    assert shown["baseline"]["marks"] == shown["best"]["marks"] == "1" * 8
    assert (shown["best"]["p"], shown["best"]["stops"]) == (1.0, False)
    kept = read_samples(run.path / shown["best"]["samples"])[1][0]
    assert [each.text is not None for each in kept.samples] == [True] * 8
    assert (
        "The task: 8 of 8 right, 8 of 8 without speculation"
        in write_report(summarise_run(run)).read_text()
    )
    assert "# The task: 8 of 8 right" in run.best_sh.read_text()
    assert str(tmp_path / "task.jsonl") in run.best_yaml.read_text()
    assert load_sweep(run.best_yaml).task


def test_a_winner_with_a_clearly_lower_score_is_not_recommended(tmp_path: Path):
    """Its launch of its own answers wrong late, which no common prefix shows."""
    a_task(tmp_path)
    faults = "{kind: wrong-output, value: 20, launches: [3]}"
    run, result = swept(a_sweep(tmp_path, faults, **TASK))
    first = run.records()[3]
    assert first.role == "confirm" and first.task is not None
    assert (first.task.marks, first.task.stops) == ("0" * 8, True)
    assert first.outputs["1"].outcome == "differ"
    assert [each.point for each in result.far] == [first.point]
    assert result.best is None or result.best.point != first.point
    report = write_report(summarise_run(run)).read_text()
    assert "by the task's score: 0 of 8 right, 8 of 8 without speculation; 8 lost" in report


def test_a_task_is_not_asked_of_random_weights(tmp_path: Path):
    a_task(tmp_path)
    dummy = {"space:": "server: {flags: {load-format: dummy}}\nspace:"}
    run, result = swept(a_sweep(tmp_path, **TASK, **dummy))
    assert not any(each.task for each in run.records())
    assert "task" not in result.to_json()


def test_a_task_that_changed_is_another_run(tmp_path: Path):
    a_task(tmp_path)
    run = begin_run(tmp_path / "runs", a_sweep(tmp_path, **TASK), None)
    a_task(tmp_path, 9)
    with pytest.raises(UserError, match="the task has changed"):
        reopen_run(run.path, load_sweep(tmp_path / "tiny.yaml"), None)


def test_a_bad_task_is_refused_before_anything_runs(tmp_path: Path):
    (tmp_path / "task.jsonl").write_text('{"question": "a", "answer": "b"}\n')
    with pytest.raises(UserError, match=r"task\.jsonl:1: there is no number"):
        a_sweep(tmp_path, **TASK)
    (tmp_path / "task.jsonl").unlink()
    with pytest.raises(UserError, match=r"tiny\.yaml:8: workload\.task: .*No such file"):
        load_sweep(tmp_path / "tiny.yaml")
