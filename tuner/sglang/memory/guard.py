"""An engine that spends no launch on a server that cannot fit, and learns from its launches."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tuner.core.errors import EngineFailure, Failure
from tuner.server.base import Engine, ForwardingEngine, Server, ServerConfig
from tuner.sglang.log_parser import read_sizes
from tuner.sglang.memory.fit import GpuMemory, estimate_offsets

PLAUSIBLE_GIB = 5.0
"""More than this before the weights is another process's, which may be gone at the next launch."""


def guarded(engine: Engine, machine: GpuMemory | None) -> Engine:
    """`engine` with its launches guarded, where the GPUs' memory is known."""
    return engine if machine is None else Guarded(engine, machine)


class Guarded(ForwardingEngine):
    """An engine that refuses launches that cannot fit.

    What a rank holds before it loads weights is assumed until the first log states it; from then on
    a server is refused (OOM) that leaves no room beside that either.
    """

    def __init__(self, engine: Engine, machine: GpuMemory) -> None:
        super().__init__(engine)
        self._machine = machine

    def launch(self, config: ServerConfig, log: Path, launch_id: int) -> Server:
        """See `Engine`. Raises EngineFailure(OOM) without a start if the server cannot fit."""
        if (why := self._machine.misfit(config)) is not None:
            raise EngineFailure(Failure.OOM, f"not launched: {why}")
        try:
            return super().launch(config, log, launch_id)
        finally:
            with suppress(OSError):
                self._learn(config, log)

    def _learn(self, config: ServerConfig, log: Path) -> None:
        """What a failed launch had logged counts as well."""
        machine = self._machine
        if machine.learned is not None:
            return
        logged = read_sizes(log)
        if logged.before is None or logged.target is None:
            return
        if machine.gpu - logged.before <= PLAUSIBLE_GIB:
            found = estimate_offsets(machine.memory(config), logged, machine.gpu)
            # A draft's size differs by placement; target and context are every server's.
            self._machine = replace(machine, learned=replace(found, draft=0.0), known={})
