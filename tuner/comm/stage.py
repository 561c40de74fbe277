"""The stage `comm` of a search: what is timed between the baseline and the first candidate."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

from tuner.comm.benchmark import expected_s
from tuner.comm.carrier import Carrier, carriers, own_tokens
from tuner.comm.job import Wanted
from tuner.comm.measuring import measure_comm
from tuner.comm.messages import sizes_of, token_counts
from tuner.comm.narrowing import Narrowing, families, narrowing, undecided
from tuner.comm.results import FORMAT, CommResults
from tuner.comm.screening import Screened, screened_apart
from tuner.comm.settings import Setting, is_communication, settings_of
from tuner.comm.timed import Timing, timed_shares
from tuner.engine.base import server_config
from tuner.engine.prefix import LOCAL
from tuner.engine.sglang.launches import Launches
from tuner.errors import EngineFailure, UserError
from tuner.sweep.door import LoadedSweep
from tuner.sweep.model import Sweep
from tuner.sweep.point import Point
from tuner.sweep.space import Space
from tuner.whole import read_json

_OTHER_COLLECTIVES = ("attn-dp-size", "data-parallel-size", "dp-size", "enable-dp-attention")


@dataclass(frozen=True)
class Screening:
    """What the stage found, as comm.json keeps it. What follows from it is decided anew."""

    back_end: str | None
    """What carried the baseline's all-reduces, by its log; None where that is not said."""
    own_tokens: int | None
    """See `carrier.own_tokens`."""
    results: CommResults | None = None
    not_measured: str | None = None
    """Why there are no results."""
    seconds: float | None = None
    """That measuring took."""

    @cached_property
    def screened(self) -> Screened | None:
        """What is worth a server at any size; None where nothing was measured."""
        return None if self.results is None else screened_apart(self.results)

    def narrowing(self, sweep: Sweep, space: Space) -> Narrowing:
        """Which points of the space are not launched."""
        return narrowing(space.points, self._carrier(sweep), self._timing(sweep))

    def timed(self, sweep: Sweep, space: Space) -> Mapping[Point, float]:
        """What to expect of the all-reduces of points; see `timed_shares`."""
        return timed_shares(space.points, self._carrier(sweep), self._timing(sweep))

    def _carrier(self, sweep: Sweep) -> Callable[[Point], Carrier]:
        return carriers(sweep, self.back_end, self.own_tokens)

    def _timing(self, sweep: Sweep) -> Timing | None:
        if self.results is None or self.screened is None:
            return None
        return Timing(self.results, sweep.workload.concurrency, self.screened)

    def require_of(self, loaded: LoadedSweep, where: Path) -> None:
        """Raises UserError where what was timed cannot be of this sweep."""
        if self.results is None:
            return
        sweep, points, found = loaded.sweep, loaded.space.points, self.results
        counts = token_counts(points, sweep.workload.concurrency, sweep.model.tp)
        sent = {(part, tokens) for part, sizes in counts.items() for tokens in sizes}
        timed = {(part, each.tokens) for each in found.messages for part in each.parts}
        if (
            found.tp != sweep.model.tp
            or found.simulated != (sweep.engine.kind == "simulated")
            or not {each.setting for each in found.measured} <= {*settings_of(points)}
            or not timed & sent
        ):
            message = "this was timed for another sweep, restore it or begin a new run"
            raise UserError(message, where)

    def to_json(self) -> dict[str, Any]:
        """The shape of `specbench comm --out`, and what the search knows besides."""
        measured = {"format": FORMAT} if self.results is None else self.results.to_json()
        return {
            **measured,
            "screened": None if self.screened is None else self.screened.to_json(),
            "back_end": self.back_end,
            "own_tokens": self.own_tokens,
            "not_measured": self.not_measured,
            "seconds": self.seconds,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str) -> "Screening":
        """What `to_json` wrote. Raises UserError at `where` for anything else."""
        try:
            back_end, why = data["back_end"], data["not_measured"]
            most, seconds = data["own_tokens"], data["seconds"]
            for value, kinds in ((back_end, str), (why, str), (most, int), (seconds, int | float)):
                if value is not None and not isinstance(value, kinds):
                    raise TypeError(value)
            results = CommResults.from_json(data, where) if why is None else None
            return cls(back_end, most, results, why, seconds)
        except (KeyError, TypeError) as error:
            message = "this is not what specbench wrote there, restore it or begin a new run"
            raise UserError(message, where) from error


def read_screening(path: Path) -> Screening | None:
    """A run's comm.json, None where the run has none. Raises UserError for one that is broken."""
    try:
        data = read_json(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{error.strerror}, it must be readable", path) from error
    except (ValueError, RecursionError) as error:
        raise UserError("this is not JSON, restore it or begin a new run", path) from error
    return Screening.from_json(data, str(path))


def has_choice(loaded: LoadedSweep) -> bool:
    """The stage is on, and some points differ in NCCL settings alone."""
    sweep = loaded.sweep
    if "comm" not in sweep.search.active_stages or sweep.engine.kind == "endpoint":
        return False
    return sweep.model.tp > 1 and any(len(each) > 1 for each in families(loaded.space.points))


def refusal(sweep: Sweep, environment: Mapping[str, str]) -> str | None:
    """Why the benchmark cannot stand for these servers; None where it can."""
    if sweep.engine.kind == "simulated":
        return None
    launches = Launches(sweep, environment)
    if not launches.takes_gpus:
        return "the servers do not run on CUDA, so NCCL is not what they use"
    if launches.flag("nnodes") not in (None, 1):
        return "the servers run on several machines, the benchmark on one"
    flags = {name: launches.flag(name) for name in _OTHER_COLLECTIVES}
    if found := [name for name, value in flags.items() if value is True or value not in (None, 1)]:
        return f"with --{found[0]} a pass sends other messages than the benchmark"
    prefix = sweep.engine.command
    if prefix and PurePath(prefix[0]).name not in LOCAL:
        return f"engine.command begins with {prefix[0]}, which may not find the benchmark's script"
    return None


def screen(
    loaded: LoadedSweep,
    back_end: str | None,
    environment: Mapping[str, str],
    say: Callable[[str], None],
    why_not: str | None = None,
) -> Screening:
    """Time the settings that there is something to decide about, unless `why_not`.

    `say` gets a line of progress at a time. What stops the benchmark is in the answer, not
    raised; KeyboardInterrupt passes through, and no process is left.
    """
    found = Screening(back_end, own_tokens(loaded.sweep, environment))
    carrier = carriers(loaded.sweep, back_end, found.own_tokens)
    points = tuple(undecided(loaded.space.points, carrier))
    if not points:
        return replace(found, not_measured=_nothing(back_end))
    if (why := why_not or refusal(loaded.sweep, environment)) is not None:
        return replace(found, not_measured=why)
    part = replace(loaded, space=replace(loaded.space, points=points))
    began = time.monotonic()
    try:
        results = measure_comm(part, Wanted(), environment, say)
    except (UserError, EngineFailure, OSError) as error:
        return replace(found, not_measured=str(error))
    if (why := _contradiction(loaded.sweep, results)) is not None:
        return replace(found, not_measured=why)
    return replace(found, results=results, seconds=round(time.monotonic() - began, 1))


def _nothing(back_end: str | None) -> str:
    if back_end is None:
        return "the flags choose back-ends that a benchmark of NCCL says nothing about"
    return f"{back_end} carried the baseline's all-reduces, and no point with NCCL settings is "\
           "started otherwise"  # fmt: skip


def _contradiction(sweep: Sweep, results: CommResults) -> str | None:
    """Where the setting of the baseline, which ran, does not run in the benchmark."""
    env = server_config(sweep, None).env
    names = [name for name in sweep.space.env if is_communication(name) and name in env]
    own = Setting(tuple(sorted((name, env[name]) for name in names)))
    failed = [each for each in results.measured if each.setting == own and each.failure]
    if not failed:
        return None
    return f"the baseline ran with {own.label()}, the benchmark did not ({failed[0].failure}: "\
           f"{failed[0].message}), so it is not believed"  # fmt: skip


def expected(loaded: LoadedSweep) -> tuple[int, float]:
    """Settings that the stage will time, and its seconds; before anything is known of a log."""
    settings = len(settings_of(loaded.space.points))
    counts = token_counts(
        loaded.space.points, loaded.sweep.workload.concurrency, loaded.sweep.model.tp
    )
    simulated = loaded.sweep.engine.kind == "simulated"
    return settings, 0.0 if simulated else expected_s(settings, sizes_of(counts))
