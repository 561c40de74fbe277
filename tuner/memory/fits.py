"""Servers that cannot fit on their GPUs are known before one is started."""

from dataclasses import dataclass, field, replace

from tuner.engine.base import Checked, Engine, ServerConfig, server_config
from tuner.engine.sglang.engine import SglangEngine
from tuner.engine.sglang.releases import Release
from tuner.errors import UserError
from tuner.memory.models import GIB, Pair, gpu_bytes, pair_of
from tuner.memory.server import DRAFT_COUNTED, Offsets, ServerMemory, server_memory
from tuner.sweep.model import Sweep
from tuner.sweep.point import Point

MARGIN, NEAR_MARGIN = 0.02, 0.1
"""What is left of the weights in a refusal's favour: where every parameter is counted, and where
not. A server is refused only where it cannot fit even if the estimate is too high by so much."""


@dataclass(frozen=True)
class Machine:
    """What a sweep's estimates are made for."""

    pair: Pair
    release: Release
    gpu: float
    """GiB of the smallest GPU."""
    source: str
    """Where that is from."""
    request: int
    """Tokens that one request has at the least: without room for it nothing is served."""

    learned: Offsets | None = None
    """What a log of this machine adds to the estimates; None before there is one."""
    known: dict[str, ServerMemory] = field(default_factory=dict, repr=False, compare=False)
    """Estimates that were made already."""

    def memory(self, config: ServerConfig) -> ServerMemory:
        """The estimate for one server."""
        point = config.point
        asked = (point and point.draft_tp, point is None, config.flags, config.warm_steps)
        key = repr(asked)  # a space of thousands of points has a handful of distinct servers
        if key not in self.known:
            self.known[key] = server_memory(config, self.pair, self.release, self.gpu, self.learned)
        return self.known[key]

    def misfit(self, config: ServerConfig) -> str | None:
        """Why the server certainly ends for want of memory; None where it need not."""
        found = self.memory(config)
        if found.target is None:
            return None
        sure = 1 - (MARGIN if found.is_exact else NEAR_MARGIN)
        kept, loading = found.target + (found.draft or 0.0), found.target
        if self.release.at_least(DRAFT_COUNTED):
            loading += found.loading or 0.0
        one = (found.token or 0.0) * self.request / GIB
        whose = "the target's weights" if not found.draft else "the weights of target and draft"
        # Before a log says it, that anything is held before the weights is an assumption.
        taken = 0.0 if self.learned is None else found.before
        there = self.gpu - taken
        has = f"a GPU has {self.gpu:.1f}" + (f", {taken:.1f} of it taken before" if taken else "")
        if kept * sure + one > there:
            also = f" and {one:.1f} GiB for one request" if one >= 0.1 else ""
            return f"{whose} take {kept:.1f} GiB{also}, {has}"
        fraction = config.flags.get("mem-fraction-static")
        if isinstance(fraction, float) and loading * sure > fraction * there:
            return (
                f"{whose} take {loading:.1f} GiB while they load, and mem-fraction-static "
                f"{fraction:g} leaves {fraction * there:.1f}: {has}"
            )
        return None


def machine_of(engine: Engine, sweep: Sweep, gib: float | None = None) -> Machine | None:
    """The machine that the sweep is for; None where its GPUs' memory is not known.

    `gib` is what a GPU has where somebody says so, else NVML is asked. Only SGLang's servers are
    estimated.
    """
    if not isinstance(engine, SglangEngine):
        return None
    source = "--gpu-memory"
    if gib is None:
        found = gpu_bytes(sweep)
        if found is None:
            return None
        gib, source = found / GIB, "NVML"
    return Machine(pair_of(sweep), engine.release, gib, source, sweep.workload.output_tokens)


def narrowed(checked: Checked, machine: Machine | None) -> Checked:
    """The sweep without points whose server cannot fit.

    Raises UserError where the baseline cannot, or no point.
    """
    if machine is None:
        return checked
    loaded = checked.loaded
    sweep = loaded.sweep
    if (why := machine.misfit(server_config(sweep, None))) is not None:
        raise _refusal(checked, why)
    misfits: dict[Point, str] = {}
    for point in loaded.space.points:
        if (why := machine.misfit(server_config(sweep, point))) is not None:
            misfits[point] = why
    if not misfits:
        return checked
    if len(misfits) == len(loaded.space.points):
        raise _refusal(checked, next(iter(misfits.values())))
    return replace(checked, loaded=replace(loaded, space=loaded.space.without(misfits)))


def _refusal(checked: Checked, why: str) -> UserError:
    document = checked.loaded.document()
    place = ("model", "tp") if ("model", "tp") in document.lines else ("model",)
    return document.error(place, f"{why}: raise model.tp, or take a smaller model")
