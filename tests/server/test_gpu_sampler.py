"""Reading the GPUs beside the load: what is read, and that it never disturbs a run."""

import sys
import time
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import pytest

from tests.server.fake_nvml import GIB, FakeNvml
from tuner.server import gpu_sampler
from tuner.server.gpu_sampler import ServerGpus, find_server_gpus, watched


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(gpu_sampler, "FIRST_S", 0.01)
    monkeypatch.setattr(gpu_sampler, "PERIOD_S", 0.01)
    yield fake
    if fake.hang is not None:
        fake.hang.set()


def read(gpus: ServerGpus | None, seconds: float = 0.1) -> gpu_sampler.GpuSampler:
    with watched(gpus) as watch:
        time.sleep(seconds)
    return watch


def test_each_gpu_of_the_server_is_read_from_before_the_load_to_after_it(nvml: FakeNvml) -> None:
    """A neighbour's GPU would add its energy, a reading too few would lose some."""
    traces = read(ServerGpus({"CUDA_VISIBLE_DEVICES": "2,0,1"}, ("2", "1"))).traces
    assert traces is not None
    assert [(trace.gpu, trace.sm_mhz[0]) for trace in traces] == [("2", 1978), ("1", 1979)]
    for trace in traces:
        assert len(trace.at) > 3
        assert trace.at[0] < 0.1 <= trace.at[-1] + 0.01
        assert trace.energy == pytest.approx(500 * (trace.at[-1] - trace.at[0]), rel=0.2)
        assert set(trace.power_w) == {500.0}
        assert set(trace.reasons) == {4}
    assert nvml.open == 0


@pytest.mark.parametrize(
    ("broken", "lost"),
    [
        ({"nvmlDeviceGetTotalEnergyConsumption"}, "energy_j"),
        ({"nvmlDeviceGetClockInfo"}, "sm_mhz"),
        ({"nvmlDeviceGetTemperature"}, "temperature_c"),
        ({"nvmlDeviceGetPowerUsage"}, "power_w"),
        (
            {
                "nvmlDeviceGetCurrentClocksEventReasons",
                "nvmlDeviceGetCurrentClocksThrottleReasons",
            },
            "reasons",
        ),
    ],
)
def test_what_a_gpu_does_not_tell_is_none_and_the_rest_is_read(
    nvml: FakeNvml, broken: set[str], lost: str
) -> None:
    """MIG slices and old boards tell a part."""
    nvml.broken = broken
    traces = read(ServerGpus({}, ("0",))).traces
    assert traces is not None
    columns = ("sm_mhz", "temperature_c", "power_w", "reasons", "energy_j")
    assert {name for name in columns if set(getattr(traces[0], name)) == {None}} == {lost}


def test_an_older_driver_has_the_reasons_by_their_older_name(nvml: FakeNvml) -> None:
    nvml.broken = {"nvmlDeviceGetCurrentClocksEventReasons"}
    traces = read(ServerGpus({}, ("0",))).traces
    assert traces is not None
    assert set(traces[0].reasons) == {8}


class OldNvml(FakeNvml):
    """As nvidia-ml-py before 12.560, which a user's other packages may hold."""

    def __getattribute__(self, name: str) -> Any:
        if name == "nvmlDeviceGetCurrentClocksEventReasons":
            raise AttributeError(name)
        return super().__getattribute__(name)


def test_an_older_nvidia_ml_py_has_the_reasons_by_their_older_name(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One name that is missing would cost clocks, heat and energy of every window."""
    monkeypatch.setitem(sys.modules, "pynvml", OldNvml())
    traces = read(ServerGpus({}, ("0",))).traces
    assert traces is not None
    assert set(traces[0].reasons) == {8}
    assert set(traces[0].power_w) == {500.0}


def fails_to_start(nvml: FakeNvml) -> None:
    nvml.broken = {"nvmlInit"}


def forgets_a_gpu(nvml: FakeNvml) -> None:
    nvml.count = 0


def raises_something_else(nvml: FakeNvml) -> None:
    nvml.nvmlDeviceGetClockInfo = None  # type: ignore[method-assign, assignment]


def hangs(nvml: FakeNvml) -> None:
    nvml.hang = Event()


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("trouble", [fails_to_start, forgets_a_gpu, raises_something_else, hangs])
def test_an_nvml_in_trouble_gives_nothing_and_is_not_asked_again(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, trouble: Callable[[FakeNvml], None]
) -> None:
    """A driver that hangs must not hold up every window of a sweep, nor end it."""
    monkeypatch.setattr(gpu_sampler, "PATIENCE_S", 0.2)
    trouble(nvml)
    gpus = ServerGpus({}, ("0",))
    assert read(gpus, 0.0).traces is None
    assert gpus.lost
    nvml.broken, nvml.looks = set(), 0
    assert read(gpus, 0.0).traces is None
    assert nvml.looks == 0


def test_readings_that_begin_after_the_load_are_not_kept(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The energy of half a window would pass for that of all its tokens."""
    monkeypatch.setattr(gpu_sampler, "PATIENCE_S", 0.05)
    nvml.hang = Event()
    gpus = ServerGpus({}, ("0",))
    with watched(gpus) as watch:
        nvml.hang.set()
        watch._begun.wait(5.0)
        monkeypatch.setattr(gpu_sampler, "PATIENCE_S", 5.0)
    assert not watch._thread.is_alive()
    assert watch.traces is None
    assert gpus.lost


def test_a_failure_of_the_load_ends_the_reading_and_is_raised(nvml: FakeNvml) -> None:
    with pytest.raises(KeyboardInterrupt), watched(ServerGpus({}, ("0",))) as watch:
        raise KeyboardInterrupt
    assert not watch._thread.is_alive()
    assert nvml.open == 0


def test_without_gpus_nothing_is_read() -> None:
    assert read(None, 0.0).traces is None


INFO = {"tp_size": 2, "pp_size": 1, "dp_size": 1, "nnodes": 1, "enable_dp_attention": False}


@pytest.mark.parametrize(
    ("grown", "info", "names"),
    [
        ((1, 2), {}, ("1", "2")),
        ((0,), {"tp_size": 1}, ("0",)),
        ((0, 1, 2, 3), {"dp_size": 2}, ("0", "1", "2", "3")),
        ((0, 1), {"dp_size": 2, "enable_dp_attention": True}, ("0", "1")),
        ((), {}, None),  # it runs elsewhere
        ((1,), {}, None),
        ((0, 1, 2), {}, None),  # somebody else came meanwhile
        ((0, 1), {"nnodes": 2}, None),
        ((0, 1), {"tp_size": "2"}, None),
    ],
)
def test_the_servers_gpus_are_those_whose_memory_it_took(
    nvml: FakeNvml, grown: tuple[int, ...], info: dict[str, Any], names: tuple[str, ...] | None
) -> None:
    """Energy of GPUs that it does not use is not its own; where they are in doubt, none is."""
    for each in grown:
        nvml.used[each] = 100 * GIB
    before = {str(n): GIB for n in range(4)}
    found = find_server_gpus({**INFO, **info}, before, {})
    assert (found and found.names) == names
    assert find_server_gpus({**INFO, **info}, None, {}) is None
    assert find_server_gpus({}, before, {}) is None
