"""The run folder survives crashes and tells what is wrong with it, by line."""

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.factories import CRLF_SWEEP, World, make_point_json, make_record, make_settings
from tuner.core.errors import UserError
from tuner.metrics.samples_file import write_samples
from tuner.runs.ledger import is_simulated
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run


def changed(**changes) -> str:
    """The line of trial 1 with other values, which the writer would refuse."""
    return json.dumps({**make_record(1).model_dump(), **changes})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "results", CRLF_SWEEP, make_settings())


def test_a_run_can_be_opened_again_as_it_was(run: Run):
    again = Run.open(run.path)
    assert again.settings == run.settings
    assert again.sweep_file.read_bytes() == CRLF_SWEEP.encode()
    assert again.machine()["cores"] >= 1
    assert again.ledger().records == ()


def test_two_runs_of_one_second_have_two_folders(tmp_path: Path):
    paths = {Run.create(tmp_path, CRLF_SWEEP, make_settings()).path for _ in range(4)}
    assert len(paths) == 4
    assert all(re.fullmatch(r"\d{8}-\d{6}(-\d)?", path.name) for path in paths)


def test_what_was_appended_is_read_back_exactly(run: Run):
    written = [
        make_record(0, role="baseline"),
        make_record(1, outcome="failed", failure="CRASH"),
        make_record(4),
    ]
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
        run.append(make_record(0))
    whole = run.trials_file.stat().st_size
    with run.trials_file.open("ab") as file:  # longer than the line that comes in its place
        file.write(b'{"format": 1, "trial": 1, "message": "' + b"x" * 5000)
    note = run.ledger().note
    assert note is not None
    assert f"{run.trials_file}:2: " in note
    with run.locked() as said:
        assert said == note
        assert run.trials_file.stat().st_size == whole
        run.append(make_record(1))
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
        ("[1]", "not a JSON object"),
        ("", "not JSON"),
        (json.dumps(make_record(0).model_dump()), "trial 0 comes after 0"),
        (json.dumps({**make_record(1).model_dump(), "format": 2}), "Upgrade specbench"),
        (json.dumps({**make_record(1).model_dump(), "outcome": "great"}), "outcome"),
        (json.dumps({**make_record(1).model_dump(), "surplus": 1}), "surplus"),
        (changed(point={}), "point: env: Field required"),
        (changed(point=make_point_json(0)), "point: num_steps"),
        (changed(point=make_point_json(2, env={"NCCL_PROTO": 1})), "point: env.NCCL_PROTO"),
        (changed(point="2 steps"), "point"),
        (changed(smoothed={"one": 1.2}), "smoothed"),
        (changed(smoothed={"1": 0.0}), "smoothed"),
        (changed(role="baseline"), "point: a baseline has none"),
        (changed(metrics={"a": {}}), "'a' is no level"),
        (changed(metrics={"01": {}}), "'01' is no level"),
        (changed(metrics={"1": {"output_tok_s": "fast"}}), "output_tok_s is 'fast'"),
        (changed(metrics={"1": {"output_tok_s": [1]}}), "output_tok_s is"),
        (changed(metrics={"1": {"output_tok_s": True}}), "output_tok_s is 'True'"),
        (changed(metrics={"1": {"output_tok_s": float("nan")}}), "output_tok_s is 'nan'"),
        (changed(launch_s=float("nan")), "launch_s: "),
        (changed(format=True), "format: "),
        (changed(metrics={"1": {"x": "huge"}}).replace('"huge"', "1e999"), "x is 'inf'"),
        (changed(metrics={"1": {"accept_rate_by_position": 0.5}}), "is no list"),
        (changed(metrics={"1": {"accept_rate_by_position": [0.5, None]}}), "is 'None'"),
        (changed(metrics={"1": {"by_kind": {"chat": 1}}}), "no object of objects"),
        (changed(metrics={"1": {"by_kind": {"chat": {"requests": "4"}}}}), "by_kind is '4'"),
        (changed(metrics={"1": {"by_length": {"0-511": {"e": -math.inf}}}}), "by_length is '-inf'"),
        (changed(metrics={"1": {"speedup": 1.1}}), "speedup has no speedup_low"),
        (changed(command={"argv": "python"}), "command: argv"),
        (changed(started="yesterday"), "started"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_broken_line_is_refused_at_its_number(run: Run, line: str, message: str):
    good = json.dumps(make_record(0).model_dump())
    run.trials_file.write_text(f"{good}\n{line}\n")
    with pytest.raises(UserError, match=message) as caught:
        run.ledger()
    assert caught.value.where == f"{run.trials_file}:2"


def test_a_second_specbench_cannot_write_the_run(run: Run):
    code = (
        "import sys; from pathlib import Path; from tuner.runs.run import Run\n"
        "from tuner.core.errors import UserError\n"
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
        Run.create(tmp_path / "file" / "runs", CRLF_SWEEP, make_settings())


@pytest.mark.parametrize("text", ["", "engine: 3\n", "name: [1]\nengine: {kind: simulated}\n"])
def test_a_sweep_file_edited_in_the_run_folder_is_refused(run: Run, text: str):
    run.sweep_file.write_text(text)
    with pytest.raises(UserError, match="Restore it"):
        run.sweep()


class TestResuming:
    """What is damaged is told before a server is launched, by file and line."""

    def refused(self, run: Run) -> str:
        with pytest.raises(UserError) as caught, run.locked():
            pytest.fail("the run was locked")
        return str(caught.value)

    def begun(self, run: Run, *levels: int) -> TrialRecord:
        """A run whose baseline has samples of these levels."""
        path = run.samples_file(0)
        windows = World(0, 4, 0.1, 0.1).windows(1)
        by_level = {n: [replace(each, concurrency=n) for each in windows] for n in levels}
        write_samples(path, by_level)
        baseline = make_record(0, role="baseline", samples=run.relative(path))
        with run.locked():
            run.append(baseline)
        return baseline

    def test_a_whole_run_can_go_on(self, run: Run):
        self.begun(run, 1, 8)
        with run.locked():
            run.append(make_record(1))
        with run.locked() as note:
            assert note is None

    @pytest.mark.parametrize(
        "foreign",
        [
            make_point_json(7),
            make_point_json(2, env={"NCCL_ALGO": "Ring"}),
            make_point_json(2, draft_tp=2),
            None,
        ],
    )
    def test_a_point_outside_the_space(self, run: Run, foreign):
        self.begun(run, 1, 8)
        with run.trials_file.open("a") as file:
            file.write(changed(point=foreign) + "\n")
        assert self.refused(run).startswith(f"{run.trials_file}:2: trial 1 has ")

    def test_a_baseline_without_samples(self, run: Run):
        run.trials_file.write_text(json.dumps(make_record(0, role="baseline").model_dump()) + "\n")
        assert self.refused(run).startswith(f"{run.trials_file}:1: the baseline has no samples")

    def test_a_baseline_whose_samples_lack_a_level(self, run: Run):
        self.begun(run, 1)
        assert "0000.jsonl.gz: " in self.refused(run)
        assert "none at concurrency 8" in self.refused(run)

    def test_samples_that_are_gone(self, run: Run):
        self.begun(run, 1, 8)
        run.samples_file(0).unlink()
        assert "No such file or directory, restore them" in self.refused(run)

    def test_a_sweep_file_that_is_gone(self, run: Run):
        self.begun(run, 1, 8)
        run.sweep_file.unlink()
        assert self.refused(Run.open(run.path)).startswith(
            f"{run.sweep_file}: No such file or directory"
        )


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"gpus": 2}', '{"gpus": ["H200"]}', '{"env": {"NCCL_PROTO": 1}}']
)
def test_machine_facts_that_are_none_are_refused(run: Run, text: str):
    run.machine_file.write_text(text)
    with pytest.raises(UserError, match=r"machine\.json: .*restore it"):
        run.machine()


FULL_DISK = """
import resource, sys
from pathlib import Path
from tests.factories import make_record
from tuner.core.errors import UserError
from tuner.runs.run import Run

run = Run.open(Path(sys.argv[1]))
with run.locked():
    run.append(make_record(0))
    size = run.trials_file.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
    try:
        run.append(make_record(1))
    except UserError as error:
        print(error)
    assert run.trials_file.stat().st_size == size, "half a line is left"
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    run.append(make_record(2))
"""


def test_a_full_disk_is_one_sentence_and_the_ledger_stays_whole(run: Run):
    """A line that does not fit must not cost the lines before it, nor the next ones."""
    words = [sys.executable, "-c", FULL_DISK, str(run.path)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert said == f"{run.trials_file}: File too large, free some space and resume the run\n"
    assert [each.trial for each in run.ledger().records] == [0, 2]
    assert run.ledger().note is None


def test_a_launch_id_whose_log_exists_is_not_taken_again(run: Run):
    """An orphan may still write that log, and the log tells how the cut-off launch ended."""
    for launch in (3, 4):
        run.log_file(launch).write_text("still writing")
    assert [run.free_launch(launch) for launch in (2, 3, 4, 5)] == [2, 5, 5, 5]


def test_settings_that_cannot_be_written_are_the_users_mistake(run: Run):
    run.settings_file.unlink()
    run.settings_file.mkdir()
    (run.settings_file / "x").touch()
    with pytest.raises(UserError, match="cannot be written"):
        run.extend_to(9)


@pytest.mark.parametrize(
    ("kind", "engines", "simulated"),
    [
        ("simulated", [], True),
        ("endpoint", ["endpoint", "simulated"], True),
        ("endpoint", ["endpoint"], False),
        ("sglang", ["sglang"], False),
        ("sglang", ["simulated"], True),
    ],
)
def test_a_run_is_simulated_where_its_sweep_or_a_server_says_so(
    run: Run, kind: str, engines: list[str], simulated: bool
):
    """A figure of the performance model must never be read as one of hardware."""
    sweep = run.sweep()
    engine = sweep.engine.model_copy(update={"kind": kind})
    sweep = sweep.model_copy(update={"engine": engine})
    records = [make_record(number, engine=name) for number, name in enumerate(engines)]
    assert is_simulated(records, sweep) is simulated
