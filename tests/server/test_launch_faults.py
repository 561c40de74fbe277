"""Every way in which a launch goes wrong ends in its label, with nothing left behind."""

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fault_table import LAUNCH_LIMIT_S, Row, rows
from tests.seals import left_behind
from tests.server import launching
from tests.server.launching import CHAIN, port_of, simulated
from tuner.config.point import Point
from tuner.config.schema import EngineSpec, FaultSpec, TimeoutSpec
from tuner.core.errors import EngineFailure, Failure, UserError
from tuner.server import lifecycle, ports
from tuner.server.lifecycle import Launch, LaunchedServer
from tuner.server.process import MARK
from tuner.sglang.dialect import SGLANG


@pytest.mark.parametrize("row", rows("starting", "too late"), ids=lambda row: row.id)
def test_a_fault_ends_in_its_label_with_nothing_left(row: Row, seal: str, tmp_path: Path) -> None:
    """Otherwise the search would learn the wrong thing, or the next launch find no memory."""
    limit = LAUNCH_LIMIT_S if row.when == "too late" else 60.0
    case = simulated(row.spec(), launch_s=limit, request_s=2.0)
    with pytest.raises(EngineFailure) as failure:
        case.engine.launch(case.config(), tmp_path / "server.log", 0)
    assert failure.value.label is row.label
    assert re.search(row.says, failure.value.message)
    assert "\n" not in failure.value.message
    assert failure.value.log_tail
    assert left_behind(seal) == []


@pytest.mark.parametrize("row", rows("stopping"), ids=lambda row: row.id)
def test_a_server_that_resists_is_ended_too(row: Row, seal: str, tmp_path: Path) -> None:
    """Otherwise the next launch would meet its memory."""
    case = simulated(row.spec())
    case.engine.launch(case.config(), tmp_path / "server.log", 0).stop()
    assert left_behind(seal) == []


def test_an_illegal_tree_is_told_with_the_bound(seal: str, tmp_path: Path) -> None:
    """Otherwise `selected index k out of range` is all that the user gets to read."""
    case = simulated()
    tree = Point(num_steps=2, eagle_topk=2, num_draft_tokens=32, draft_tp="target")
    with pytest.raises(EngineFailure) as failure:
        case.engine.launch(case.config(tree), tmp_path / "server.log", 0)
    assert failure.value.label is Failure.GRAPH_CAPTURE
    assert "1 + topk + (num_steps - 1) * topk^2" in failure.value.message


def test_faults_come_on_their_launches_only(seal: str, tmp_path: Path) -> None:
    """Otherwise a rehearsal of one failure would fail the whole sweep."""
    case = simulated(FaultSpec(kind="bad-args", launches=[1]))
    case.engine.launch(case.config(), tmp_path / "0.log", 0).stop()
    with pytest.raises(EngineFailure):
        case.engine.launch(case.config(), tmp_path / "1.log", 1)


def test_a_child_with_its_own_session_is_ended_too(seal: str, tmp_path: Path) -> None:
    """Otherwise it would keep its GPU memory for as long as the machine runs."""
    case = simulated(FaultSpec(kind="orphan-child"))
    server = case.engine.launch(case.config(), tmp_path / "server.log", 0)
    assert len(left_behind(seal)) == 2
    server.stop()
    assert left_behind(seal) == []


def test_an_orphan_of_a_dead_server_is_ended_too(seal: str, tmp_path: Path) -> None:
    """Reparented to init and in its own session, it is nobody's child any more."""
    case = simulated(FaultSpec(kind="orphan-child"))
    server = case.engine.launch(case.config(), tmp_path / "server.log", 0)
    os.kill(launching.family_of(port_of(server.url))[0].pid, signal.SIGKILL)
    with pytest.raises(EngineFailure, match="SIGKILL"):
        launching.wait_for(server.check_alive)
    assert len(left_behind(seal)) == 1
    server.stop()
    assert left_behind(seal) == []


SCRIPT = """
import sys
from dataclasses import dataclass
from pathlib import Path
from tests.server.launching import simulated
from tuner.config.schema import FaultSpec
case = simulated(*[FaultSpec(kind=kind) for kind in sys.argv[2:]])
try:
    with case.engine.launch(case.config(), Path(sys.argv[1]), 0):
        print("serving", flush=True)
        import time; time.sleep(60)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("phase", ["loading", "serving"])
def test_ctrl_c_leaves_nothing(phase: str, seal: str, tmp_path: Path) -> None:
    """Otherwise an interrupted sweep would block the GPUs; also of a child with its own session."""
    log = tmp_path / "server.log"
    fault = "hang-loading" if phase == "loading" else "orphan-child"
    script = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(log), fault], stdout=subprocess.PIPE, text=True
    )
    assert script.stdout is not None
    if phase == "serving":
        assert script.stdout.readline() == "serving\n"
    else:
        launching.wait_for(lambda: log.exists() and "Load weight begin" in log.read_text())
    script.send_signal(signal.SIGINT)
    script.send_signal(signal.SIGINT)
    assert script.wait(timeout=15) == 130
    script.stdout.close()
    assert left_behind(seal) == []


def test_another_server_on_the_port_is_neither_measured_nor_stopped(
    seal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a colleague's server would be benchmarked, or killed."""
    case = simulated()
    with case.engine.launch(case.config(), tmp_path / "theirs.log", 0) as theirs:
        monkeypatch.setattr(ports, "free_port", lambda but_not=(): port_of(theirs.url))
        with pytest.raises(EngineFailure) as failure:
            case.engine.launch(case.config(), tmp_path / "ours.log", 1)
        assert failure.value.label in {Failure.WRONG_SERVER, Failure.PORT_IN_USE}
        theirs.check_alive()
        theirs.flush_cache()


def test_a_user_chosen_model_name_does_not_break_the_identity_check(
    seal: str, tmp_path: Path
) -> None:
    """Otherwise every launch with served-model-name would be refused as a stranger's."""
    case = simulated()
    config = case.config(flags={"served-model-name": "mine", "random-seed": 7})
    with case.engine.launch(config, tmp_path / "server.log", 0) as server:
        assert server.info["served_model_name"] == "mine"


def test_a_missing_prefix_is_the_users_mistake(tmp_path: Path) -> None:
    """Otherwise a typo in engine.command ends in a traceback."""
    from tuner.simulator.engine import SimulatedEngine

    spec = EngineSpec(kind="simulated", command=["no-such-program-anywhere"])
    case = simulated()
    engine = SimulatedEngine(spec, TimeoutSpec())
    with pytest.raises(UserError, match=r"engine\.command"):
        engine.launch(case.config(), tmp_path / "server.log", 0)


def test_a_prefix_is_put_in_front_and_variables_pass_through_it(seal: str, tmp_path: Path) -> None:
    """Otherwise numactl or nice would lose the point's NCCL settings."""
    from tuner.simulator.engine import SimulatedEngine

    case = simulated()
    spec = EngineSpec(kind="simulated", command=["nice", "-n", "1"])
    engine = SimulatedEngine(spec, TimeoutSpec(launch=60.0))
    config = case.config(CHAIN, env={"NCCL_PROTO": "LL"})
    assert engine.command(config).argv[:3] == ("nice", "-n", "1")
    with engine.launch(config, tmp_path / "server.log", 0) as server:
        process = launching.family_of(port_of(server.url))[0]
        assert process.environ()["NCCL_PROTO"] == "LL"
        assert process.environ()[MARK]
        assert process.nice() == os.nice(0) + 1


def test_two_gpus_get_a_port_for_nccl(seal: str, tmp_path: Path) -> None:
    """Otherwise two runs on one machine would meet on one NCCL port."""
    case = simulated(tp=2)
    with case.engine.launch(case.config(), tmp_path / "server.log", 0) as server:
        words = launching.family_of(port_of(server.url))[0].cmdline()
    assert int(words[words.index("--nccl-port") + 1]) != port_of(server.url)


def test_launch_time_of_the_simulated_engine_is_model_time(seal: str, tmp_path: Path) -> None:
    """Otherwise plans and estimates would be made from a start-up a thousand times too short."""
    case = simulated()
    with case.engine.launch(case.config(), tmp_path / "server.log", 0) as server:
        assert server.launch_s == server.info["simulated"]["launch_s"]


def test_memory_is_awaited_only_where_something_follows(
    seal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C nothing follows, and the user should not wait for memory to come back."""
    waits: list[float] = []

    def wait(before: object, environment: object, limit_s: float) -> bool:
        waits.append(limit_s)
        return True

    monkeypatch.setattr(lifecycle.gpu, "wait_until_back", wait)
    case = simulated()
    case.engine.launch(case.config(), tmp_path / "0.log", 0).stop()
    assert len(waits) == 1
    with pytest.raises(KeyboardInterrupt), case.engine.launch(case.config(), tmp_path / "1.log", 1):
        raise KeyboardInterrupt
    assert len(waits) == 1


def test_a_server_whose_scheduler_failed_counts_as_dead(seal: str, tmp_path: Path) -> None:
    """Between the exception and the end requests fail; the cause must be told instead of them."""
    case = simulated()
    log = tmp_path / "server.log"
    with case.engine.launch(case.config(), log, 0) as server:
        server.check_alive()
        with log.open("a") as more:
            more.write(
                "Scheduler hit an exception: Traceback (most recent call last):\n"
                '  File "a/scheduler.py", line 1, in event_loop_overlap\n'
                "torch.OutOfMemoryError: CUDA out of memory.\n\n"
                "Received sigquit from a child process. It usually means the child failed.\n"
            )
        with pytest.raises(EngineFailure, match=r"OOM: torch\.OutOfMemoryError"):
            server.check_alive()


@dataclass
class PlayedStart:
    """A server that is up after so many seconds of a clock of its own."""

    ready_s: float
    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def is_healthy(self, limit_s: float) -> bool:
        self.now += min(max(limit_s, 0.0), 0.3)
        return self.now >= self.ready_s


@pytest.mark.parametrize(("ready_s", "is_up"), [(599.9, True), (600.6, False), (1e9, False)])
def test_a_start_is_waited_for_until_its_limit_and_no_longer(
    ready_s: float, is_up: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is just in time is a server; a minute given away each launch is an hour a night."""
    log, start = tmp_path / "server.log", PlayedStart(ready_s)
    log.write_text("Load weight begin.\n")
    server = LaunchedServer(
        Launch(("x",), SGLANG, simulated().config(), log, TimeoutSpec(launch=600.0))
    )
    monkeypatch.setattr(lifecycle, "time", start)
    monkeypatch.setattr(server._api, "is_healthy", start.is_healthy)
    try:
        if is_up:
            server._wait_until_healthy(600.0)
        else:
            words = r"not ready after 600 s \(timeouts.launch\), last line: Load weight begin"
            with pytest.raises(EngineFailure, match=words) as failure:
                server._wait_until_healthy(600.0)
            assert failure.value.label is Failure.LAUNCH_TIMEOUT
    finally:
        server.stop()
    assert min(ready_s, 600.0) <= start.now < 601.0
