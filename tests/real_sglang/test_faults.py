"""What goes wrong with real servers: told by its name, and no process left."""

import re
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import requests

from tests.real_sglang import build
from tests.real_sglang.serving import NEW, OLD, body, case, chain, launched, log_of, writers_to
from tests.real_sglang.sweeping import SPECBENCH, sweep_file
from tests.server import launching
from tuner.config.schema import EngineSpec, ServerSpec, TimeoutSpec
from tuner.core.errors import EngineFailure, Failure
from tuner.loadgen.client import Load, judge, run_window
from tuner.metrics.samples import Request
from tuner.runs.run import Run
from tuner.server import ports
from tuner.server.base import Server
from tuner.sglang.engine import SglangEngine


@pytest.mark.parametrize("whose", ["HTTP", "NCCL"])
def test_a_taken_port_is_told_and_not_waited_for(
    whose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.5.17 says that the address is in use and waits for ever: half an hour lost to a timeout.

    The port is taken between specbench's choice and the server's bind, after the model is loaded;
    that of the ranks before it is.
    """
    log = tmp_path / "server.log"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", ports.free_port()))
        taken.listen()
        given, usual = [taken.getsockname()[1]], ports.free_port
        if whose == "NCCL":
            given.append(usual(given))  # the server's own, which is chosen first
        monkeypatch.setattr(
            ports, "free_port", lambda but_not=(): given.pop() if given else usual(but_not)
        )
        with pytest.raises(EngineFailure) as failure:
            one = case(OLD)
            one.engine.launch(one.config(None), log, 0)
    assert failure.value.label is Failure.PORT_IN_USE
    assert re.search(r"\b98\b|EADDRINUSE", failure.value.message)
    assert writers_to(log) == []


def test_a_launch_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    """In whatever it hangs: nothing stays, and the last thing that it did is told."""
    one, log = case(OLD), tmp_path / "server.log"
    spec = EngineSpec(kind="sglang", python=str(build.interpreter(OLD)))
    engine = SglangEngine(spec, TimeoutSpec(launch=1.0), ServerSpec(flags=one.flags))
    with pytest.raises(EngineFailure, match=r"not ready after 1 s \(timeouts.launch\)") as failure:
        engine.launch(one.config(None), log, 0)
    assert failure.value.label is Failure.LAUNCH_TIMEOUT
    assert writers_to(log) == []


def test_weights_that_are_cut_off_are_told_as_that(tmp_path: Path) -> None:
    """Half a download: the point is not to blame, and no other one would load either."""
    one, cut = case(NEW), tmp_path / "cut"
    shutil.copytree(one.model.target, cut)
    (weights,) = cut.glob("*.safetensors")
    with weights.open("r+b") as file:
        file.truncate(weights.stat().st_size // 2)
    model, log = one.model.model_copy(update={"target": str(cut)}), tmp_path / "server.log"
    with pytest.raises(EngineFailure) as failure:
        one.engine.launch(replace(one.config(None), model=model), log, 0)
    assert failure.value.label is Failure.MODEL_LOAD
    assert writers_to(log) == []


def test_a_server_without_room_for_its_cache_is_out_of_memory(tmp_path: Path) -> None:
    """As such the search stays away from its like, and the user reads what to change."""
    one, log = case(OLD), tmp_path / "server.log"
    with pytest.raises(EngineFailure, match="mem-fraction-static") as failure:
        one.engine.launch(one.config(None, flags={"mem-fraction-static": 0.00001}), log, 0)
    assert failure.value.label is Failure.OOM
    assert writers_to(log) == []


@pytest.mark.parametrize(("release", "tp"), [(OLD, 1), (NEW, 2)])
def test_a_killed_scheduler_is_noticed(release: str, tp: int, tmp_path: Path) -> None:
    """Otherwise a server that the kernel's OOM killer hit would be measured until time runs out."""
    with launched(case(release, tp=tp), chain(2), tmp_path) as server:
        log = log_of(server)
        schedulers = [p for p in writers_to(log) if "scheduler" in " ".join(p.cmdline())]
        assert len(schedulers) == tp
        if release == OLD:
            check_a_hang(server, schedulers[-1])
        schedulers[-1].kill()
        with pytest.raises(EngineFailure) as failure:
            launching.wait_for(server.check_alive, limit_s=60)
        assert failure.value.label is Failure.CRASH
        assert failure.value.log_tail
        server.stop()
        assert writers_to(log) == []
        assert ports.is_free(launching.port_of(server.url))


def check_a_hang(server: Server, scheduler: psutil.Process) -> None:
    """A scheduler that stands still is a hang and no slow answer; here it goes on afterwards."""
    load = Load(concurrency=1, output_tokens=64, request_timeout_s=2.0)
    sent = [Request("hangs", "chat", input_ids=(5, 6, 7))]
    scheduler.suspend()
    try:
        window = run_window(server.url, sent, load)
        server.check_alive()
        with pytest.raises(EngineFailure, match=r"no new token came for 2 s") as failure:
            judge(window, len(sent))
    finally:
        scheduler.resume()
    assert failure.value.label is Failure.HANG


def test_stop_does_not_wait_for_an_answer(tmp_path: Path) -> None:
    """SGLang ends its answers first when it is asked to end, which can take minutes."""
    with launched(case(OLD), chain(1), tmp_path) as server:
        log = log_of(server)
        begun = threading.Event()

        def read() -> None:
            with suppress(requests.RequestException):
                request = body((5, 6, 7), 1900, stream=True)
                url = f"{server.url}/generate"
                with requests.post(url, json=request, stream=True, timeout=60) as reply:
                    for _ in reply.iter_lines():
                        begun.set()

        reader = threading.Thread(target=read)
        reader.start()
        assert begun.wait(30)
        assert len(writers_to(log)) >= 3
        server.stop()
        assert writers_to(log) == []
        assert ports.is_free(launching.port_of(server.url))
        reader.join(20)
        assert not reader.is_alive()


def test_a_sweep_that_is_ended_leaves_nothing_and_can_go_on(tmp_path: Path) -> None:
    """A batch system ends a job by SIGTERM, and a lost node by nothing: GPUs must not stay taken,
    nor results be lost. Killed while its server loads, ended while the next one generates."""
    path = sweep_file(tmp_path, NEW, "EAGLE3", {"num_steps": [2]})
    # One request that takes longer than everything else.
    text = path.read_text().replace("output_tokens: 32", "output_tokens: 1500")
    path.write_text(text)
    out = tmp_path / "runs"
    with going(tmp_path, str(path), "--out", str(out)) as sweep:
        first = launching.wait_for(lambda: next(out.glob("*/logs/*.log"), None), 60)
        launching.wait_for(lambda: "Load weight begin" in first.read_text(errors="replace"), 200)
        sweep.kill()
        sweep.wait()
    left = writers_to(first)
    assert len(left) >= 3
    (folder,) = out.iterdir()
    with going(tmp_path, "--resume", str(folder)) as sweep:
        log = folder / "logs" / "0001.log"
        launching.wait_for(
            lambda: log.exists() and "Decode batch" in log.read_text(errors="replace"), 200
        )
        assert writers_to(first) == [] and all(map(launching.is_gone, left))
        assert writers_to(log)
        sweep.send_signal(signal.SIGTERM)
        assert sweep.wait(60) == 130
    assert writers_to(log) == []
    said = (tmp_path / "said").read_text()
    assert re.search(r"ended \d+ processes that launch 0000 of a killed specbench had left", said)
    assert f"--resume {folder}" in said
    assert Run.open(folder).records() == ()


@contextmanager
def going(folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """`specbench sweep`, ended at the end whatever happens; what it says is in the file `said`."""
    with (folder / "said").open("w") as said:
        sweep = subprocess.Popen([*SPECBENCH, "sweep", *words], stdout=said, stderr=said)
    try:
        yield sweep
    finally:
        if sweep.poll() is None:
            sweep.kill()
            sweep.wait()
