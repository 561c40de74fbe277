"""A sweep's communication settings, measured by whatever its engine has."""

from collections.abc import Callable, Mapping

from tuner.comm.benchmark import run_job
from tuner.comm.job import Wanted, job_of_sweep
from tuner.comm.results import CommResults
from tuner.comm.simulated import simulated_results
from tuner.sweep.door import LoadedSweep


def measure_comm(
    loaded: LoadedSweep,
    wanted: Wanted,
    environment: Mapping[str, str],
    say: Callable[[str], None],
) -> CommResults:
    """Latencies of every setting: measured for SGLang, out of the preset for a simulated sweep.

    `environment` is this process's, `say` gets a line of progress at a time. Raises UserError for
    an endpoint, an unknown model shape or an interpreter without torch, EngineFailure where no
    setting gave figures. Whatever is raised, no process is left.
    """
    if loaded.sweep.engine.kind == "simulated":
        return simulated_results(loaded, wanted)
    return run_job(job_of_sweep(loaded, wanted, environment), say)
