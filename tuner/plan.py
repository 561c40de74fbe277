"""What a sweep would do: every point with its exact command, what was left out, and how long.

Launches nothing; needs neither a GPU nor SGLang.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tuner.comm.stage import expected, has_choice, refusal
from tuner.engine.base import Command, server_config
from tuner.engine.make import make_engine
from tuner.errors import UserError
from tuner.ledger.record import TrialRecord
from tuner.ledger.run import Run
from tuner.memory.fits import machine_of, narrowed
from tuner.memory.planned import MemoryPlan
from tuner.sweep.artificial import made_up
from tuner.sweep.door import LoadedSweep
from tuner.sweep.model import Sweep
from tuner.sweep.point import Point
from tuner.sweep.random_words import random_words
from tuner.sweep.trusted import trusted_code
from tuner.sweep.workload import held_out
from tuner.trial.baselines import launches_again
from tuner.trial.block import Block, Blocks, launches_of
from tuner.trial.confirming import confirms
from tuner.trial.sent import load_words, writes_answers
from tuner.trial.slot_rules import planned_slots, slot_notes

ASSUMED_LAUNCH_S = 180.0
"""A launch of an 8B to 70B model with graph capture; a large one takes ten minutes and more."""
SIMULATED_LAUNCH_S = 2.0
"""Seconds of this machine: an interpreter with its imports."""
ASSUMED_TOK_S = 100.0
"""Per stream, where neither an earlier run nor the file's reference_tok_s says it."""


@dataclass(frozen=True)
class Estimate:
    """How long a sweep takes, and what that rests on."""

    launches: int
    trials: int
    """Points to measure, the baseline among them; what is launched again counts again."""
    launch_s: float
    measure_s: float
    """Of one point."""
    basis: str
    comm_s: float = 0.0
    """Of the stage comm."""
    slots: int = 1
    beside: tuple[int, int] = (0, 0)
    """Launches and points of them that are measured in slots side by side."""

    @property
    def hours(self) -> float:
        """Launches, measurements and the stage comm together."""
        launches, trials = self.beside
        apart = 1 - 1 / self.slots
        servers = (self.launches - launches * apart) * self.launch_s
        servers += (self.trials - trials * apart) * self.measure_s
        return (servers + self.comm_s) / 3600


@dataclass(frozen=True)
class Plan:
    """A sweep before it runs."""

    loaded: LoadedSweep
    baseline: Command
    commands: tuple[tuple[Point, Command], ...]
    """In the space's order; the sampler chooses another one."""
    shared: tuple[tuple[Block, Command], ...]
    """What one launch measures together, with that launch; the points' own commands are theirs in
    production."""
    estimate: Estimate
    memory: MemoryPlan | None = None
    """None where the GPUs' memory is not known."""
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
            "slots": self.estimate.slots,
            "basis": self.estimate.basis,
            "load": load_words(self.loaded),
            "memory": None if self.memory is None else self.memory.to_json(),
            "notes": list(self.notes),
            "baseline": self.baseline.to_json(),
            "shared_launches": [
                {
                    "points": [point.to_json() for point in block.points],
                    **command.to_json(),
                }
                for block, command in self.shared[:limit]
            ],
            "commands": [
                {"point": point.to_json(), **command.to_json()}
                for point, command in self.commands[:limit]
            ],
        }


def make_plan(
    loaded: LoadedSweep,
    earlier: Sequence[TrialRecord],
    release: str | None = None,
    gpu_gib: float | None = None,
    launch_s: float | None = None,
) -> Plan:
    """Plan a sweep. `earlier` holds trials of this sweep's earlier runs, if any.

    `release` plans for that SGLang instead of the installed one, `gpu_gib` for GPUs of that memory
    instead of this machine's, `launch_s` with launches that take so long. Raises UserError for
    what the engine refuses, and for servers that cannot fit.
    """
    engine = make_engine(loaded.sweep, release)
    machine = machine_of(engine, loaded.sweep, gpu_gib)
    checked = narrowed(engine.check(loaded), machine)
    loaded = checked.loaded
    sweep, blocks = loaded.sweep, Blocks.of(engine, loaded)
    return Plan(
        notes=(
            *checked.notes,
            *([trusted] if (trusted := trusted_code(sweep)) is not None else []),
            *blocks.notes(),
            *_comm_notes(loaded),
            *slot_notes(loaded, os.environ),
            *_prompt_notes(loaded),
            *_task_notes(loaded),
        ),
        loaded=loaded,
        baseline=engine.command(server_config(sweep, None)),
        commands=tuple(
            (point, engine.command(server_config(sweep, point))) for point in loaded.space.points
        ),
        shared=tuple((block, engine.command(block.config(sweep))) for block in blocks.of_sweep),
        memory=MemoryPlan.of(
            machine,
            [
                ("no speculation", server_config(sweep, None)),
                *((block.label(), block.config(sweep)) for block in blocks.of_sweep),
                *((each.label(), server_config(sweep, each)) for each in loaded.space.points),
            ],
        ),
        estimate=_estimate(loaded, blocks, earlier, launch_s),
    )


def _estimate(
    loaded: LoadedSweep, blocks: Blocks, earlier: Sequence[TrialRecord], given_s: float | None
) -> Estimate:
    sweep = loaded.sweep
    launches, trials, workload = 0, 1, sweep.workload
    slots, beside = planned_slots(loaded, os.environ), (0, 0)
    if sweep.engine.kind != "endpoint":
        points = len(loaded.space.points)
        wanted = points if sweep.search.sampler == "grid" else min(points, sweep.search.trials)
        scored = bool(loaded.task) and made_up(sweep, os.environ) is None
        confirmed = confirms(sweep, shared=bool(blocks.of_sweep), scored=scored)
        candidates = launches_of(blocks, points, wanted)
        again = launches_again(sweep.baseline.launches, candidates)
        plain = any(point.settings is not None for point in loaded.space.points)
        more = again + confirmed + plain
        abreast = slots if slots > 1 else 0
        beside = (candidates + abreast, wanted + abreast)
        writes = writes_answers(loaded)
        launches, trials = 1 + beside[0] + more + writes, 1 + beside[1] + more
        most = max(map(workload.requests_at, workload.levels))
        if confirmed and held_out(loaded.prompts, most, workload.seed):
            trials += 2  # the other prompts: of the baseline, of the winner
    launch_s, launch_basis = _launch_time(sweep, earlier)
    if given_s is not None and sweep.engine.kind == "sglang":
        launch_s, launch_basis = given_s, "as --launch says"
    speed, speed_basis = _stream_speed(sweep, earlier)
    measure = sweep.measure
    one = workload.output_tokens / speed
    measure_s = 0.0
    for level in workload.levels:
        count, rate = workload.requests_at(level), workload.rate(level)
        window = max(1.0, count / workload.streams(level)) * one
        if rate is not None:  # the last one comes then, and takes its time
            window = max(window, count / rate + one)
        measure_s += measure.windows * window + measure.warmup_requests * one
    return Estimate(
        launches=launches,
        trials=trials,
        launch_s=launch_s,
        measure_s=measure_s,
        basis=f"{launch_s:.0f} s a launch, {launch_basis}; "
        f"{speed:.4g} tok/s a stream, {speed_basis}",
        comm_s=expected(loaded)[1] if _times_comm(loaded) else 0.0,
        slots=slots,
        beside=beside,
    )


def _times_comm(loaded: LoadedSweep) -> bool:
    return has_choice(loaded) and refusal(loaded.sweep, os.environ) is None


def _prompt_notes(loaded: LoadedSweep) -> Iterator[str]:
    """How a file of prompts was read, who writes what it lacks, and prompts that no answer about
    speculation comes from."""
    if loaded.prompts_read is not None:
        yield f"{loaded.sweep.workload.prompts} is read as {loaded.prompts_read}"
    if writes_answers(loaded):
        own = loaded.sweep.engine.kind != "endpoint"
        yield (
            f"{'one more launch' if own else 'the server'} without speculation writes the answers "
            "between turns first (conversations.jsonl)"
        )
    found = random_words([prompt.text for prompt in loaded.prompts])
    if found is not None:
        yield f"{found}: acceptance on them tells nothing of real traffic, use real prompts"


def _comm_notes(loaded: LoadedSweep) -> Iterator[str]:
    """What the stage comm will do, where there is something for it to do."""
    if not has_choice(loaded):
        return
    if (why := refusal(loaded.sweep, os.environ)) is not None:
        yield f"communication will not be timed before candidates are launched: {why}"
        return
    settings, seconds = expected(loaded)
    about = f", about {seconds / 60:.0f} min (ASSUMED)" if seconds else ""
    yield (
        f"after the baseline, all-reduces are timed under {settings} communication settings"
        f"{about}; points whose setting is the same as another's, or loses, are not launched "
        "(search.stages without comm launches them)"
    )


def _task_notes(loaded: LoadedSweep) -> Iterator[str]:
    workload = loaded.sweep.workload
    if not loaded.task or loaded.sweep.engine.kind == "endpoint":
        return
    if (why := made_up(loaded.sweep, os.environ)) is not None:
        yield f"the questions of {workload.task} are not put to any server: {why}"
        return
    yield (
        f"the {len(loaded.task)} questions of {workload.task} are put to the baseline and to the "
        "winner, which is launched once more for them; they are not in the estimate"
    )


def _launch_time(sweep: Sweep, earlier: Sequence[TrialRecord]) -> tuple[float, str]:
    known = [
        record.launch_s for record in earlier if record.launch_s is not None and record.proposed
    ]
    if sweep.engine.kind == "endpoint":
        return 0.0, "the server runs already"
    if sweep.engine.kind == "simulated":
        return SIMULATED_LAUNCH_S, "of this machine's time"
    if known:
        return median(known), "as in this sweep's earlier runs"
    return ASSUMED_LAUNCH_S, (
        "ASSUMED: large models take ten minutes and more, plan --launch 15m reckons with yours"
    )


def _stream_speed(sweep: Sweep, earlier: Sequence[TrialRecord]) -> tuple[float, str]:
    measured = [
        record.metrics.get("1", {}).get("decode_tok_s")
        for record in earlier
        if record.role == "baseline"
    ]
    known = [speed for speed in measured if isinstance(speed, int | float) and speed > 0]
    if known:
        return median(known), "as in this sweep's earlier runs"
    if sweep.baseline.reference_tok_s is not None:
        return sweep.baseline.reference_tok_s, "reference_tok_s"
    return ASSUMED_TOK_S, "ASSUMED"


def earlier_trials(results: Path, engine: str) -> list[TrialRecord]:
    """Trials of earlier runs below `results` on the same kind of engine; [] without any.

    Runs that cannot be read are left out: an estimate is no place to refuse an old folder.
    """
    records: list[TrialRecord] = []
    for folder in sorted(path.parent for path in results.glob("*/run.json")):
        with suppress(UserError, RecursionError):  # the latter is how json refuses deep nesting
            records += Run.open(folder).ledger().records
    return [record for record in records if record.engine == engine]
