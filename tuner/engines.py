"""From a sweep's `engine` section to the engine, and to its all-reduce measurement."""

from collections.abc import Callable, Mapping

from tuner.config.loader import LoadedSweep
from tuner.config.schema import Sweep
from tuner.server.base import Engine
from tuner.sglang.nccl.benchmark import Wanted, job_of_sweep, run_job
from tuner.sglang.nccl.results import CommResults


def make_engine(sweep: Sweep, release: str | None = None) -> Engine:
    """The engine that the sweep names; starts nothing. Raises UserError for what it refuses.

    `release` is an SGLang version to plan for, instead of the one that is installed.
    """
    spec, timeouts = sweep.engine, sweep.timeouts
    if release is not None:
        spec = spec.model_copy(update={"release": release})
    if spec.kind == "simulated":
        from tuner.simulator.engine import SimulatedEngine

        return SimulatedEngine(spec, timeouts)
    if spec.kind == "endpoint":
        from tuner.endpoint.engine import EndpointEngine

        return EndpointEngine(spec, timeouts)
    from tuner.sglang.engine import SglangEngine

    return SglangEngine(spec, timeouts, sweep.server)


def measure_comm(
    loaded: LoadedSweep,
    wanted: Wanted,
    environment: Mapping[str, str],
    say: Callable[[str], None],
) -> CommResults:
    """Return the all-reduce latencies of every setting, in microseconds.

    SGLang's are measured, the simulated engine's are read from its preset. `environment` is this
    process's; `say` gets one line of progress at a time. Raises UserError for an endpoint, an
    unknown model shape or an interpreter without torch, and EngineFailure if no setting gave
    figures. No process is left, whatever is raised.
    """
    if loaded.sweep.engine.kind == "simulated":
        from tuner.simulator.nccl import simulated_results

        return simulated_results(loaded, wanted)
    return run_job(job_of_sweep(loaded, wanted, environment), say)
