"""Slots: parts of a machine's GPUs for one server each, and the executor that launches in them."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import connection
from pathlib import Path

from tuner.config.loader import LoadedSweep
from tuner.execution.executor import LaunchFuture
from tuner.execution.launch import LaunchContext, LaunchJob, lost
from tuner.execution.launch_process import END_LIMIT_S, LaunchEnd, LaunchOrder, LaunchProcess
from tuner.execution.progress import Phase
from tuner.runs.gpu_lock import gpu_count
from tuner.runs.records import PlaceLine
from tuner.server.gpu import numa_nodes, visible_names

VISIBLE = "CUDA_VISIBLE_DEVICES"
PLAYED_GPUS = 8
"""GPUs of a simulated machine, for `slots: auto`."""
_LOCAL = frozenset({"chrt", "env", "ionice", "nice", "numactl", "stdbuf", "taskset"})
"""Prefixes that pass variables on to a process of this machine."""
_PLACING = ("base-gpu-id", "gpu-id-step", "nnodes", "use-ray", "device")
"""Flags by which a server is elsewhere than on the first of the GPUs that it sees."""


@dataclass(frozen=True)
class Slot:
    """GPUs for one server at a time, and the CPUs beside them."""

    number: int
    gpus: tuple[str, ...] | None
    """As CUDA_VISIBLE_DEVICES spells them; None: the variable is left as it is."""
    numa: int | None = None
    cpus: frozenset[int] | None = None
    """None: any."""

    @property
    def name(self) -> str:
        """`slot 0`."""
        return f"slot {self.number}"

    def words(self) -> str:
        """Return the description that a run prints as it begins."""
        gpus = "the GPUs as they are" if self.gpus is None else f"GPUs {', '.join(self.gpus)}"
        if self.cpus is None:
            return f"{self.name}: {gpus}, any CPU (their NUMA node is not known)"
        return f"{self.name}: {gpus}, CPUs {ranges(self.cpus)} of NUMA node {self.numa}"

    def line(self, *, alone: bool, slots: int | None = None) -> PlaceLine:
        """Return the form in ledger lines. `slots` is the number of slots."""
        return PlaceLine(
            name=self.name,
            gpus=None if self.gpus is None else list(self.gpus),
            numa=self.numa,
            cpus=None if self.cpus is None else ranges(self.cpus),
            alone=alone,
            slots=slots,
        )


def lay_out_slots(loaded: LoadedSweep, environment: Mapping[str, str]) -> tuple[Slot, ...]:
    """Return the slots of a sweep here, at least one. With `slots: 1` it changes nothing.

    Raises UserError, at its line, if there cannot be as many.
    """
    sweep, wanted = loaded.sweep, loaded.sweep.slots
    if wanted == 1:
        return (Slot(0, None),)
    if (why := _refusal(loaded)) is not None:
        raise loaded.document.error(("slots",), why)
    each = gpu_count(sweep)
    names: tuple[str, ...] | None = tuple(map(str, range(PLAYED_GPUS)))
    if not sweep.engine.is_simulated:
        names = visible_names(environment)
    elif isinstance(wanted, int):
        names = tuple(map(str, range(wanted * each)))
    if names is None:
        message = f"the GPUs here are not known, name them in {VISIBLE} or write slots: 1"
        raise loaded.document.error(("slots",), message)
    count = max(1, len(names) // each) if wanted == "auto" else wanted
    if count * each > len(names):
        most = len(names) // each
        may = f"write slots: {most} at most" if most else "they are too few for one"
        need = f"{count} servers need {count * each} GPUs ({each} each), {len(names)} are seen"
        raise loaded.document.error(("slots",), f"{need}: {may}")
    groups = [names[n * each : (n + 1) * each] for n in range(count)]
    if sweep.engine.is_simulated:
        return tuple(Slot(n, group) for n, group in enumerate(groups))
    nodes = numa_nodes({**environment, VISIBLE: ",".join(names)})
    return tuple(_placed(n, group, nodes) for n, group in enumerate(groups))


def planned_slots(loaded: LoadedSweep, environment: Mapping[str, str]) -> int:
    """Return the number of servers at a time for a plan, which is made anywhere.

    A number is taken as it is. `auto` is 1 if the GPUs here are too few. Raises UserError for what
    no machine can do.
    """
    wanted = loaded.sweep.slots
    if wanted == 1 or loaded.sweep.engine.is_simulated:
        return len(lay_out_slots(loaded, environment))
    if (why := _refusal(loaded)) is not None:
        raise loaded.document.error(("slots",), why)
    if isinstance(wanted, int):
        return wanted
    names = visible_names(environment) or ()
    return max(1, len(names) // gpu_count(loaded.sweep))


def slot_notes(loaded: LoadedSweep, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the notes of plans about slots, if the file has more than one."""
    if loaded.sweep.slots == 1:
        return
    count = planned_slots(loaded, environment)
    if count == 1:
        yield "slots: one server at a time, no GPUs for two are seen here"
        return
    yield (
        f"slots: {count} servers at a time, each on GPUs of its own; the baseline, its repetitions "
        "and the winner's launches run alone, and the baseline once in all slots at the same time"
    )


def _refusal(loaded: LoadedSweep) -> str | None:
    """Return why servers cannot run at the same time, or None if they can."""
    sweep = loaded.sweep
    if not sweep.engine.launches_servers:
        return "an endpoint is one server that runs already, remove slots"
    prefix = sweep.engine.command
    if prefix and Path(prefix[0]).name not in _LOCAL:
        return f"{prefix[0]} may run servers elsewhere, where slots give no GPUs, remove slots"
    sections = (sweep.server, sweep.baseline, sweep.space)
    if any(VISIBLE in section.env for section in sections):
        return f"each slot sets {VISIBLE}, remove it from the file and set it for specbench"
    for name in _PLACING:
        if any(name in section.flags for section in sections):
            return f"--{name} places servers otherwise than by slots, remove one of both"
    if not gpu_count(sweep):
        return "servers on the CPU share it, remove slots"
    return None


def _placed(number: int, group: tuple[str, ...], nodes: Mapping[str, int]) -> Slot:
    """Return a slot with the CPUs of its GPUs' NUMA node, if the GPUs share one."""
    found = {nodes.get(name) for name in group}
    node = found.pop() if len(found) == 1 else None
    if node is None:
        return Slot(number, group)
    cpus = numa_cpus(node) & os.sched_getaffinity(0)
    return Slot(number, group, node, frozenset(cpus) or None)


def numa_cpus(node: int) -> set[int]:
    """Return the CPUs of a NUMA node. Empty if the kernel does not report them."""
    try:
        text = Path(f"/sys/devices/system/node/node{node}/cpulist").read_text(encoding="ascii")
    except OSError:
        return set()
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def ranges(cpus: frozenset[int]) -> str:
    """Return `0-23,48-71`."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1][1:] = [cpu]
        else:
            parts.append([cpu])
    return ",".join("-".join(map(str, part)) for part in parts)


@dataclass(eq=False)
class _SlotLaunch:
    """A launch that runs in a slot."""

    slot: Slot
    job: LaunchJob
    process: LaunchProcess
    alone: bool
    future: LaunchFuture = field(default_factory=LaunchFuture)


class SlotExecutor:
    """Performs each launch in a process of its own, in one of the slots. See `Executor`.

    `report` gets phases with the slot's name in `place`.
    """

    def __init__(
        self, context: LaunchContext, slots: tuple[Slot, ...], report: Callable[[Phase], None]
    ) -> None:
        """`context` can be pickled (`launch.portable`)."""
        self._context, self._slots, self._report = context, slots, report
        self._running: list[_SlotLaunch] = []

    @property
    def count(self) -> int:
        """Number of slots."""
        return len(self._slots)

    def submit(self, job: LaunchJob) -> LaunchFuture:
        """Begin the launch in the first slot that is free."""
        busy = [running.slot for running in self._running]
        slot = next(slot for slot in self._slots if slot not in busy)
        for running in self._running:
            running.alone = False
        environment = dict(os.environ)
        if slot.gpus is not None:
            environment[VISIBLE] = ",".join(slot.gpus)
        process = LaunchProcess(LaunchOrder(self._context, job, slot.cpus), environment)
        self._running.append(_SlotLaunch(slot, job, process, alone=not busy))
        return self._running[-1].future

    def wait(self, futures: Sequence[LaunchFuture]) -> LaunchFuture:
        """Return one of the futures that is done, whichever slot has it."""
        while not (done := [future for future in futures if future.done()]):
            ready = connection.wait([running.process.pipe for running in self._running])
            for running in [each for each in self._running if each.process.pipe in ready]:
                message = running.process.receive()
                if isinstance(message, LaunchEnd):
                    self._finish(running, message)
                else:
                    self._report(replace(message, place=running.slot.name))
        return done[0]

    def close(self) -> None:
        """End every launch, its server first."""
        for running in self._running:
            running.process.end()
        deadline = time.monotonic() + END_LIMIT_S
        for running in list(self._running):
            self._finish(running, running.process.last(deadline))

    def _finish(self, running: _SlotLaunch, end: LaunchEnd) -> None:
        """Free the slot, and give the future its result."""
        running.process.bury()
        self._running.remove(running)
        name, result = running.slot.name, end.result
        if end.why is not None:
            why = f"the process that launched and measured on {name} {end.why}"
            result = lost(running.job, why)
        if end.error is not None:
            running.future.set_exception(end.error)
        elif result is None:
            running.future.cancel()
        else:
            result.place = running.slot.line(alone=running.alone, slots=self.count)
            running.future.set_result(result)
