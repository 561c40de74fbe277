"""How long a sweep takes: what is launched and measured, and what earlier runs of it took."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tuner.config.conversation import Prompt
from tuner.config.load_level import Level
from tuner.config.loader import LoadedSweep
from tuner.config.schema import Sweep
from tuner.config.synthetic import made_up
from tuner.core.errors import UserError
from tuner.core.formatting import spell_time
from tuner.engines import make_engine
from tuner.execution.launch import warm_up
from tuner.execution.request_plan import plan_requests, writes_answers
from tuner.execution.schedule import confirms, launches_again
from tuner.execution.slots import planned_slots
from tuner.execution.step_blocks import Blocks, count_launches
from tuner.runs.machine import machine_facts
from tuner.runs.records import TrialRecord
from tuner.runs.run import Run
from tuner.sglang.nccl.selection import expected, has_choice

_PARTS = {
    "answers": ("for the answers between turns", "for the answers between turns"),
    "baseline": ("baseline", "baselines"),
    "abreast": ("baseline beside others", "baselines beside each other"),
    "candidate": ("for candidates", "for candidates"),
    "confirm": ("confirmation of the winner", "confirmations of the winner"),
    "plain": ("of its settings alone", "of its settings alone"),
}
ASSUMED_LAUNCH_S = 180.0
"""A launch of an 8B to 70B model with graph capture; a large one takes ten minutes and more."""
SIMULATED_LAUNCH_S = 2.0
"""Seconds of this machine: an interpreter with its imports."""
ASSUMED_TOK_S = 100.0
"""Per stream, where neither an earlier run nor the file's reference_tok_s says it."""


@dataclass(frozen=True)
class Earlier:
    """Trials of a sweep's earlier runs."""

    trials: Sequence[TrialRecord] = ()
    on: str | None = None
    """The GPUs that they ran on, where this machine has none to compare with."""

    @property
    def words(self) -> str:
        """Where a figure of them comes from."""
        return "as in this sweep's earlier runs" + ("" if self.on is None else f" on {self.on}")


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
    by_role: Mapping[str, int] = field(default_factory=dict)
    """The launches by what they are for: the ledger's roles, and `answers` between turns."""

    @property
    def parts(self) -> str:
        """The launches in words; "" where nothing is launched."""
        return ", ".join(
            f"{count} {one if count == 1 else many}"
            for role, count in self.by_role.items()
            if count
            for one, many in [_PARTS[role]]
        )

    @property
    def hours(self) -> float:
        """Launches, measurements and the stage comm together."""
        launches, trials = self.beside
        apart = 1 - 1 / self.slots
        servers = (self.launches - launches * apart) * self.launch_s
        servers += (self.trials - trials * apart) * self.measure_s
        return (servers + self.comm_s) / 3600


def earlier_runs(results: Path, engine: str) -> Earlier:
    """Trials of the runs in `results` on the same kind of engine, and on GPUs like this machine's.

    Where this machine has no GPU, as a laptop that a sweep is planned on, those of the newest run
    count. Runs that cannot be read are left out: an estimate is no place to refuse an old folder.
    """
    found: list[tuple[list[str], list[TrialRecord]]] = []
    for folder in sorted(path.parent for path in results.glob("*/run.json")):
        with suppress(UserError, RecursionError):  # the latter is how json refuses deep nesting
            run = Run.open(folder)
            known = [each for each in run.ledger().records if each.engine == engine]
            if known:
                found.append((_gpus(run.machine()), known))
    here = _gpus(machine_facts())
    gpus = here or (found[-1][0] if found else [])
    trials = [each for like, known in found if like == gpus for each in known]
    return Earlier(trials, None if here or not gpus else _describe(gpus))


def _gpus(facts: dict[str, Any]) -> list[str]:
    return sorted(str(gpu.get("name")) for gpu in facts.get("gpus", []))


def _describe(gpus: Sequence[str]) -> str:
    return ", ".join(f"{gpus.count(name)}x {name}" for name in dict.fromkeys(gpus))


def estimate_sweep(
    loaded: LoadedSweep, blocks: Blocks, earlier: Earlier, given_s: float | None
) -> Estimate:
    """How long a sweep takes; `given_s` is what the user says of a launch."""
    sweep = loaded.sweep
    by_role, trials, workload = dict.fromkeys(_PARTS, 0), 1, sweep.workload
    slots, beside = planned_slots(loaded, os.environ), (0, 0)
    sent = plan_requests(loaded)
    if sweep.engine.launches_servers:
        points = len(loaded.space.points)
        wanted = points if sweep.search.sampler == "grid" else min(points, sweep.search.trials)
        scored = bool(loaded.task) and made_up(sweep, os.environ) is None
        confirmed = confirms(sweep, shared=bool(blocks.of_sweep), scored=scored)
        candidates = count_launches(blocks, points, wanted)
        again = launches_again(sweep.baseline.launches, candidates)
        plain = any(point.settings is not None for point in loaded.space.points)
        more = again + confirmed + plain
        abreast = slots if slots > 1 else 0
        beside = (candidates + abreast, wanted + abreast)
        writes = writes_answers(loaded)
        trials = 1 + beside[1] + more
        by_role = {
            "answers": int(writes),
            "baseline": 1 + again,
            "abreast": abreast,
            "candidate": candidates,
            "confirm": int(confirmed),
            "plain": int(plain),
        }
        if confirmed and any(sent.unseen.values()):
            trials += 2  # the other prompts: of the baseline, of the winner
    launch_s, launch_basis = _launch_time(sweep, earlier)
    if given_s is not None and sweep.engine.uses_gpus:
        launch_s, launch_basis = given_s, "as --launch says"
    speed, speed_basis = _stream_speed(sweep, earlier)
    measure = sweep.measure
    one = workload.output_tokens / speed
    measure_s = 0.0
    for level in workload.levels:
        window = _takes_s(sweep, level, sent.chosen_on[level], one)
        first = _takes_s(sweep, level, warm_up(sweep, level, sent.chosen_on[level]), one)
        measure_s += measure.windows * window + first
    return Estimate(
        launches=sum(by_role.values()),
        trials=trials,
        launch_s=launch_s,
        measure_s=measure_s,
        basis=f"{spell_time(launch_s)} a launch, {launch_basis}; "
        f"{speed:.4g} tok/s a stream, {speed_basis}",
        comm_s=expected(loaded)[1] if _times_comm(loaded) else 0.0,
        slots=slots,
        beside=beside,
        by_role=by_role,
    )


def _takes_s(sweep: Sweep, level: Level, sent: Sequence[Prompt], one: float) -> float:
    """Seconds until the level's server has answered them, at `one` for each."""
    if not sent:
        return 0.0
    rate, talks = sweep.workload.rate(level), sum(not each.follows for each in sent)
    turns = len(sent) / talks
    seconds = max(turns, len(sent) / sweep.workload.streams(level)) * one
    # At a rate the last one comes then, and takes its time, turn by turn.
    return seconds if rate is None else max(seconds, talks / rate + turns * one)


def _times_comm(loaded: LoadedSweep) -> bool:
    engine = make_engine(loaded.sweep)
    return has_choice(loaded) and engine.communication_refusal(loaded.sweep, os.environ) is None


def _launch_time(sweep: Sweep, earlier: Earlier) -> tuple[float, str]:
    known = [
        record.launch_s
        for record in earlier.trials
        if record.launch_s is not None and record.proposed
    ]
    if not sweep.engine.launches_servers:
        return 0.0, "the server runs already"
    if sweep.engine.is_simulated:
        return SIMULATED_LAUNCH_S, "of this machine's time"
    if known:
        return median(known), earlier.words
    return ASSUMED_LAUNCH_S, (
        "ASSUMED: large models take ten minutes and more, plan --launch 15m reckons with yours"
    )


def _stream_speed(sweep: Sweep, earlier: Earlier) -> tuple[float, str]:
    measured = [
        record.metrics.get("1", {}).get("decode_tok_s")
        for record in earlier.trials
        if record.role == "baseline"
    ]
    known = [speed for speed in measured if isinstance(speed, int | float) and speed > 0]
    if known:
        return median(known), earlier.words
    if sweep.baseline.reference_tok_s is not None:
        return sweep.baseline.reference_tok_s, "reference_tok_s"
    return ASSUMED_TOK_S, "ASSUMED"
