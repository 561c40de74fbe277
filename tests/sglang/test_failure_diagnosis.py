"""Why a server ended, read from logs in the shape that SGLang writes them."""

import pytest

from tuner.core.errors import Failure
from tuner.server.log_file import clean_lines, log_tail
from tuner.sglang.failure_diagnosis import cause_of_death, has_port_conflict

STAMP = "[2026-01-02 03:04:05 TP0] "
SIGQUIT = "[2026-01-02 03:04:09] Received sigquit from a child process. It usually means trouble.\n"
LOADED = f"{STAMP}Load weight begin. avail mem=90 GB\n{STAMP}Load weight end. elapsed=1 s\n"


def scheduler_died(*frames: tuple[str, str], error: str, before: str = LOADED) -> str:
    """A log whose scheduler raised `error` under these (file, function) frames."""
    lines = "".join(
        f'  File "site-packages/sglang/srt/{file}", line 7, in {function}\n    call()\n    ^^^^^^\n'
        for file, function in (("managers/scheduler.py", "run_scheduler_process"), *frames)
    )
    trace = f"Scheduler hit an exception: Traceback (most recent call last):\n{lines}{error}\n\n"
    return f"{before}{STAMP}{trace}{SIGQUIT}"


INIT = ("managers/scheduler.py", "__init__")


@pytest.mark.parametrize(
    ("status", "log", "label", "says"),
    [
        pytest.param(
            2,
            "usage: launch_server.py [-h] --model-path M\n"
            "launch_server.py: error: argument --tp-size: invalid int value: 'x'\n",
            Failure.BAD_ARGS,
            "invalid int value: 'x'",
            id="argparse",
        ),
        pytest.param(
            1,
            'Traceback (most recent call last):\n  File "a/sglang/srt/server_args.py", line 3, in '
            "__post_init__\n    raise ValueError(text)\nValueError: chunks must fit pages\n",
            Failure.BAD_ARGS,
            "ValueError: chunks must fit pages",
            id="configuration checked before loading",
        ),
        pytest.param(
            -9,
            scheduler_died(
                INIT,
                ("layers/attention/some_backend.py", "__init__"),
                error="ValueError: topk > 1 is not supported by this backend",
            ),
            Failure.BAD_ARGS,
            "topk > 1 is not supported",
            id="configuration checked after loading",
        ),
        pytest.param(
            -9,
            scheduler_died(
                INIT,
                ("speculative/worker.py", "_capture_cuda_graphs"),
                error="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            ),
            Failure.OOM,
            "CUDA out of memory. Tried to allocate 2.00 GiB.",
            id="memory wins over capture",
        ),
        pytest.param(
            -9,
            scheduler_died(
                INIT,
                error="RuntimeError: Not enough memory. Please try to increase "
                "--mem-fraction-static.",
            ),
            Failure.OOM,
            "--mem-fraction-static",
            id="no room for the cache",
        ),
        pytest.param(
            -9,
            scheduler_died(
                INIT,
                ("mem_cache/kv_cache_configurator.py", "_profile_available_bytes"),
                error="ValueError: Loaded weights leave no GPU memory for the KV cache under "
                "--mem-fraction-static=0.5. Raise --mem-fraction-static above 0.7.",
            ),
            Failure.OOM,
            "Raise --mem-fraction-static above 0.7",
            id="no room for the cache, as 0.5.17 says it",
        ),
        pytest.param(
            -9,
            scheduler_died(
                INIT,
                error="RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) "
                "state cache. Try: (1) reduce --max-running-requests, (2) increase "
                "--mem-fraction-static",
            ),
            Failure.OOM,
            "mamba",
            id="no room for states",
        ),
        pytest.param(
            -9,
            scheduler_died(
                ("managers/scheduler.py", "event_loop_overlap"),
                error="RuntimeError: Out of memory. Try to lower your batch size.\n"
                "Try to allocate 64 tokens.",
            ),
            Failure.OOM,
            "Try to lower your batch size",
            id="no room under load",
        ),
        pytest.param(
            -9,
            scheduler_died(
                ("managers/scheduler.py", "event_loop_overlap"),
                error="AssertionError: lost a token",
                before=f"{STAMP}KV cache pool is full, increase --mem-fraction-static\n",
            ),
            Failure.CRASH,
            "lost a token",
            id="a warning of memory is not the cause",
        ),
        pytest.param(
            -9,
            scheduler_died(
                INIT,
                ("speculative/worker.py", "init_cuda_graphs"),
                error="ModuleNotFoundError: No module named 'some_kernel'",
            ),
            Failure.GRAPH_CAPTURE,
            "No module named 'some_kernel'",
            id="exception on the way through capture",
        ),
        pytest.param(
            -9,
            scheduler_died(
                INIT,
                error="Exception: Capture cuda graph failed: CUDA error: invalid argument\n"
                "if it is an OOM problem, set --mem-fraction-static to a smaller value",
            ),
            Failure.GRAPH_CAPTURE,
            "invalid argument",
            id="capture, whose advice speaks of memory",
        ),
        pytest.param(
            -9,
            scheduler_died(INIT, error="RuntimeError: selected index k out of range"),
            Failure.GRAPH_CAPTURE,
            "num_draft_tokens",
            id="illegal tree",
        ),
        pytest.param(
            1,
            'Traceback (most recent call last):\n  File "x/sglang/srt/server_args.py", line 3, in '
            "__post_init__\n    get()\nOSError: nobody/nothing is not a local folder and is not a "
            "valid model identifier\n",
            Failure.MODEL_LOAD,
            "nobody/nothing",
            id="no such model",
        ),
        pytest.param(
            -9,
            scheduler_died(
                INIT,
                ("model_executor/model_runner.py", "load_model"),
                error="RuntimeError: Cannot find any model weights with `/models/x`",
            ),
            Failure.MODEL_LOAD,
            "/models/x",
            id="no weights",
        ),
        pytest.param(
            -9,
            scheduler_died(
                INIT, error="RuntimeError: shard 3", before=f"{STAMP}Load weight begin.\n"
            ),
            Failure.MODEL_LOAD,
            "shard 3",
            id="while loading",
        ),
        pytest.param(
            None,
            f"{LOADED}ERROR:    [Errno 98] error while attempting to bind on address "
            "('127.0.0.1', 30000): address already in use\n",
            Failure.PORT_IN_USE,
            "30000",
            id="port taken",
        ),
        pytest.param(
            -9,
            scheduler_died(
                ("managers/scheduler.py", "event_loop_overlap"),
                error="AssertionError: lost a token",
            ),
            Failure.CRASH,
            "lost a token",
            id="while serving",
        ),
        pytest.param(-11, LOADED, Failure.CRASH, "SIGSEGV", id="signal"),
        pytest.param(137, LOADED, Failure.CRASH, "SIGKILL", id="signal through a prefix"),
        pytest.param(0, "", Failure.CRASH, "exit status 0", id="empty log"),
        pytest.param(255, "ssh: no route", Failure.CRASH, "ssh: no route", id="prefix failed"),
    ],
)
def test_the_cause_is_named_in_one_line(
    status: int | None, log: str, label: Failure, says: str
) -> None:
    """Otherwise the sampler learns from the wrong label and the user reads a wrong reason."""
    found, message = cause_of_death(status, log)
    assert found is label
    assert says in message
    assert "\n" not in message
    assert "2026-01-02" not in message


def test_the_noise_of_dying_is_not_the_cause() -> None:
    """Cancelled tasks come after the real exception and would be told instead of it."""
    log = scheduler_died(
        ("managers/scheduler.py", "event_loop_overlap"), error="RuntimeError: NCCL error: ring"
    )
    noise = "Traceback (most recent call last):\nasyncio.exceptions.CancelledError\n"
    noise += 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nOSError: late\n'
    assert cause_of_death(-9, log + noise) == (Failure.CRASH, "RuntimeError: NCCL error: ring")


def test_a_bare_exception_is_told_with_its_place() -> None:
    """`AssertionError` alone says nothing."""
    log = (
        'Traceback (most recent call last):\n  File "/x/worker.py", line 7, in build\n'
        "    assert topk == 1\n           ^^^^^^^^^\nAssertionError\n"
    )
    assert cause_of_death(1, log)[1] == "AssertionError: assert topk == 1 (worker.py, build)"


def test_progress_bars_and_colours_are_not_lines() -> None:
    """Otherwise the tail of a log is one redrawn bar."""
    log = "\x1b[33mwarm\x1b[0m\nCapturing: 0%\rCapturing: 50%\rCapturing: 100%\nready\r\n"
    assert clean_lines(log) == ["warm", "Capturing: 100%", "ready", ""]
    assert log_tail(log, 2) == "Capturing: 100%\nready"


def test_only_the_servers_own_port_stops_the_waiting() -> None:
    """A library that probes ports and goes on must not end a launch."""
    assert has_port_conflict("ERROR: [Errno 98] error while attempting to bind")
    assert not has_port_conflict("port 29500 is in use, trying another")
