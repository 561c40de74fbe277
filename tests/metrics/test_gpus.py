"""What is made of NVML's readings: clocks under load, shares of reasons, energy per token."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.factories import make_gpu_trace, make_sample, make_window
from tuner.metrics.catalogue import summarise
from tuner.metrics.level_metrics import REASONS, gpu_figures
from tuner.metrics.samples import GpuTrace


def test_clocks_are_those_under_load() -> None:
    """A GPU at rest before and after the load would pass for one that was slowed down."""
    figures = gpu_figures(
        [
            replace(
                make_window(make_sample()),
                gpus=(make_gpu_trace(1700), make_gpu_trace(1900, gpu="1")),
            )
        ]
    )
    assert (figures["gpu_clock_mhz"], figures["gpu_clock_mhz_min"]) == (1800, 1700)
    assert figures["gpus"] == 2
    assert figures["gpu_temperature_c_max"] == 60
    idle = replace(make_gpu_trace(), reasons=(1, 1, 1, 1))
    assert gpu_figures([replace(make_window(make_sample()), gpus=(idle,))])["gpu_clock_mhz"] is None


def test_energy_is_that_of_all_gpus_by_all_tokens() -> None:
    """A server on two GPUs spends the energy of both on each token."""
    both = (make_gpu_trace(watts=300.0), make_gpu_trace(watts=200.0, gpu="1"))
    figures = summarise([replace(make_window(make_sample()), gpus=both)] * 2, None, None)
    assert figures["gpu_energy_j"] == pytest.approx(2 * 10 * 500)
    assert figures["energy_j_per_token"] == pytest.approx(2 * 10 * 500 / 10)
    assert figures["gpu_power_w"] == pytest.approx(500)


def test_energy_that_is_known_of_a_part_is_not_told() -> None:
    """Half of a server's energy looks like a thrifty server."""
    mute = replace(make_gpu_trace(gpu="1"), energy_j=(None,) * 4)
    anew = replace(make_gpu_trace(gpu="1"), energy_j=(5000.0, 1.0, 2.0, 3.0))
    for gpus in (None, (), (make_gpu_trace(), mute), (make_gpu_trace(), anew)):
        windows = [
            replace(make_window(make_sample()), gpus=(make_gpu_trace(),)),
            replace(make_window(make_sample()), gpus=gpus),
        ]
        assert gpu_figures(windows)["energy_j_per_token"] is None
    nothing = replace(make_window(make_sample((), (), error="failed")), gpus=(make_gpu_trace(),))
    assert gpu_figures([nothing])["energy_j_per_token"] is None


def test_reasons_are_shares_of_the_readings_under_load() -> None:
    """A moment of heat and heat all the time call for different things."""
    half = replace(make_gpu_trace(), reasons=(0xFF, 0x4, 0x44, 0xFF))
    figures = gpu_figures([replace(make_window(make_sample()), gpus=(half,))])
    assert {name: figures[name] for name in REASONS} == {
        "gpu_power_cap_share": 1.0,
        "gpu_hw_slowdown_share": 0.0,
        "gpu_sw_thermal_share": 0.0,
        "gpu_hw_thermal_share": 0.5,
        "gpu_power_brake_share": 0.0,
    }


def test_what_was_not_read_is_none() -> None:
    """0 J per token would win every comparison."""
    assert set(gpu_figures([make_window(make_sample())]).values()) == {None}
    assert set(gpu_figures([]).values()) == {None}
    columns = ("sm_mhz", "temperature_c", "power_w", "reasons", "energy_j")
    mute = replace(make_gpu_trace(), **dict.fromkeys(columns, (None,) * 4))
    figures = gpu_figures([replace(make_window(make_sample()), gpus=(mute,))])
    assert figures.pop("gpus") == 1
    assert set(figures.values()) == {None}


numbers = st.none() | st.integers(0, 10**6)
readings = st.integers(0, 5).flatmap(
    lambda count: st.tuples(*[st.lists(numbers, min_size=count, max_size=count)] * 5)
)


@given(readings)
def test_any_readings_give_numbers_or_none_and_come_back_from_json(
    columns: tuple[list[int | None], ...],
) -> None:
    """A driver that tells a part of it must not lose the trial."""
    at = tuple(float(n) for n in range(len(columns[0])))
    made = GpuTrace("0", at, *map(tuple, columns))
    assert GpuTrace.from_json(made.to_json()) == made
    for figure in gpu_figures([replace(make_window(make_sample()), gpus=(made,))]).values():
        assert figure is None or math.isfinite(figure)
