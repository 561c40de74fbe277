"""What is sent before a level is measured.

On an H200 the first window of 64 streams, warmed up by 4 requests, was half as fast as the second,
or a tenth: kernels were compiled in it for the batch that it was the first to have. And what is
sent again, since specbench stood still meanwhile.
"""

from pathlib import Path

import pytest

from tests.sweeps import tiny_sweep
from tuner.config.schema import Sweep
from tuner.execution import launch
from tuner.execution.launch import LaunchContext, warm_up
from tuner.loadgen.auth import NO_KEYS
from tuner.loadgen.client import GENERATE, Load
from tuner.metrics.samples import Request, Window


def sweep_of(folder: Path, asked: int, **load: float) -> Sweep:
    sweep = tiny_sweep(folder).sweep
    measure = sweep.measure.model_copy(update={"warmup_requests": asked})
    workload = sweep.workload.model_copy(update=load)
    return sweep.model_copy(update={"measure": measure, "workload": workload})


def prompts(count: int, turns: int = 1) -> list[Request]:
    return [
        Request(f"{talk}.{turn}", "chat", text="x", follows=turn > 0)
        for talk in range(count)
        for turn in range(turns)
    ]


@pytest.mark.parametrize(
    ("asked", "level", "sent"),
    [(2, 1, 2), (2, 64, 64), (100, 64, 100), (0, 64, 0)],
)
def test_every_stream_is_warmed_up(tmp_path: Path, asked: int, level: int, sent: int) -> None:
    """A window that compiles its kernels would be measured as a slow configuration."""
    assert len(warm_up(sweep_of(tmp_path, asked), level, prompts(64))) == sent


def test_streams_of_conversations_are_filled_by_conversations(tmp_path: Path) -> None:
    """The turns of one wait for each other, so ten requests of two keep two streams busy."""
    sent = warm_up(sweep_of(tmp_path, 2), 4, prompts(8, turns=5))
    begun = [each for each in sent if not each.follows]
    assert len(begun) == 4


def test_requests_at_a_rate_are_as_many_as_asked(tmp_path: Path) -> None:
    """256 may be open at a rate of 4 a second: a minute of warm-up for a batch that never comes."""
    sweep = sweep_of(tmp_path, 2, request_rate=4.0)
    assert len(warm_up(sweep, 256, prompts(256))) == 2


class PlayedServer:
    """Counts how often its cache is emptied."""

    url, keys, api, flushed = "", NO_KEYS, GENERATE, 0

    def check_alive(self) -> None: ...

    def flush_cache(self) -> None:
        self.flushed += 1


@pytest.mark.parametrize(("stood", "sent"), [([0.3], 1), ([8.0, 0.0], 2), ([8.0, 9.0, 10.0], 3)])
def test_a_window_in_which_specbench_stood_still_is_measured_again(
    stood: list[float], sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-Z for eight seconds made a baseline of 159 tok/s out of 238; each candidate looked a
    half faster. Where it happens each time, the last one counts: a run must not hang for it."""
    windows = [Window(1, 1.0, 0.0, (), stood_s=each) for each in stood]
    given = iter(windows)
    monkeypatch.setattr(launch, "run_window", lambda *_: next(given))
    server = PlayedServer()
    assert LaunchContext._send(server, [], Load(1, 4)) is windows[sent - 1]  # type: ignore[arg-type]
    assert server.flushed == sent - 1
