"""What servers held of each GPU: the estimate beside what their logs say."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tuner.analysis.summary import NO_SPECULATION
from tuner.core.errors import UserError
from tuner.core.formatting import MISSING, number
from tuner.core.markdown import code, markdown_table
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run
from tuner.server.base import plain_config, server_config
from tuner.server.memory import ServerMemory, free_gib
from tuner.sglang.log_parser import Sizes, read_sizes
from tuner.sglang.memory.estimate import Offsets, server_memory
from tuner.sglang.memory.fit import estimate_offsets, kv_cache_gib
from tuner.sglang.memory.model_shape import ShapePair, read_shapes
from tuner.sglang.releases import Release, parse_version
from tuner.sglang.revisions import sweep_as_begun

HEADER = ["launch", "target", "draft", "KV cache", "after a first log", "tokens", "free"]


@dataclass(frozen=True)
class MemoryUse:
    """One launch. `learned` is the estimate as the run's earlier logs correct it, if any."""

    label: str
    told: ServerMemory
    learned: ServerMemory | None
    logged: Sizes
    gpu: float

    def compared(self) -> dict[str, tuple[float | None, float | None]]:
        """(estimate, log) by what, GiB but for `tokens`."""
        cache, drafts = kv_cache_gib(self.logged), self.logged.draft is not None
        return {
            "target": (self.told.target, self.logged.target),
            "draft": (self.told.loading if drafts else None, self.logged.draft),
            "KV cache": (self.told.cache, cache),
            "after a first log": (self.learned.cache if self.learned else None, cache),
            "tokens": (self.told.tokens, self.logged.tokens),
            "free": (free_gib(self.told, self.gpu), self.logged.free),
        }

    def cells(self) -> list[str]:
        """A table's row without its first cell: `estimate / log`."""
        return [_cell(name, *pair) for name, pair in self.compared().items()]


def _cell(name: str, estimate: float | None, log: float | None) -> str:
    if log is None or (name == "after a first log" and estimate is None):
        return MISSING
    if name != "tokens":
        return f"{number(estimate, 2)} / {number(log, 2)}"
    told = MISSING if estimate is None else f"{estimate:,.0f}"
    off = "" if not estimate else f" ({100 * (estimate / log - 1):+.1f} %)"
    return f"{told} / {log:,.0f}{off}"


def launches_held(run: Run, pair: ShapePair | None = None) -> Iterator[MemoryUse]:
    """Every launch of SGLang whose log states sizes.

    `pair` goes before what the run kept of its models, and that before their files here.
    """
    sweep, gpu = run.sweep(), _gpu(run)
    if not sweep.engine.uses_gpus or gpu is None:
        return
    begun = sweep_as_begun(sweep, run.settings.models, os.environ)
    models = pair or read_shapes(begun, kept=run.configs())
    known: Offsets | None = None
    drafts: dict[object, float] = {}
    seen: set[int] = set()
    for record in run.records():
        log, release = run.log_file(record.launch_id), _release(record)
        if record.launch_id in seen or release is None or not log.exists():
            continue
        seen.add(record.launch_id)
        logged = read_sizes(log)
        if logged.target is None:
            continue
        config = server_config(sweep, record.at, tuple(record.warm_steps))
        if record.role == "plain" and record.at is not None:
            config = plain_config(sweep, record.at)
        placed = record.at and record.at.draft_tp
        told, again = server_memory(config, models, release, gpu), None
        if known is not None:
            corrected = replace(known, draft=drafts.get(placed, 0.0))
            again = server_memory(config, models, release, gpu, corrected)
        off = estimate_offsets(told, logged, gpu)
        known = known or off
        if logged.draft is not None:
            drafts.setdefault(placed, off.draft)
        yield MemoryUse(_label(record), told, again, logged, gpu)


def _gpu(run: Run) -> float | None:
    found = [gpu.get("memory_gib") for gpu in run.machine().get("gpus", [])]
    return min((float(gib) for gib in found if isinstance(gib, int | float)), default=None)


def _release(record: TrialRecord) -> Release | None:
    try:
        return None if record.engine_version is None else parse_version(record.engine_version)
    except UserError:
        return None


def _label(record: TrialRecord) -> str:
    if record.warm_steps:
        rest = record.at.family.label() if record.at else ""
        lengths = f"chains of {', '.join(map(str, record.warm_steps))} steps"
        return f"{lengths}, {rest}" if rest else lengths
    return record.label if record.at else NO_SPECULATION


def memory_table(run: Run, pair: ShapePair | None = None) -> str | None:
    """Estimate / log of each launch; None without such logs.

    Launches that differ in nothing but what is free are one row, with the least that was.
    """
    groups: dict[tuple[str, ...], list[MemoryUse]] = {}
    for held in launches_held(run, pair):
        groups.setdefault(tuple(held.cells()[:-1]), []).append(held)
    if not groups:
        return None
    rows = []
    for alike in groups.values():
        least = min(alike, key=lambda each: each.logged.free or 0.0)
        label = alike[0].label
        more = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
        rows.append([(label if label == NO_SPECULATION else code(label)) + more, *least.cells()])
    return markdown_table(HEADER, rows, 1)
