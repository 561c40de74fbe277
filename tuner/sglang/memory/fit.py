"""Servers that cannot fit on their GPUs are known before one is started."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.config.point import Point
from tuner.config.schema import Sweep
from tuner.core.errors import UserError
from tuner.server.base import Checked, Engine, ServerConfig, server_config
from tuner.sglang.engine import SglangEngine
from tuner.sglang.log_parser import Sizes
from tuner.sglang.memory.estimate import DRAFT_COUNTED, Offsets, ServerMemory, server_memory
from tuner.sglang.memory.model_shape import GIB, ShapePair, gpu_bytes, read_shapes
from tuner.sglang.releases import Release

MARGIN, NEAR_MARGIN = 0.02, 0.1
"""What is left of the weights in a refusal's favour: where every parameter is counted, and where
not. A server is refused only where it cannot fit even if the estimate is too high by so much."""


@dataclass(frozen=True)
class GpuMemory:
    """What a sweep's estimates are made for."""

    pair: ShapePair
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


def plan_machine(engine: Engine, sweep: Sweep, gib: float | None = None) -> GpuMemory | None:
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
    return GpuMemory(read_shapes(sweep), engine.release, gib, source, sweep.workload.output_tokens)


def narrowed(checked: Checked, machine: GpuMemory | None) -> Checked:
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


def estimate_offsets(estimate: ServerMemory, logged: Sizes, gpu: float) -> Offsets:
    """What a launch's log adds to its estimate, in GiB; 0 for a part that either leaves open.

    `estimate` is one without offsets.
    """
    return Offsets(
        before=0.0 if logged.before is None else gpu - logged.before - estimate.before,
        target=_more(estimate.target, logged.target),
        draft=_more(estimate.loading, logged.draft),
    )


def _more(estimate: float | None, logged: float | None) -> float:
    return 0.0 if estimate is None or logged is None else logged - estimate


def kv_cache_gib(logged: Sizes) -> float | None:
    """GiB of all KV caches; None where none was logged."""
    return sum(each.gib for each in logged.caches) if logged.caches else None


def free_gib(estimate: ServerMemory, gpu: float) -> float | None:
    """GiB that the estimate leaves free; None where a part is not known."""
    return None if estimate.total is None else gpu - estimate.total


@dataclass(frozen=True)
class Alike:
    """Servers whose estimate is the same."""

    first: str
    """What the first of them is called."""
    count: int
    memory: ServerMemory

    @property
    def label(self) -> str:
        """`3 steps, 4 tokens and 4 more`."""
        return self.first if self.count == 1 else f"{self.first} and {self.count - 1} more"


@dataclass(frozen=True)
class MemoryPlan:
    """What each GPU has, and what servers will hold of it."""

    gpu: float
    source: str
    servers: tuple[Alike, ...]

    @classmethod
    def of(
        cls, machine: GpuMemory | None, servers: Iterable[tuple[str, ServerConfig]]
    ) -> "MemoryPlan | None":
        """In the order of the first of each kind; None where the GPUs' memory is not known."""
        if machine is None:
            return None
        found: dict[ServerMemory, tuple[str, int]] = {}
        for label, config in servers:
            memory = machine.memory(config)
            first, count = found.get(memory, (label, 0))
            found[memory] = (first, count + 1)
        alike = tuple(Alike(first, count, memory) for memory, (first, count) in found.items())
        return cls(machine.gpu, machine.source, alike)

    def to_json(self) -> dict[str, Any]:
        """As `plan --json` prints it, in GiB."""
        return {
            "gpu_gib": round(self.gpu, 2),
            "source": self.source,
            "servers": [
                {"first": each.first, "count": each.count, **each.memory.to_json()}
                for each in self.servers
            ],
        }


def words(memory: ServerMemory, gpu: float) -> str:
    """`target 7.5, draft 0.6, KV cache 74.3 (1,180,788 tokens), other about 2.5: 84.9 of 140.4`."""
    parts = [f"target {_gib(memory.target)}"]
    if memory.draft != 0.0:
        parts.append(f"draft {_gib(memory.draft)}")
    tokens = "" if memory.tokens is None else f" ({memory.tokens:,} tokens)"
    parts.append(f"KV cache {_gib(memory.cache)}{tokens}")
    parts.append(f"other about {memory.before + memory.graphs:.1f}")
    whole = "" if memory.total is None else f": {memory.total:.1f} of {gpu:.1f} GiB"
    near = "" if memory.is_exact or memory.target is None else " (weights nearly)"
    tight = "; IT MAY NOT START" if memory.is_tight(gpu) else ""
    why = f"; not known: {'; '.join(memory.unknown)}" if memory.unknown else ""
    return ", ".join(parts) + whole + near + tight + why


def _gib(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f}"
