"""GPU memory of servers before they start: estimates, points that cannot fit, a launch guard."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tuner.config.point import Point
from tuner.core.errors import EngineFailure, Failure, UserError
from tuner.server.base import Checked, ServerConfig, server_config


@dataclass(frozen=True)
class ServerMemory:
    """GiB on each GPU of one server; None for what is not known, which `unknown` gives reasons for.

    `before` and `graphs` are assumed, the rest follows from the models' files and the flags.
    """

    before: float
    target: float | None
    draft: float | None
    """When it has borrowed the target's embedding; 0 without a draft."""
    loading: float | None
    """What loading the draft takes; the KV cache is sized beside that."""
    cache: float | None
    tokens: int | None
    """That the KV cache holds."""
    graphs: float
    is_exact: bool
    """Every parameter was counted."""
    token: float | None
    """Bytes of KV cache for one token, target and draft."""
    unknown: tuple[str, ...] = field(default=())

    @property
    def total(self) -> float | None:
        """All of it; None where a part is not known."""
        parts = (self.before, self.target, self.draft, self.cache, self.graphs)
        known = [each for each in parts if each is not None]
        return sum(known) if len(known) == len(parts) else None

    def is_tight(self, gpu: float) -> bool:
        """By the estimate it would not start on a GPU of `gpu` GiB; no more than a doubt."""
        return self.tokens == 0 or (self.total is not None and self.total > gpu)

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        shown = {name: _rounded(value) for name, value in asdict(self).items()}
        return {**shown, "total": _rounded(self.total), "unknown": list(self.unknown)}


def _rounded(value: Any) -> Any:
    return round(value, 2) if isinstance(value, float) else value


class MemoryEstimator(Protocol):
    """Estimates the memory of a sweep's servers. `Engine.estimate_memory` makes one."""

    @property
    def gpu(self) -> float:
        """GiB of the smallest GPU."""

    @property
    def source(self) -> str:
        """Where `gpu` comes from, such as NVML."""

    def memory(self, config: ServerConfig) -> ServerMemory:
        """Return the estimate for one server."""

    def misfit(self, config: ServerConfig) -> str | None:
        """Return why the server certainly runs out of memory, or None if it may fit."""

    def learn(self, config: ServerConfig, log: Path) -> "MemoryEstimator":
        """Return an estimator corrected by the log of a launch of `config`.

        Raises OSError if the log cannot be read.
        """


def without_misfits(checked: Checked, memory: MemoryEstimator | None) -> Checked:
    """Return the sweep without points whose server cannot fit.

    Raises UserError if the baseline cannot fit, or no point can.
    """
    if memory is None:
        return checked
    loaded = checked.loaded
    sweep = loaded.sweep
    if (why := memory.misfit(server_config(sweep, None))) is not None:
        raise _refusal(checked, why)
    misfits: dict[Point, str] = {}
    for point in loaded.space.points:
        if (why := memory.misfit(server_config(sweep, point))) is not None:
            misfits[point] = why
    if not misfits:
        return checked
    if len(misfits) == len(loaded.space.points):
        raise _refusal(checked, next(iter(misfits.values())))
    return replace(checked, loaded=replace(loaded, space=loaded.space.without(misfits)))


def _refusal(checked: Checked, why: str) -> UserError:
    document = checked.loaded.document
    place = ("model", "tp") if ("model", "tp") in document.lines else ("model",)
    return document.error(place, f"{why}: raise model.tp, or take a smaller model")


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
        cls, estimator: MemoryEstimator | None, servers: Iterable[tuple[str, ServerConfig]]
    ) -> "MemoryPlan | None":
        """Return the distinct estimates in the servers' order, or None without an estimator."""
        if estimator is None:
            return None
        found: dict[ServerMemory, tuple[str, int]] = {}
        for label, config in servers:
            memory = estimator.memory(config)
            first, count = found.get(memory, (label, 0))
            found[memory] = (first, count + 1)
        alike = tuple(Alike(first, count, memory) for memory, (first, count) in found.items())
        return cls(estimator.gpu, estimator.source, alike)

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


class MemoryGuard:
    """Refuses launches that cannot fit, and learns from the logs of those that were made."""

    def __init__(self, memory: MemoryEstimator) -> None:
        self._memory = memory

    def check(self, config: ServerConfig) -> None:
        """Raise EngineFailure(OOM) if a server of `config` cannot fit."""
        if (why := self._memory.misfit(config)) is not None:
            raise EngineFailure(Failure.OOM, f"not launched: {why}")

    def learn(self, config: ServerConfig, log: Path) -> None:
        """Correct the estimates by a launch's log, if there is one. A failed launch counts too."""
        with suppress(OSError):
            self._memory = self._memory.learn(config, log)
