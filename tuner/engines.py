"""The factory: from a sweep's `engine` section to the engine."""

from collections.abc import Callable

from tuner.config.schema import ENGINE_TRAITS, EngineTraits, Sweep
from tuner.server.base import Engine

EngineMaker = Callable[[Sweep], Engine]
"""Makes the engine of a sweep. Starts nothing. Raises UserError for a key that it refuses."""


def _sglang(sweep: Sweep) -> Engine:
    from tuner.sglang.engine import SglangEngine

    return SglangEngine(sweep.engine, sweep.timeouts, sweep.server)


def _simulated(sweep: Sweep) -> Engine:
    from tuner.simulator.engine import SimulatedEngine

    return SimulatedEngine(sweep.engine, sweep.timeouts)


def _endpoint(sweep: Sweep) -> Engine:
    from tuner.endpoint.engine import EndpointEngine

    return EndpointEngine(sweep.engine, sweep.timeouts)


ENGINES: dict[str, EngineMaker] = {
    "sglang": _sglang,
    "simulated": _simulated,
    "endpoint": _endpoint,
}
"""Makers by `engine.kind`. An engine's module is imported when a sweep names it."""


def register(kind: str, maker: EngineMaker, traits: EngineTraits) -> None:
    """Make an engine known as `engine.kind: KIND` in sweep files."""
    ENGINES[kind], ENGINE_TRAITS[kind] = maker, traits


def make_engine(sweep: Sweep, release: str | None = None) -> Engine:
    """Return the engine that the sweep names. Starts nothing. Raises UserError for a bad key.

    `release` is the engine's version to plan for, instead of the one that is installed.
    """
    if release is not None:
        spec = sweep.engine.model_copy(update={"release": release})
        sweep = sweep.model_copy(update={"engine": spec})
    return ENGINES[sweep.engine.kind](sweep)
