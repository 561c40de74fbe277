"""The run folder survives crashes and tells what is wrong with it, by line."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.errors import UserError
from tuner.ledger.record import TrialRecord
from tuner.ledger.run import Run, RunSettings

TEXT = "name: é\n# kept as it is\r\n"


def settings(trials: int = 5) -> RunSettings:
    return RunSettings(trials=trials, prompts="abc")


def record(trial: int, **changes) -> TrialRecord:
    fields = {
        "trial": trial,
        "role": "candidate",
        "point": None,
        "outcome": "ok",
        "failure": None,
        "engine": "simulated",
        "engine_version": "0.5.17",
        "launch_id": trial,
        "launch_s": 1.0,
        "started": "2026-11-29T17:37:02Z",
        "metrics": {"1": {"output_tok_s": 94.1 + trial / 3}},
        "samples": None,
    }
    return TrialRecord(**{**fields, **changes})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "results", TEXT, settings())


def test_a_run_can_be_opened_again_as_it_was(run: Run):
    again = Run.open(run.path)
    assert again.settings == run.settings
    assert again.sweep_file.read_bytes() == TEXT.encode()
    assert again.machine()["cores"] >= 1
    assert again.ledger().records == ()


def test_two_runs_of_one_second_have_two_folders(tmp_path: Path):
    paths = {Run.create(tmp_path, TEXT, settings()).path for _ in range(4)}
    assert len(paths) == 4
    assert all(re.fullmatch(r"\d{8}-\d{6}(-\d)?", path.name) for path in paths)


def test_what_was_appended_is_read_back_exactly(run: Run):
    written = [record(0, role="baseline"), record(1, outcome="failed", failure="CRASH"), record(4)]
    with run.locked():
        for each in written:
            run.append(each)
    ledger = run.ledger()
    assert list(ledger.records) == written
    assert (ledger.next_trial, ledger.next_launch) == (5, 5)
    assert ledger.baseline == written[0]
    assert ledger.candidates == tuple(written[1:])


def test_a_half_written_line_is_cut_off_and_said(run: Run):
    with run.locked():
        run.append(record(0))
    with run.trials_file.open("ab") as file:
        file.write(b'{"format": 1, "trial": 1, "ro')
    note = run.ledger().note
    assert note is not None
    assert f"{run.trials_file}:2: " in note
    with run.locked() as said:
        assert said == note
        run.append(record(1))
    assert [each.trial for each in run.ledger().records] == [0, 1]
    assert run.ledger().note is None


def test_reading_does_not_cut_the_line_that_another_process_is_writing(run: Run):
    run.trials_file.write_bytes(b'{"format"')
    run.ledger()
    assert run.trials_file.read_bytes() == b'{"format"'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{not json}", "not JSON"),
        ("[1]", "no JSON object"),
        ("", "not JSON"),
        (json.dumps(record(0).model_dump()), "trial 0 comes after 0"),
        (json.dumps({**record(1).model_dump(), "format": 2}), "upgrade it"),
        (json.dumps({**record(1).model_dump(), "outcome": "great"}), "outcome"),
        (json.dumps({**record(1).model_dump(), "surplus": 1}), "surplus"),
    ],
)
def test_a_broken_line_is_refused_at_its_number(run: Run, line: str, message: str):
    good = json.dumps(record(0).model_dump())
    run.trials_file.write_text(f"{good}\n{line}\n")
    with pytest.raises(UserError, match=message) as caught:
        run.ledger()
    assert caught.value.where == f"{run.trials_file}:2"


def test_a_second_specbench_cannot_write_the_run(run: Run):
    code = (
        "import sys; from pathlib import Path; from tuner.ledger.run import Run\n"
        "from tuner.errors import UserError\n"
        "try:\n"
        "    with Run.open(Path(sys.argv[1])).locked(): print('got it')\n"
        "except UserError as error: print(error)\n"
    )
    words = [sys.executable, "-c", code, str(run.path)]
    with run.locked():
        refused = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "another specbench is writing this run" in refused
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "got it\n"


def test_an_extension_outlives_an_interruption(run: Run):
    run.extend_to(25)
    again = Run.open(run.path).settings
    assert (again.trials, again.wanted) == (5, 25)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="no run folder"):
        Run.open(tmp_path)
    with pytest.raises(UserError):
        Run.open(tmp_path / "absent")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ('{"format": 2}', "upgrade it"),
        ('{"format": 1}', "trials"),
        ("[]", "not what specbench wrote"),
    ],
)
def test_broken_settings_are_refused(run: Run, text: str, message: str):
    run.settings_file.write_text(text)
    with pytest.raises(UserError, match=message):
        Run.open(run.path)


def test_a_place_that_cannot_be_written_is_the_users_mistake(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="can be written"):
        Run.create(tmp_path / "file" / "runs", TEXT, settings())


@pytest.mark.parametrize("text", ["", "engine: 3\n", "name: [1]\nengine: {kind: simulated}\n"])
def test_a_sweep_file_edited_in_the_run_folder_is_refused(run: Run, text: str):
    run.sweep_file.write_text(text)
    with pytest.raises(UserError, match="restore it"):
        run.sweep()
