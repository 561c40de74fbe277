"""What a sweep would do: every point with its exact command, what was left out, and how long.

Launches nothing; needs neither a GPU nor SGLang.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.engine.base import Command, server_config
from tuner.engine.make import make_engine
from tuner.sweep.door import LoadedSweep
from tuner.sweep.point import Point

ASSUMED_LAUNCH_S = 180.0
"""A launch of an 8B to 70B model with graph capture; no claim about yours."""
ASSUMED_TOK_S = 100.0
"""Per stream, where the file gives no reference_tok_s."""


@dataclass(frozen=True)
class Estimate:
    """How long a sweep takes, and what that rests on."""

    launches: int
    launch_s: float
    measure_s: float
    basis: str

    @property
    def hours(self) -> float:
        """Launches and measurements together."""
        return self.launches * (self.launch_s + self.measure_s) / 3600


@dataclass(frozen=True)
class Plan:
    """A sweep before it runs."""

    loaded: LoadedSweep
    baseline: Command
    commands: tuple[tuple[Point, Command], ...]
    """In the space's order; the sampler chooses another one."""
    estimate: Estimate
    notes: tuple[str, ...] = ()
    """What the engine says about the sweep: the release, what it pins, what stays different."""

    def to_json(self, limit: int | None) -> dict[str, Any]:
        """The plan as `--json` prints it; `limit` cuts the list of points."""
        space = self.loaded.space
        return {
            "sweep": self.loaded.sweep.name,
            "engine": self.loaded.sweep.engine.kind,
            "points": len(space.points),
            "dropped": dict(space.dropped),
            "collapsed": dict(space.collapsed),
            "launches": self.estimate.launches,
            "hours": round(self.estimate.hours, 2),
            "basis": self.estimate.basis,
            "notes": list(self.notes),
            "baseline": _command_json(self.baseline),
            "commands": [
                {"point": point.to_json(), **_command_json(command)}
                for point, command in self.commands[:limit]
            ],
        }


def make_plan(loaded: LoadedSweep, earlier: list[float], release: str | None = None) -> Plan:
    """Plan a sweep. `earlier` holds launch seconds of this sweep's earlier runs, if any.

    `release` plans for that SGLang instead of the installed one. Raises UserError for what the
    engine refuses.
    """
    engine = make_engine(loaded.sweep, release)
    checked = engine.check(loaded)
    loaded = checked.loaded
    sweep = loaded.sweep
    return Plan(
        notes=checked.notes,
        loaded=loaded,
        baseline=engine.command(server_config(sweep, None)),
        commands=tuple(
            (point, engine.command(server_config(sweep, point))) for point in loaded.space.points
        ),
        estimate=_estimate(loaded, earlier),
    )


def _estimate(loaded: LoadedSweep, earlier: list[float]) -> Estimate:
    sweep = loaded.sweep
    if sweep.engine.kind == "endpoint":
        launches, launch_s, basis = 0, 0.0, "the server runs already"
    else:
        points = len(loaded.space.points)
        wanted = points if sweep.search.sampler == "grid" else min(points, sweep.search.trials)
        launches = 1 + wanted
        if earlier:
            launch_s = sorted(earlier)[len(earlier) // 2]
            basis = f"{launch_s:.0f} s a launch, as in this sweep's earlier runs"
        else:
            launch_s = ASSUMED_LAUNCH_S
            basis = f"{launch_s:.0f} s a launch, assumed"
    speed = sweep.baseline.reference_tok_s or ASSUMED_TOK_S
    where = "reference_tok_s" if sweep.baseline.reference_tok_s else "assumed"
    workload, measure = sweep.workload, sweep.measure
    rounds = sum(
        measure.repeats * max(workload.requests, level) / level + measure.warmup_requests
        for level in workload.concurrency
    )
    return Estimate(
        launches=launches,
        launch_s=launch_s,
        measure_s=rounds * workload.output_tokens / speed,
        basis=f"{basis}; {speed:g} tok/s a stream, {where}",
    )


def earlier_launches(results: Path) -> list[float]:
    """Launch seconds in the ledgers of earlier runs below `results`; [] where there are none."""
    from tuner.ledger.run import Run

    found: list[float] = []
    for folder in sorted(results.glob("*/trials.jsonl")):
        found += [r.launch_s for r in Run.open(folder.parent).records() if r.launch_s is not None]
    return found


def shell_line(command: Command) -> str:
    """A command as one line of a shell: `env -u NAME NAME=value words...`."""
    words = [word for name in sorted(command.unset) for word in ("-u", name)]
    words += [f"{name}={value}" for name, value in sorted(command.env.items())]
    return shlex.join([*(["env", *words] if words else []), *command.argv])


def _command_json(command: Command) -> dict[str, Any]:
    return {
        "argv": list(command.argv),
        "env": dict(command.env),
        "unset": sorted(command.unset),
    }
