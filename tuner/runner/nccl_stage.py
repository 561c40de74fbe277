"""The stage `comm` within a run: timed once, kept in comm.json, followed also after a resume."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner.config.loader import LoadedSweep
from tuner.config.point import Point
from tuner.core.errors import UserError
from tuner.core.files import write_json
from tuner.core.formatting import spell_time
from tuner.execution.progress import Progress
from tuner.execution.trial import TrialRunner
from tuner.runner.budget import Budget
from tuner.server.all_reduce import CommResults, TimingOptions
from tuner.sglang.log_parser import logged_backend
from tuner.sglang.nccl.selection import (
    Narrowing,
    Screening,
    expected,
    has_choice,
    read_screening,
    screen,
)

ON_A_CLUSTER = "the servers are on a cluster's nodes, and only GPUs here can be timed"


@dataclass(frozen=True)
class Narrowed:
    """What is left to the search, and what is not launched."""

    loaded: LoadedSweep
    narrowing: Narrowing = field(default_factory=Narrowing)
    timed: Mapping[Point, float] = field(default_factory=dict)
    """What all-reduces of points were found to add to a cycle, as a share of it."""


def narrowed_by_comm(
    loaded: LoadedSweep, bench: TrialRunner, budget: Budget, progress: Progress, *, here: bool
) -> Narrowed:
    """The sweep without the points that the stage rules out; after the baseline.

    Measures where the run has no comm.json yet and the servers' GPUs are `here`. A benchmark that
    fails takes nothing away and stops nothing; comm.json and the report say why. Raises UserError
    for a comm.json that is broken, of another sweep or cannot be written.
    """
    if not has_choice(loaded):
        return Narrowed(loaded)
    run = bench.run
    screening = read_screening(run.comm_file)
    if screening is None:
        if run.ledger().candidates:
            progress.note("communication is not screened: the run began to launch without that")
            return Narrowed(loaded)
        if here and (why := budget.why_not(expected(loaded)[1])) is not None:
            progress.note(f"{why}, communication is not screened")
            return Narrowed(loaded)
        screening = _measured(loaded, bench, progress, here=here)
        _write(run.comm_file, screening)
    else:
        screening.require_same_sweep(loaded, run.comm_file)
    found = screening.narrowing(loaded.sweep, loaded.space)
    progress.note(_describe_screening(loaded, screening, found))
    left = found.of(loaded.space)
    return Narrowed(replace(loaded, space=left), found, screening.timed(loaded.sweep, left))


def _measured(
    loaded: LoadedSweep, bench: TrialRunner, progress: Progress, *, here: bool
) -> Screening:
    run, engine = bench.run, bench.engine
    baseline = run.ledger().baseline
    back_end = None if baseline is None else logged_backend(run.log_file(baseline.launch_id))
    why_not = engine.communication_refusal(loaded.sweep, os.environ) if here else ON_A_CLUSTER

    def measure(part: LoadedSweep) -> CommResults:
        return engine.screen_communication(
            part, TimingOptions(), os.environ, lambda line: progress.step(f"communication: {line}")
        )

    if why_not is None:
        settings, seconds = expected(loaded)
        about = f", about {spell_time(seconds)}" if seconds >= 60 else ""
        progress.step(f"communication: timing all-reduces under {settings} settings{about}")
    return screen(loaded, back_end, os.environ, measure, why_not)


def _write(path: Path, screening: Screening) -> None:
    try:
        write_json(path, screening.to_json())
    except OSError as error:
        message = f"{error.strerror}, free some space and resume the run"
        raise UserError(message, path) from error


def _describe_screening(loaded: LoadedSweep, screening: Screening, found: Narrowing) -> str:
    """What came of it, in one sentence."""
    points = len(loaded.space.points)
    gone = f"{len(found.reasons):,} of {points:,} points are not launched" if found.reasons else (
        "all points stay")  # fmt: skip
    if screening.screened is None:
        return f"communication was not timed ({screening.not_measured}); {gone}"
    kept = ", then ".join(each.setting.label() for each in screening.screened.keep)
    return f"communication settings worth a server: {kept}; {gone}"
