"""NVML on real GPUs, idle or beside other tests: that the driver tells all that is asked."""

import time

from tuner.metrics.level_metrics import gpu_figures
from tuner.metrics.samples import Window
from tuner.server.gpu import visible_gpus
from tuner.server.gpu_sampler import ServerGpus, watched


def test_the_driver_tells_clock_heat_power_reasons_and_energy() -> None:
    """A renamed function of nvidia-ml-py would cost all figures, silently."""
    seen = visible_gpus({})
    assert seen is not None
    names = tuple(card.index for card in seen.cards)
    with watched(ServerGpus({}, names)) as watch:
        time.sleep(3.0)
    assert watch.traces is not None
    for trace in watch.traces:
        assert len(trace.at) >= 5
        assert all(clock is not None and 0 < clock < 5000 for clock in trace.sm_mhz)
        assert all(degrees is not None and 10 < degrees < 110 for degrees in trace.temperature_c)
        assert all(watts is not None and 10 < watts < 2000 for watts in trace.power_w)
        assert None not in trace.reasons
        assert trace.energy is not None
        watts = trace.energy / (trace.at[-1] - trace.at[0])
        assert 0.1 < watts / max(each or 0.0 for each in trace.power_w) < 1.5
    figures = gpu_figures([Window(1, 3.0, 0.0, (), gpus=watch.traces)])
    assert figures["gpus"] == len(names)
    assert figures["gpu_energy_j"] is not None
