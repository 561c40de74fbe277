"""Two specbench on one GPU measure each other: the second one is told, and does not begin."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.server.fake_nvml import FakeNvml
from tests.server.launching import wait_for
from tuner.cli.commands import specbench
from tuner.config.loader import load_sweep
from tuner.config.schema import Sweep
from tuner.core.errors import UserError
from tuner.preflight.doctor import find_locks
from tuner.runs.gpu_lock import FOLDER_VARIABLE, GpuClaims, claimed, gpus_used, holders
from tuner.server import gpu

PLAYED = Path("tests/played_gpus").resolve()
SWEEP = """
name: two
engine: {kind: sglang, python: PYTHON}
model: {target: any/target, draft: any/draft, algorithm: EAGLE3, tp: TP}
server: {flags: {FLAGS}}
space: {SPACE}
workload: {prompts: "builtin:chat", requests: 2, output_tokens: 8}
measure: {warmup_requests: 0, repeats: 1}
search: {trials: 1, stages: []}
baseline: {launches: 1}
"""


def text(flags: str = "", space: str = "num_steps: [2]", tp: int = 1) -> str:
    words = {"PYTHON": sys.executable, "TP": str(tp), "FLAGS": flags, "SPACE": space}
    found = SWEEP
    for name, word in words.items():
        found = found.replace(name, word)
    return found


class Machine:
    """Two played GPUs, and specbench on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "two.yaml").write_text(text())
        self.environment = {
            **os.environ,
            "PYTHONPATH": f"{PLAYED}:{Path.cwd()}",
            "PLAYED_GPUS": str(folder),
            FOLDER_VARIABLE: str(folder / "locks"),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    def sweep(self, *words: str, gpus: str = "0", slow: bool = False) -> subprocess.Popen[str]:
        if slow:
            waits = text().replace("sglang, python", "sglang, command: [env], python")
            waits = waits.replace("output_tokens: 8", "output_tokens: 4000")
            (self.folder / "slow.yaml").write_text(waits)
        file = str(self.folder / ("slow.yaml" if slow else "two.yaml"))
        out = str(self.folder / "out")
        command = [sys.executable, "-m", "tuner", "sweep", file, "--out", out, *words]
        environment = {**self.environment, "CUDA_VISIBLE_DEVICES": gpus}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)

    def holders(self) -> str:
        """What a newcomer is told, of the sweep file and GPU 0."""
        code = (
            "import os, sys; from pathlib import Path; from tuner.runs.gpu_lock import holders;"
            "from tuner.config.loader import load_sweep;"
            "print(holders(load_sweep(Path(sys.argv[1])).sweep, os.environ))"
        )
        words = [sys.executable, "-c", code, str(self.folder / "two.yaml")]
        environment = {**self.environment, "CUDA_VISIBLE_DEVICES": "0"}
        return subprocess.run(
            words, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    @property
    def servers(self) -> list[int]:
        pids = (int(file.stem) for file in self.folder.glob("*.server"))
        return [pid for pid in pids if Path(f"/proc/{pid}").exists()]

    @property
    def runs(self) -> list[Path]:
        return sorted((self.folder / "out").glob("*"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_second_run_on_a_gpu_is_refused_until_the_first_has_ended(machine: Machine) -> None:
    """Both nights would be lost: each measures the other's load, and runs out of memory by it."""
    first = machine.sweep(slow=True)
    try:
        wait_for(lambda: len(machine.servers) == 1, 60)
        (run,) = machine.runs
        out, err = machine.sweep().communicate(timeout=100)
        assert f"GPU 0 is used by the specbench run {run} (process {first.pid})" in err
        assert "--share-gpus" in err
        assert machine.runs == [run], "no folder of a run that did not begin"

        shared = machine.sweep("--share-gpus")
        out, err = shared.communicate(timeout=100)
        assert shared.returncode == 0, err
        assert f"the specbench run {run} (process {first.pid}), which is measured along" in out
        said = f"GPU 0: 61 of 100 GiB in use by others (process {machine.servers[0]})"
        assert f"{said}, before the first launch" in out
        (own,) = set(machine.runs) - {run}
        lines = [json.loads(line) for line in (own / "trials.jsonl").read_text().splitlines()]
        assert all(said in str(line["checks"]) for line in lines), "beside each figure"
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    assert machine.holders() == "[]", "the kernel has ended its lock"


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeNvml]:
    fake = FakeNvml(4)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    yield fake


def sweep_of(folder: Path, *parts: str, tp: int = 1) -> Sweep:
    file = folder / "s.yaml"
    file.write_text(text(*parts, tp=tp))
    return load_sweep(file).sweep


@pytest.mark.parametrize(
    ("flags", "space", "tp", "visible", "used"),
    [
        ("", "num_steps: [2]", 2, None, ["0", "1"]),
        ("", "num_steps: [2]", 2, "3,1,0", ["3", "1"]),
        ("base-gpu-id: 2", "num_steps: [2]", 2, None, ["2", "3"]),
        ("gpu-id-step: 2", "num_steps: [2]", 2, None, ["0", "2"]),
        ("pp-size: 2", "num_steps: [2]", 2, None, ["0", "1", "2", "3"]),
        ("", "num_steps: [2], flags: {base-gpu-id: [0, 2]}", 1, None, ["0", "1", "2", "3"]),
        ("", "num_steps: [2], env: {CUDA_VISIBLE_DEVICES: ['1', '2']}", 1, "3", list("0123")),
        ("device: cpu", "num_steps: [2]", 1, None, []),
    ],
)
def test_a_run_takes_the_gpus_of_its_servers_and_no_others(
    nvml: FakeNvml,
    tmp_path: Path,
    flags: str,
    space: str,
    tp: int,
    visible: str | None,
    used: list[str],
) -> None:
    """Else two runs on four GPUs, two each, would wait for each other all night."""
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    sweep = sweep_of(tmp_path, flags, space, tp=tp)
    assert list(gpus_used(sweep, environment)) == used


def held(
    sweep: Sweep, environment: dict[str, str], *, share: bool
) -> AbstractContextManager[GpuClaims]:
    return claimed(gpus_used(sweep, environment), environment, share=share)


def test_locks_are_let_go_and_name_their_holder(nvml: FakeNvml, tmp_path: Path) -> None:
    sweep, locks = sweep_of(tmp_path), {FOLDER_VARIABLE: str(tmp_path / "locks")}
    with held(sweep, locks, share=False) as first:
        assert holders(sweep, locks) == ["GPU 0 is used by another specbench run"]
        first.tell(tmp_path)
        named = f"the specbench run {tmp_path} (process {os.getpid()})"
        with pytest.raises(UserError, match="two runs on one GPU") as refusal:
            held(sweep, locks, share=False).__enter__()
        assert named in str(refusal.value)
        with held(sweep, locks, share=True) as second:
            assert named in second.notes[0]
        assert holders(sweep, locks) == [f"GPU 0 is used by {named}"]
        with held(sweep, {**locks, "CUDA_VISIBLE_DEVICES": "1"}, share=False) as beside:
            assert beside.notes == ()
    with held(sweep, locks, share=False) as third:
        assert third.notes == ()


@pytest.mark.parametrize("by_hand", [True, False])
def test_communication_is_not_timed_beside_a_run(
    nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_hand: bool
) -> None:
    """Else both the run's tok/s and the settings' microseconds are each other's."""
    sweep, locks = sweep_of(tmp_path), {FOLDER_VARIABLE: str(tmp_path / "locks")}
    monkeypatch.setenv(FOLDER_VARIABLE, locks[FOLDER_VARIABLE])
    words = ["--tp", "2", "--hidden", "64", "--tokens", "1"]
    file = str(tmp_path / "s.yaml")
    with held(sweep, locks, share=False):
        done = CliRunner().invoke(specbench, ["comm", *(words if by_hand else [file])])
    assert isinstance(done.exception, UserError)
    assert "GPU 0 is used by" in str(done.exception)


def test_a_folder_of_locks_that_is_somebody_else_s_holds_up_nobody(
    nvml: FakeNvml, tmp_path: Path
) -> None:
    """Anybody may make /tmp/specbench-1000 first: no link is followed, no file of theirs opened."""
    sweep, own = sweep_of(tmp_path), tmp_path / "own"
    own.mkdir()
    for number, make in enumerate(
        (
            lambda at: at.symlink_to(own),
            lambda at: at.write_text(""),
            lambda at: (at.mkdir(), at.chmod(0o777)),
        )
    ):
        place = tmp_path / f"locks{number}"
        make(place)
        with held(sweep, {FOLDER_VARIABLE: str(place)}, share=False) as claims:
            assert "is no folder of this user's alone" in claims.notes[0]
    assert list(own.iterdir()) == []
    taken = tmp_path / "locks"
    taken.mkdir(mode=0o700)
    (taken / nvml.nvmlDeviceGetUUID(0)).symlink_to(own / "file")
    with held(sweep, {FOLDER_VARIABLE: str(taken)}, share=False) as claims:
        assert "not known" in claims.notes[0]
    assert list(own.iterdir()) == []


def test_a_lock_that_may_not_be_opened_ends_nothing_and_is_said(
    nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left by root in a container with the same /tmp: a night's run began with a traceback."""
    sweep, locks = sweep_of(tmp_path), {FOLDER_VARIABLE: str(tmp_path / "locks")}
    with held(sweep, locks, share=False) as claims:
        assert claims.notes == ()
        assert [each.level for each in find_locks(sweep, locks)] == ["stop"]
    (lock,) = (tmp_path / "locks").iterdir()
    really = os.open

    def closed(path: object, *rest: int) -> int:
        if path == lock:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return really(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("os.open", closed)
    said = (
        f"whether another specbench uses these GPUs is not known: {lock}: Permission denied; "
        f"remove it, or name a folder of your own as {FOLDER_VARIABLE}"
    )
    with held(sweep, locks, share=False) as claims:
        assert claims.notes == (said,)
    (found,) = find_locks(sweep, locks)
    assert found.level == "doubt" and f"{found.message}; {found.todo}" == said


def test_whoever_holds_memory_is_named_by_process(nvml: FakeNvml) -> None:
    """`nvidia-smi` says so too, in the morning, when they have ended."""
    nvml.used[1], nvml.pids[1] = 71 * 2**30, [12, 7]
    assert gpu.gpu_in_use({}) == ["GPU 1: 71 of 140 GiB in use by others (processes 7, 12)"]
    nvml.pids[1] = list(range(20))
    assert gpu.gpu_in_use({})[0].endswith("(processes 0, 1, 2, 3, 4, 5, 6, 7 and 12 more)")
