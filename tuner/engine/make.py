"""From a sweep's `engine` section to the engine."""

from tuner.engine.base import Engine
from tuner.sweep.model import Sweep


def make_engine(sweep: Sweep, release: str | None = None) -> Engine:
    """The engine that the sweep names; starts nothing. Raises UserError for what it refuses.

    `release` is an SGLang version to plan for, instead of the one that is installed.
    """
    spec, timeouts = sweep.engine, sweep.timeouts
    if release is not None:
        spec = spec.model_copy(update={"release": release})
    if spec.kind == "simulated":
        from tuner.engine.simulated.engine import SimulatedEngine

        return SimulatedEngine(spec, timeouts)
    if spec.kind == "endpoint":
        from tuner.engine.endpoint import EndpointEngine

        return EndpointEngine(spec, timeouts)
    from tuner.engine.sglang.engine import SglangEngine

    return SglangEngine(spec, timeouts, sweep.server)
