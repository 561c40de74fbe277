"""The rounds over real processes, with a child that needs no torch."""

import json
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from tests.server import launching
from tuner.core.errors import EngineFailure, Failure, UserError
from tuner.server.all_reduce import Message, Setting
from tuner.sglang.nccl.benchmark import BenchmarkJob, run_job
from tuner.sglang.nccl.process_group import GroupOrder

FAKE = Path(__file__).with_name("fake_child.py")
UNSET = Setting()
LL = Setting((("NCCL_PROTO", "LL"),))
SIMPLE = Setting((("NCCL_PROTO", "Simple"),))
MESSAGES = (Message(64, 128, 1, ("draft",)), Message(256, 512, 4, ("verify",)))


def behaving(how: str) -> Setting:
    return Setting((("NCCL_FAKE", how),))


def job(*settings: Setting, **order: object) -> BenchmarkJob:
    given = GroupOrder(
        program=(sys.executable, str(FAKE)),
        world=2,
        device="cpu",
        sizes=tuple((each.elements, each.ranks) for each in MESSAGES),
        dtype="bfloat16",
        limit_s=20.0,
        unset=frozenset({"NCCL_PROTO", "NCCL_FAKE"}),
    )
    return BenchmarkJob(replace(given, **order), settings, MESSAGES, rounds=2, at_once=2)  # type: ignore[arg-type]


def test_every_setting_has_a_median_of_each_round() -> None:
    results = run_job(job(UNSET, LL, SIMPLE), lambda _: None)
    found = {each.setting: each.rounds for each in results.measured}
    assert found == {
        UNSET: ((10.0, 10.0), (10.0, 10.0)),
        LL: ((5.0, 5.0), (5.0, 5.0)),
        SIMPLE: ((20.0, 20.0), (20.0, 20.0)),
    }
    assert (results.backend, results.device, results.tp) == ("NCCL 9", "fake", 2)


def test_a_setting_is_what_nccl_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable left over from the shell would be measured as `unset`."""
    monkeypatch.setenv("NCCL_PROTO", "LL128")
    monkeypatch.setenv("NCCL_IB_DISABLE", "1")
    for name in ("NCCL_ALGO", "NCCL_NVLS_ENABLE"):
        monkeypatch.delenv(name, raising=False)
    dump = tmp_path / "dump"
    run_job(job(UNSET, LL, env={"FAKE_DUMP": str(dump)}), lambda _: None)
    seen = [json.loads(line) for line in dump.read_text().splitlines()]
    protocols = [each.get("NCCL_PROTO") for each in seen]
    assert sorted(protocols, key=str) == ["LL", "LL", None, None]
    assert all(each["NCCL_IB_DISABLE"] == "1" for each in seen)
    assert not any({"NCCL_ALGO", "NCCL_NVLS_ENABLE"} & set(each) for each in seen)


@pytest.mark.parametrize("how", ["hang", "hang-turn"])
def test_a_deadlock_is_a_hang_and_leaves_nothing(how: str) -> None:
    mark = uuid.uuid4().hex
    told: list[str] = []
    results = run_job(job(LL, behaving(how), limit_s=2.0, env={"TEST_MARK": mark}), told.append)
    hung = results.measured[1]
    assert hung.failure is Failure.HANG
    assert "no answer for 2 s" in (hung.message or "")
    assert results.measured[0].rounds == ((5.0, 5.0), (5.0, 5.0))
    assert launching.processes_with("TEST_MARK", mark) == []
    assert sum("HANG" in line for line in told) == 1  # it is not started again


def test_a_crash_has_its_last_line() -> None:
    results = run_job(job(UNSET, behaving("die")), lambda _: None)
    died = results.measured[1]
    assert died.failure is Failure.CRASH
    assert died.message == ("exit status 7, last line: ncclInternalError: Internal check failed")


def test_where_nothing_ran_that_is_the_answer() -> None:
    with pytest.raises(EngineFailure, match="CRASH: no setting could be measured: exit status 7"):
        run_job(job(behaving("die")), lambda _: None)


def test_an_interpreter_without_torch_is_refused_at_once() -> None:
    told: list[str] = []
    with pytest.raises(UserError, match="has no torch: give another --python"):
        run_job(job(UNSET, behaving("refuse")), told.append)
    assert told == ["round 1 of 2: 2 settings"]


def test_an_interpreter_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match="cannot run /nowhere/python"):
        run_job(job(UNSET, program=("/nowhere/python",)), lambda _: None)


# Enough of torch for a rank to wait in its first collective for ever.
TORCH = {
    "__init__.py": "def device(*a): return a\ndef set_num_threads(n): pass\n",
    "distributed.py": "import time\ndef init_process_group(*a, **k): time.sleep(300)\n",
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_specbench_ends_no_rank_is_left(tmp_path: Path, number: int) -> None:
    """A rank that is left over spins on its GPU until somebody finds it."""
    (tmp_path / "torch").mkdir()
    for name, text in TORCH.items():
        (tmp_path / "torch" / name).write_text(text)
    mark = uuid.uuid4().hex
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TEST_MARK": mark}
    words = ["--tp", "2", "--hidden", "8", "--tokens", "1", "--device", "cpu"]
    command = [sys.executable, "-m", "tuner", "comm", *words, "--python", sys.executable]
    specbench = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)

    def others() -> list[int]:
        found = launching.processes_with("TEST_MARK", mark)
        return [each.pid for each in found if each.pid != specbench.pid]

    launching.wait_for(lambda: len(others()) == 3)  # the leader and two ranks
    specbench.send_signal(number)
    specbench.communicate(timeout=30)
    assert specbench.returncode == (-number if number == signal.SIGKILL else 130)
    launching.wait_for(lambda: not others())
