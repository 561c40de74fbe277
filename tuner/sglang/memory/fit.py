"""Servers that cannot fit on their GPUs are known before one is started."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner.config.schema import Sweep
from tuner.server.base import ServerConfig
from tuner.server.memory import ServerMemory
from tuner.sglang.log_parser import Sizes, read_sizes
from tuner.sglang.memory.estimate import DRAFT_COUNTED, Offsets, server_memory
from tuner.sglang.memory.model_shape import GIB, ShapePair, gpu_bytes, read_shapes
from tuner.sglang.releases import Release

MARGIN, NEAR_MARGIN = 0.02, 0.1
"""What is left of the weights in a refusal's favour: where every parameter is counted, and where
not. A server is refused only where it cannot fit even if the estimate is too high by so much."""


PLAUSIBLE_GIB = 5.0
"""More than this before the weights is another process's, which may be gone at the next launch."""


@dataclass(frozen=True)
class GpuMemory:
    """Estimates for SGLang's servers of a sweep. See `server.memory.MemoryEstimator`.

    What a rank holds before it loads weights is assumed until the first log states it. From then
    on a server that leaves no room beside that does not fit either.
    """

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

    def learn(self, config: ServerConfig, log: Path) -> "GpuMemory":
        """Return the estimates as the first log that states sizes corrects them."""
        if self.learned is not None:
            return self
        logged = read_sizes(log)
        if logged.before is None or logged.target is None:
            return self
        if self.gpu - logged.before > PLAUSIBLE_GIB:
            return self
        found = estimate_offsets(self.memory(config), logged, self.gpu)
        # A draft's size differs by placement; target and context are every server's.
        return replace(self, learned=replace(found, draft=0.0), known={})


def estimate_memory(sweep: Sweep, release: Release, gib: float | None) -> GpuMemory | None:
    """Return the estimates for a sweep, or None if the GPUs' memory is not known.

    `gib` is the memory of a GPU. None: NVML reports it.
    """
    source = "--gpu-memory"
    if gib is None:
        found = gpu_bytes(sweep)
        if found is None:
            return None
        gib, source = found / GIB, "NVML"
    return GpuMemory(read_shapes(sweep), release, gib, source, sweep.workload.output_tokens)


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
