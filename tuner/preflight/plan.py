"""What a sweep would do: every point with its exact command, what was left out, and how long.

Launches nothing; needs neither a GPU nor SGLang.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tuner.config.field_types import when
from tuner.config.loader import LoadedSweep
from tuner.config.point import Point
from tuner.config.random_text import describe_random_text
from tuner.config.schema import Sweep
from tuner.config.synthetic import made_up, trusted_code
from tuner.core.formatting import spell_time
from tuner.engines import make_engine
from tuner.execution.request_plan import describe_load, writes_answers
from tuner.execution.slots import slot_notes
from tuner.execution.step_blocks import Block, Blocks
from tuner.preflight.estimate import Earlier, Estimate, estimate_sweep
from tuner.server.base import Command, Engine, server_config
from tuner.server.memory import MemoryPlan, without_misfits
from tuner.sglang.nccl.selection import expected, has_choice


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
            "launches_by_role": dict(self.estimate.by_role),
            "hours": round(self.estimate.hours, 4),
            "slots": self.estimate.slots,
            "basis": self.estimate.basis,
            "load": describe_load(self.loaded),
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
    earlier: Earlier = Earlier(),  # noqa: B008 - it is frozen
    release: str | None = None,
    gpu_gib: float | None = None,
    launch_s: float | None = None,
) -> Plan:
    """Plan a sweep. `earlier` holds what this sweep's earlier runs took, if any.

    `release` plans for that SGLang instead of the installed one, `gpu_gib` for GPUs of that memory
    instead of this machine's, `launch_s` with launches that take so long. Raises UserError for
    what the engine refuses, and for servers that cannot fit.
    """
    engine = make_engine(loaded.sweep, release)
    memory = engine.estimate_memory(loaded.sweep, gpu_gib)
    checked = without_misfits(engine.check(loaded), memory)
    loaded = checked.loaded
    sweep, blocks = loaded.sweep, Blocks.of(engine, loaded)
    return Plan(
        notes=(
            *checked.notes,
            *([trusted] if (trusted := trusted_code(sweep)) is not None else []),
            *blocks.notes(),
            *_comm_notes(loaded, engine),
            *slot_notes(loaded, os.environ),
            *_prompt_notes(loaded),
            *_task_notes(loaded),
            *_deadline_notes(sweep, datetime.now().astimezone()),
        ),
        loaded=loaded,
        baseline=engine.command(server_config(sweep, None)),
        commands=tuple(
            (point, engine.command(server_config(sweep, point))) for point in loaded.space.points
        ),
        shared=tuple((block, engine.command(block.config(sweep))) for block in blocks.of_sweep),
        memory=MemoryPlan.of(
            memory,
            [
                ("no speculation", server_config(sweep, None)),
                *((block.label(), block.config(sweep)) for block in blocks.of_sweep),
                *((each.label(), server_config(sweep, each)) for each in loaded.space.points),
            ],
        ),
        estimate=estimate_sweep(loaded, blocks, earlier, launch_s),
    )


def _prompt_notes(loaded: LoadedSweep) -> Iterator[str]:
    """How a file of prompts was read, who writes what it lacks, and prompts that no answer about
    speculation comes from."""
    if loaded.prompts_read is not None:
        yield f"{loaded.sweep.workload.prompts} is read as {loaded.prompts_read}"
    if loaded.answers:
        count, file = len(loaded.answers), loaded.sweep.workload.answers
        yield f"the answers between turns of {count} conversations are those of {file}"
    if writes_answers(loaded):
        own = loaded.sweep.engine.launches_servers
        yield (
            f"{'one more launch' if own else 'the server'} without speculation writes the answers "
            "between turns first (conversations.jsonl)"
        )
    found = describe_random_text([prompt.text for prompt in loaded.prompts])
    if found is not None:
        yield f"{found}: acceptance on them tells nothing of real traffic, use real prompts"


def _comm_notes(loaded: LoadedSweep, engine: Engine) -> Iterator[str]:
    """What the stage comm will do, where there is something for it to do."""
    if not has_choice(loaded):
        return
    if (why := engine.communication_refusal(loaded.sweep, os.environ)) is not None:
        yield f"communication will not be timed before candidates are launched: {why}"
        return
    settings, seconds = expected(loaded)
    about = f", about {spell_time(seconds)} (ASSUMED)" if seconds else ""
    yield (
        f"after the baseline, all-reduces are timed under {settings} communication settings"
        f"{about}; points whose setting is the same as another's, or loses, are not launched "
        "(search.stages without comm launches them)"
    )


def _task_notes(loaded: LoadedSweep) -> Iterator[str]:
    workload = loaded.sweep.workload
    if not loaded.task or not loaded.sweep.engine.launches_servers:
        return
    if (why := made_up(loaded.sweep, os.environ)) is not None:
        yield f"the questions of {workload.task} are not put to any server: {why}"
        return
    yield (
        f"the {len(loaded.task)} questions of {workload.task} are put to the baseline and to the "
        "winner, which is launched once more for them; they are not in the estimate"
    )


def _deadline_notes(sweep: Sweep, now: datetime) -> Iterator[str]:
    deadline = sweep.search.deadline
    if deadline is None:
        return
    left = (when(deadline, now) - now).total_seconds()
    if left <= 0:
        yield f"search.deadline {deadline} is over, sweep --deadline 07:30 gives another one"
    else:
        yield (
            f"nothing is begun that is not expected to end before search.deadline {deadline}, "
            f"{spell_time(left)} from now"
        )
