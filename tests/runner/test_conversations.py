"""Prompt files that have only what users ask: a server without speculation answers, once."""

import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from tests.sweeps import Listener, tiny_sweep
from tuner.analysis.summary import summarise_run
from tuner.cli.commands import specbench
from tuner.cli.progress import ProgressLine
from tuner.compare.comparison import compare
from tuner.config.loader import LoadedSweep, load_sweep
from tuner.config.prompts import read_prompts
from tuner.core.errors import EngineFailure, NotComparable, UserError
from tuner.engines import make_engine
from tuner.execution.trial import TrialRunner
from tuner.loadgen.client import Load, run_window
from tuner.metrics.samples import Request, Window
from tuner.metrics.samples_file import read_samples
from tuner.preflight.plan import make_plan
from tuner.report.report import write_report
from tuner.runner.budget import Budget
from tuner.runner.stages import measure_endpoint
from tuner.runner.sweep_run import begin_run, reopen_run, run_sweep
from tuner.runs.run import Run
from tuner.runs.status import read_ended

ASKED = [
    {"question_id": 81, "category": "writing", "turns": ["Write a poem.", "Now in prose."]},
    {"question_id": 82, "category": "math", "turns": ["What is 3 + 4?", "Twice?", "Why?"]},
    {"question_id": 83, "category": "chat", "turns": ["How are you?"]},
]


def asking(folder: Path, ignore_eos: str = "true", **more: object) -> LoadedSweep:
    folder.mkdir(exist_ok=True)
    lines = "".join(json.dumps({**each, **more}) + "\n" for each in ASKED)
    (folder / "p.jsonl").write_text(lines)
    path = tiny_sweep(folder, search="trials: 1", steps="2").path
    asked = f"{{prompts: p.jsonl, turns: all, ignore_eos: {ignore_eos}, requests: 6,"
    path.write_text(path.read_text().replace("workload: {requests: 3,", f"workload: {asked}"))
    return load_sweep(path)


def measured(loaded: LoadedSweep, out: Path) -> Run:
    run = begin_run(out, loaded, None)
    run_sweep(loaded, run, make_engine(loaded.sweep), Listener())
    return run


@pytest.mark.parametrize("ignore_eos", ["true", "false"])
def test_every_configuration_gets_the_same_conversations(tmp_path: Path, ignore_eos: str) -> None:
    """With each one's own answers as history a speed-up would also measure other prompts."""
    loaded = asking(tmp_path, ignore_eos)
    assert loaded.prompts_read is not None
    assert "6 turns after what the server without speculation answers" in loaded.prompts_read
    run = measured(loaded, tmp_path / "out")
    told = {each.id: each for each in read_prompts("conversations.jsonl", run.path, "all").prompts}
    roles = [role for role, _ in told["82"].messages]
    assert roles == ["user", "assistant", "user", "assistant", "user"]
    assert all(content.strip() for each in told.values() for _, content in each.messages)
    assert told["82"].kind == "math"
    seen = set()
    for record in run.ledger().records:
        assert record.outcome == "ok", record.message
        assert record.samples is not None
        assert "other prompts" not in {each["check"] for each in record.checks}
        for window in read_samples(run.path / record.samples)[1]:
            by_id = {each.prompt_id: each for each in window.samples}
            assert set(by_id) == {"81#1", "81#2", "82#1", "82#2", "82#3", "83#1"}
            later, first = by_id["82#2"].prompt_tokens, by_id["82#1"].prompt_tokens
            assert later is not None
            assert first is not None
            assert later > first  # the answer is in it
            seen.add(tuple(sorted((name, each.prompt_tokens) for name, each in by_id.items())))
            whole = ignore_eos == "true"
            assert all((each.tokens == 24) >= whole for each in by_id.values())
    assert len(seen) == 1
    assert (
        "those answers are in conversations.jsonl, content"
        in write_report(summarise_run(run)).read_text()
    )
    assert (
        "# Needs conversations.jsonl beside this file: the answers between"
        in run.best_yaml.read_text()
    )


def test_answers_that_no_file_can_hold_are_kept_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model may write NUL, and half a character: the run ended in a traceback, or at every resume
    with a mistake in a file that nobody had written."""

    def odd(url: str, requests: Sequence[Request], load: Load) -> Window:
        window = run_window(url, requests, load)
        said = [replace(each, text=f"a\0{each.text}\ud83d") for each in window.samples]
        return replace(window, samples=tuple(said))

    monkeypatch.setattr("tuner.runner.conversations.run_window", odd)
    run = measured(asking(tmp_path), tmp_path / "out")
    assert [each.outcome for each in run.ledger().records] == ["ok", "ok"]
    told = read_prompts("conversations.jsonl", run.path, "all").prompts
    answers = [text for each in told for role, text in each.messages if role == "assistant"]
    assert all(text.startswith("a\ufffd") and text.endswith("\ufffd") for text in answers)


@pytest.mark.parametrize("silent", [("82",), ("81", "82")])
def test_an_answer_that_ends_at_once_is_one_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: tuple[str, ...]
) -> None:
    """One empty answer among eighty ended the run; a server without any text still does."""

    def quiet(url: str, requests: Sequence[Request], load: Load) -> Window:
        window = run_window(url, requests, load)
        said = [
            replace(each, text="" if each.prompt_id in silent else each.text)
            for each in window.samples
        ]
        return replace(window, samples=tuple(said))

    monkeypatch.setattr("tuner.runner.conversations.run_window", quiet)
    if len(silent) > 1:
        with pytest.raises(EngineFailure, match="was answered without text"):
            measured(asking(tmp_path), tmp_path / "out")
        return
    run = measured(asking(tmp_path), tmp_path / "out")
    assert [each.outcome for each in run.ledger().records] == ["ok", "ok"]
    told = {each.id: each for each in read_prompts("conversations.jsonl", run.path, "all").prompts}
    assert [text for role, text in told["82"].messages if role == "assistant"] == ["", ""]


def test_a_resumed_run_goes_on_with_the_answers_it_began_with(tmp_path: Path) -> None:
    loaded = asking(tmp_path, sub_category="x")  # SPEED-Bench's shape
    run = measured(loaded, tmp_path / "out")
    before = run.conversations_file.read_bytes()
    again = reopen_run(run.path, loaded, None)
    again.extend_to(2)
    run_sweep(loaded, again, make_engine(loaded.sweep), Listener())
    assert run.conversations_file.read_bytes() == before
    assert len(again.ledger().candidates) == 2
    text = before.decode().replace("Write a poem.", "Write a song.")
    run.conversations_file.write_text(text)
    with pytest.raises(UserError, match=r"conversations\.jsonl: conversation '81' is not that of"):
        run_sweep(loaded, again, make_engine(loaded.sweep), Listener())
    run.conversations_file.unlink()
    with pytest.raises(UserError, match="are not there any more, restore this file"):
        run_sweep(loaded, again, make_engine(loaded.sweep), Listener())


def test_runs_of_other_answers_are_not_compared(tmp_path: Path) -> None:
    loaded = asking(tmp_path)
    one, other = (measured(loaded, tmp_path / name) for name in ("one", "other"))
    compare([one, other])
    text = other.conversations_file.read_text(encoding="utf-8")
    said = '"assistant", "content": "'
    other.conversations_file.write_text(text.replace(said, f"{said}Well,"))
    with pytest.raises(NotComparable, match="the answers before later turns is"):
        compare([one, other])


def other_answers(url: str, requests: Sequence[Request], load: Load) -> Window:
    """A server whose next launch words things otherwise, as kernels that round otherwise do."""
    window = run_window(url, requests, load)
    said = [replace(each, text=f"Well, {each.text}") for each in window.samples]
    return replace(window, samples=tuple(said))


def test_a_run_of_best_yaml_sends_what_its_run_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there to be compared: with answers of its own it was refused, nearly always."""
    run = measured(asking(tmp_path), tmp_path / "out")
    write_report(summarise_run(run))
    monkeypatch.setattr("tuner.runner.conversations.run_window", other_answers)
    loaded = load_sweep(run.best_yaml)
    plan = make_plan(loaded)
    assert plan.estimate.by_role["answers"] == 0
    assert (
        "the answers between turns of 2 conversations are those of conversations.jsonl"
        in "".join(plan.notes)
    )
    again = measured(loaded, tmp_path / "again")
    assert again.conversations_file.read_bytes() == run.conversations_file.read_bytes()
    compare([run, again])
    # Its own best.yaml goes on with the same.
    write_report(summarise_run(again))
    assert load_sweep(again.best_yaml).answers == loaded.answers
    # Without the file it is another question, and compare-report says so.
    anew = measured(asking(tmp_path), tmp_path / "anew")
    with pytest.raises(NotComparable, match="the answers before later turns is"):
        compare([run, anew])


def test_a_run_goes_on_without_the_run_that_its_answers_are_from(tmp_path: Path) -> None:
    """It has them itself; where the earlier run was removed or moved it could not be resumed."""
    first = measured(asking(tmp_path), tmp_path / "out")
    write_report(summarise_run(first))
    run = measured(load_sweep(first.best_yaml), tmp_path / "again")
    sent = run.conversations_file.read_bytes()
    first.path.rename(tmp_path / "moved")
    done = CliRunner().invoke(specbench, ["sweep", "--resume", str(run.path)])
    assert done.exit_code == 0, done.output
    assert run.conversations_file.read_bytes() == sent
    # Its own file is held against the prompts as before.
    run.conversations_file.write_bytes(sent.replace(b"Write a poem.", b"Write a song."))
    done = CliRunner().invoke(specbench, ["sweep", "--resume", str(run.path)])
    assert "conversation '81' is not that of the prompts, restore this file" in str(done.exception)


def test_best_yaml_finds_answers_that_its_run_had_no_need_of(tmp_path: Path) -> None:
    """Of what was sent nothing had later turns, so the run kept none; best.yaml was refused."""
    run = measured(asking(tmp_path), tmp_path / "out")
    run.conversations_file.rename(tmp_path / "some.jsonl")
    path, prompts = asking(tmp_path).path, tmp_path / "p.jsonl"
    first = [{"question_id": n, "category": f"kind {n}", "turns": ["Hello?"]} for n in range(4)]
    prompts.write_text("".join(json.dumps(e) + "\n" for e in first) + prompts.read_text())
    text = path.read_text().replace("turns: all,", "turns: all, answers: some.jsonl,")
    path.write_text(text.replace("requests: 6", "requests: 1"))
    loaded = load_sweep(path)
    again = measured(loaded, tmp_path / "again")
    assert not again.conversations_file.exists()
    write_report(summarise_run(again))
    assert load_sweep(again.best_yaml).answers == loaded.answers


def test_answers_that_a_file_lacks_are_written(tmp_path: Path) -> None:
    run = measured(asking(tmp_path), tmp_path / "out")
    first, _ = run.conversations_file.read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "some.jsonl").write_text(first)
    path = asking(tmp_path).path
    path.write_text(path.read_text().replace("turns: all,", "turns: all, answers: some.jsonl,"))
    loaded = load_sweep(path)
    assert make_plan(loaded).estimate.by_role["answers"] == 1
    again = measured(loaded, tmp_path / "again")
    told = again.conversations_file.read_text(encoding="utf-8").splitlines(keepends=True)
    assert told[0] == first and len(told) == 2


@pytest.mark.parametrize(
    ("answers", "turns", "said"),
    [
        # The file that best.yaml needs was not copied with it: no built-in prompts replace that.
        (
            "gone.jsonl",
            "all",
            "gone.jsonl: No such file or directory, name the conversations.jsonl",
        ),
        ("builtin:chat", "all", "no file of answers, name the conversations.jsonl of a run on"),
        ("p.jsonl", "all", "it answers none of the prompts' conversations"),
        ("other.jsonl", "all", "its conversation '82' is not that of the prompts"),
        ("other.jsonl", "first", "answers stand between turns, write turns: all, or remove it"),
        ("other.jsonl", "theirs", "the prompts have answers of their own, remove it"),
    ],
)
def test_answers_that_are_none_are_refused_before_anything_is_launched(
    tmp_path: Path, answers: str, turns: str, said: str
) -> None:
    path = asking(tmp_path).path
    talk = [
        {"role": r, "content": c} for r, c in (("user", "x"), ("assistant", "y"), ("user", "z"))
    ]
    (tmp_path / "other.jsonl").write_text(json.dumps({"id": "82", "messages": talk}) + "\n")
    text = path.read_text().replace("turns: all,", f"turns: all, answers: {answers},")
    if turns == "theirs":
        text = text.replace("p.jsonl", "other.jsonl")
    path.write_text(text.replace("turns: all", f"turns: {turns.replace('theirs', 'all')}"))
    with pytest.raises(UserError, match=re.escape(said)):
        load_sweep(path)


def test_a_run_that_is_stopped_while_answers_are_written_measures_nothing(tmp_path: Path) -> None:
    """The launch of the baseline was begun, a quarter of an hour with a large model."""
    loaded = asking(tmp_path)
    run, told = begin_run(tmp_path / "out", loaded, None), Listener()
    told.phase = lambda phase: phase.doing == "answering" and run.stop_file.touch()
    run_sweep(loaded, run, make_engine(loaded.sweep), told)
    assert run.records() == ()
    assert "somebody asked this run to stop, nothing is begun" in told.notes
    ended = read_ended(run)
    assert ended is not None and ended.why == "somebody asked this run to stop"
    # A resume goes on with these answers.
    before = run.conversations_file.read_bytes()
    run_sweep(loaded, run, make_engine(loaded.sweep), Listener())
    assert run.conversations_file.read_bytes() == before
    assert [each.role for each in run.records()] == ["baseline", "candidate"]


def test_so_does_one_of_an_endpoint(tmp_path: Path) -> None:
    loaded, told = asking(tmp_path), Listener()
    run = begin_run(tmp_path / "out", loaded, None)
    bench = TrialRunner.prepare(make_engine(loaded.sweep), loaded, run, told.phase)
    run.stop_file.touch()
    measure_endpoint(bench, Budget(loaded.sweep.search, run.stop_file), told)
    assert run.records() == () and told.phases == []
    assert told.notes == ["somebody asked this run to stop, nothing is begun"]


def test_a_server_that_cannot_answer_ends_the_run_before_it_measures(tmp_path: Path) -> None:
    loaded = asking(tmp_path)
    path = loaded.path
    hangs = "faults: [{kind: hang-after, value: 2}]"
    path.write_text(path.read_text().replace("faults: []", hangs))
    loaded = load_sweep(path)
    run = begin_run(tmp_path / "out", loaded, None)
    with pytest.raises(EngineFailure, match="no new token came"):
        run_sweep(loaded, run, make_engine(loaded.sweep), Listener())
    assert run.records() == ()
    assert not run.conversations_file.exists()


def test_the_launch_that_writes_answers_is_said_and_counted(tmp_path: Path) -> None:
    """`trial 0, baseline: launching` stood there twice, and one launch was not in the plan."""
    loaded = asking(tmp_path)
    plan = make_plan(loaded)
    assert any("writes the answers between turns first" in note for note in plan.notes)
    answered = loaded.path.with_name("answered.jsonl")
    told = [["What is 3 + 4?", "7", "Twice?", "14", "Why?"], ["How are you?"]]
    roles = ["user", "assistant"] * 3
    answered.write_text(
        "".join(
            json.dumps(
                {"messages": [{"role": r, "content": c} for r, c in zip(roles, each, strict=False)]}
            )
            + "\n"
            for each in told
        )
    )
    text = loaded.path.read_text().replace("p.jsonl", "answered.jsonl")
    whole = loaded.path.with_name("whole.yaml")
    whole.write_text(text)
    assert plan.estimate.launches == make_plan(load_sweep(whole)).estimate.launches + 1
    run, out = begin_run(tmp_path / "out", loaded, None), io.StringIO()
    watch = ProgressLine(Console(file=out, width=200), None, loaded)
    run_sweep(loaded, run, make_engine(loaded.sweep), watch)
    lines = out.getvalue().splitlines()
    assert lines[0] == ("no speculation: writing the answers between turns (conversations.jsonl)")
    assert lines.count("trial 0, baseline: launching") == 1
