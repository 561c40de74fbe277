"""The estimates of a sweep's servers, each distinct one once."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tuner.engine.base import ServerConfig
from tuner.memory.fits import Machine
from tuner.memory.server import ServerMemory


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
        cls, machine: Machine | None, servers: Iterable[tuple[str, ServerConfig]]
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
