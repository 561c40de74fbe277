"""What a run has cost, in time of its GPUs."""

from dataclasses import dataclass

from tuner.ledger.lines import Ledger
from tuner.sweep.model import Sweep


@dataclass(frozen=True)
class Spent:
    """Time of servers, launching and under load."""

    hours: float
    gpus: int
    """That each server holds."""
    unknown: int
    """Launches that ended before they said how long they took, those before a retry and those that
    were cut off among them: `hours` is without them."""

    @property
    def gpu_hours(self) -> float:
        """Of all GPUs together."""
        return self.hours * self.gpus

    def paid_back_after(self, speedup: float) -> float | None:
        """Hours of serving, at that many times the baseline's speed, that save as much as was
        spent; None where nothing is saved. Each such hour does the work of `speedup` hours."""
        return self.hours / (speedup - 1) if speedup > 1 else None


def spent(ledger: Ledger, sweep: Sweep) -> Spent | None:
    """None where nothing is known, and for a server that this run did not launch."""
    launches = {record.launch_id: record.launch_s for record in ledger.records}
    known = [seconds for seconds in launches.values() if seconds is not None]
    measured = [r.measured_s for r in ledger.records if r.measured_s is not None]
    if sweep.engine.kind == "endpoint" or not known:
        return None
    seconds = sum(known) + sum(measured)
    return Spent(seconds / 3600, gpus_of(sweep), ledger.next_launch - len(known))


def gpus_of(sweep: Sweep) -> int:
    """GPUs that a server holds: tensor-parallel ranks by pipeline stages, times replicas without DP
    attention."""
    flags = sweep.server.flags
    if flags.get("device") == "cpu":
        return 0
    replicas = _size(sweep, "dp-size", "data-parallel-size")
    stages = _size(sweep, "pp-size", "pipeline-parallel-size")
    return sweep.model.tp * stages * (1 if flags.get("enable-dp-attention") else replicas)


def _size(sweep: Sweep, *names: str) -> int:
    sizes = [sweep.server.flags.get(name) for name in names]
    return max([size for size in sizes if isinstance(size, int)], default=1)
