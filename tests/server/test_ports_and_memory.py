"""Ports and GPU memory: what a launch needs free, and when it is back."""

import random
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.server import gpu, ports


def test_a_chosen_port_is_free_and_not_the_kernels() -> None:
    """A port of the outgoing range can be taken by anybody while the model loads."""
    port = ports.free_port()
    assert ports.is_free(port)
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert port < max(lowest, 13000)


def test_a_port_that_is_taken_or_another_launch_s_is_not_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two sweeps that begin at once would meet on one port, minutes later when they bind it."""
    drawn: list[int] = []
    draw = SimpleNamespace(randrange=lambda *_: drawn.pop(0))
    first, second = ports.PortClaims(), ports.PortClaims()
    mine, other, third = ports.free_port(), ports.free_port(), ports.free_port()
    with socket.create_server(("", ports.free_port())) as listener:
        monkeypatch.setattr(random, "SystemRandom", lambda: draw)
        drawn += [listener.getsockname()[1], mine]
        assert first.claim() == mine
        drawn += [mine, other]
        assert first.claim() == other
        drawn += [mine, other, third]
        assert second.claim() == third
    first.release()
    drawn.append(mine)
    assert second.claim() == mine
    second.release()


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_listener_is_seen_on_any_address(address: str) -> None:
    """Otherwise a server is launched onto a port that is taken."""
    with socket.create_server((address, ports.free_port())) as listener:
        port = listener.getsockname()[1]
        assert not ports.is_free(port)
        assert not ports.wait_until_free([port], 0.1)
    assert ports.wait_until_free([port], 5.0)


class FakeNvml:
    """Three GPUs whose use goes down by a GiB with every look at the first."""

    NVMLError = RuntimeError

    def __init__(self) -> None:
        self.used = 3 * 2**30
        self.asked: list[Any] = []

    def nvmlInit(self) -> None:  # noqa: N802
        pass

    nvmlShutdown = nvmlInit  # noqa: N815

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index > 2:
            raise RuntimeError("no such device")
        return index

    def nvmlDeviceGetHandleByUUID(self, name: str) -> str:  # noqa: N802
        return name

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> SimpleNamespace:  # noqa: N802
        self.asked.append(handle)
        self.used = max(self.used - 2**30, 0)
        return SimpleNamespace(used=self.used, total=20 * 2**30)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


@pytest.mark.parametrize(
    ("visible", "asked"),
    [
        (None, [0, 1, 2]),
        ("2,0", [2, 0]),
        ("GPU-abc", ["GPU-abc"]),
        ("1,-1,2", [1]),
        ("", []),
        ("7", []),
    ],
)
def test_only_the_servers_gpus_are_watched(
    visible: str | None, asked: list[Any], nvml: FakeNvml
) -> None:
    """A neighbour's job on another GPU must not hold up every launch."""
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    used = gpu.used_memory(environment)
    assert nvml.asked == asked
    assert (used is None) == (asked == [])


def test_memory_is_awaited_until_it_is_back(nvml: FakeNvml) -> None:
    """Otherwise the next launch runs out of memory that is about to be free."""
    environment = {"CUDA_VISIBLE_DEVICES": "0"}
    assert gpu.wait_until_back({"0": 0}, environment, 10.0)
    assert len(nvml.asked) == 3
    assert not gpu.wait_until_back({"0": -(2**40)}, environment, 0.3)


def test_memory_that_others_hold_is_told_from_a_tenth_on(nvml: FakeNvml) -> None:
    """Otherwise every candidate runs out of memory and none seems feasible."""
    nvml.used = 4 * 2**30  # each look at a GPU takes one off
    assert gpu.gpu_in_use({}) == ["GPU 0: 3 of 20 GiB in use by others"]
    assert gpu.gpu_in_use({"CUDA_VISIBLE_DEVICES": "7"}) == []


def test_without_nvml_nothing_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulated engine and CPU machines have none."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu.used_memory({}) is None
    assert gpu.gpu_in_use({}) == []
    assert gpu.wait_until_back(None, {}, 10.0)
    assert gpu.wait_until_back({"0": 0}, {}, 10.0)
