"""What lies in the place of a run folder's file and is none: a pipe, a device, a loop of links.

A run folder may be a stranger's, unpacked from anywhere. A pipe would be waited for without end,
/dev/zero read until the memory is full.
"""

import ast
import os
import re
import signal
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.factories import SIMULATED, Trial, make_point, make_run
from tuner.compare.external.reader import read_foreign
from tuner.core.errors import UserError
from tuner.core.files import opened, read_bytes
from tuner.runs.raw_samples import recorded_samples
from tuner.runs.run import Run
from tuner.runs.settings import read_fleet
from tuner.runs.status import read_ended
from tuner.server.pid_file import SUFFIX, is_another_hosts, processes_left
from tuner.sglang.nccl.selection import read_screening

READERS: dict[str, Callable[[Run], Any]] = {
    "run.json": lambda run: Run.open(run.path),
    "sweep.yaml": lambda run: Run.open(run.path).sweep(),
    "machine.json": Run.machine,
    "models.json": Run.configs,
    "trials.jsonl": Run.records,
    "comm.json": lambda run: read_screening(run.comm_file),
    "fleet.json": lambda run: read_fleet(run.fleet_file),
    "conversations.jsonl": lambda run: run.conversations_hash,
    "samples/0000.jsonl.gz": lambda run: recorded_samples(run, run.records()[0]),
    "bench.jsonl": lambda run: read_foreign(run.path / "bench.jsonl"),
}
PLACES: dict[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "a loop": lambda path: path.symlink_to(path.name),
}


@pytest.fixture(autouse=True)
def soon() -> Iterator[None]:
    """A reader that waits fails here and not after minutes."""

    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError("it is waited for")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path, [Trial(None, 90.0), Trial(make_point(2), 99.0)], sweep=SIMULATED)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        each
        for each in product(READERS, PLACES)
        # Samples that are not on disk are none; a folder of other benchmarks' files may be one.
        if each not in (("samples/0000.jsonl.gz", "a loop"), ("bench.jsonl", "a folder"))
    ],
)
def test_what_is_no_file_is_refused_in_one_line(run: Run, name: str, place: str) -> None:
    path = run.path / name
    path.unlink(missing_ok=True)
    PLACES[place](path)
    with pytest.raises(UserError) as refused:
        READERS[name](run)
    assert str(refused.value).isprintable()
    assert path.name in str(refused.value) or name == "run.json"


@pytest.mark.parametrize("place", PLACES)
def test_what_a_run_says_of_itself_is_then_not_known(run: Run, place: str) -> None:
    """These files are of use and none of them is needed."""
    footprint = run.logs / f"0001{SUFFIX}"
    for path in (run.ended_file, footprint):
        path.unlink(missing_ok=True)
        PLACES[place](path)
    assert read_ended(run) is None
    assert processes_left(footprint) == []
    assert not is_another_hosts(footprint)


def test_a_file_is_read_and_its_descriptor_closed(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    (tmp_path / "a").write_bytes(b"x")
    os.mkfifo(tmp_path / "b")
    assert read_bytes(tmp_path / "a") == b"x"
    for _ in range(3):
        with pytest.raises(OSError, match="a pipe or a device and no file"):
            opened(tmp_path / "b")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


OWN = {
    "tuner/runs/machine.py": 1,  # /proc/cpuinfo
    "tuner/report/report.py": 1,  # a figure that was drawn just now
    "tuner/compare/render.py": 1,  # the same
}
"""Reads of what is no file of a run folder."""


def test_every_file_of_a_run_folder_is_read_by_the_same_door() -> None:
    """`Path.read_bytes` waits for a pipe; the next reader that is added must not."""
    found = {}
    for room in (
        "runs",
        "metrics",
        "loadgen",
        "compare",
        "report",
        "runner",
        "analysis",
        "sglang/nccl/selection.py",
    ):
        place = Path("tuner") / room
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            calls = [
                node
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("read_bytes", "read_text")
            ]
            if calls:
                found[path.as_posix()] = len(calls)
    assert found == OWN


@pytest.mark.parametrize("number", ["true", "0", "-1", "1.5", '"1"', "2", "null"])
def test_a_format_that_is_none_is_refused(run: Run, number: str) -> None:
    """Otherwise a file of another meaning is read as if it had this one's."""
    for path in (run.trials_file, run.settings_file):
        text = path.read_text()
        path.write_text(text.replace('"format": 1', f'"format": {number}', 1))
        with pytest.raises(UserError, match=re.escape(path.name)):
            Run.open(run.path).records()
        path.write_text(text)
