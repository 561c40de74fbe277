"""What goes wrong with real servers: told by its name, and no process left."""

import signal
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest
import requests

from tests.engine import launching
from tests.sglang.serving import NEW, OLD, body, case, chain, launched, log_of, writers_to
from tests.sglang.sweeping import SPECBENCH, sweep_file
from tuner.engine import ports
from tuner.errors import EngineFailure, Failure
from tuner.ledger.run import Run


def test_a_taken_port_is_told_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.5.17 says that the address is in use and waits for ever: half an hour lost to a timeout.

    The port is taken between specbench's choice and the server's bind, after the model is loaded.
    """
    log = tmp_path / "server.log"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", ports.free_port()))
        taken.listen()
        given, usual = [taken.getsockname()[1]], ports.free_port
        monkeypatch.setattr(
            ports, "free_port", lambda but_not=(): given.pop() if given else usual(but_not)
        )
        with pytest.raises(EngineFailure) as failure:
            one = case(OLD)
            one.engine.launch(one.config(None), log, 0)
    assert failure.value.label is Failure.PORT_IN_USE
    assert "98" in failure.value.message
    assert writers_to(log) == []


@pytest.mark.parametrize(("release", "tp"), [(OLD, 1), (NEW, 2)])
def test_a_killed_scheduler_is_noticed(release: str, tp: int, tmp_path: Path) -> None:
    """Otherwise a server that the kernel's OOM killer hit would be measured until time runs out."""
    with launched(case(release, tp=tp), chain(2), tmp_path) as server:
        log = log_of(server)
        schedulers = [p for p in writers_to(log) if "scheduler" in " ".join(p.cmdline())]
        assert len(schedulers) == tp
        schedulers[-1].kill()
        with pytest.raises(EngineFailure) as failure:
            launching.wait_for(server.check_alive, limit_s=60)
        assert failure.value.label is Failure.CRASH
        assert failure.value.log_tail
        server.stop()
        assert writers_to(log) == []
        assert ports.is_free(launching.port_of(server.url))


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


def test_a_sweep_that_is_ended_while_generating_leaves_nothing_and_can_go_on(
    tmp_path: Path,
) -> None:
    """A batch system ends a job by SIGTERM: GPUs must not stay taken, nor results be lost."""
    path = sweep_file(tmp_path, NEW, "EAGLE3", {"num_steps": [2]})
    # One request that takes longer than everything else.
    text = path.read_text().replace("output_tokens: 32", "output_tokens: 1500")
    path.write_text(text)
    out = tmp_path / "runs"
    with (tmp_path / "stderr").open("w") as stderr:
        sweep = subprocess.Popen(
            [*SPECBENCH, "sweep", str(path), "--out", str(out)],
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
    try:
        log = launching.wait_for(lambda: next(out.glob("*/logs/*.log"), None), 60)
        launching.wait_for(lambda: "Decode batch" in log.read_text(errors="replace"), 200)
        assert writers_to(log)
        sweep.send_signal(signal.SIGTERM)
        assert sweep.wait(60) == 130
    finally:
        if sweep.poll() is None:
            sweep.kill()
            sweep.wait()
    assert writers_to(log) == []
    assert "--resume" in (tmp_path / "stderr").read_text()
    (folder,) = out.iterdir()
    assert Run.open(folder).records() == ()
