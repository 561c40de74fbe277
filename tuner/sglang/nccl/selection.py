"""The stage `comm` of a search: what is timed between the baseline and the first candidate."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any, Literal

from tuner.config.loader import LoadedSweep
from tuner.config.point import Point
from tuner.config.schema import Sweep
from tuner.config.space import Space
from tuner.core.errors import EngineFailure, UserError
from tuner.core.files import read_json
from tuner.server.all_reduce import (
    FORMAT,
    CommResults,
    Setting,
    SettingResult,
    count_sizes,
    is_communication,
    is_nccl,
    list_settings,
    token_counts,
    without_nccl,
)
from tuner.server.base import ServerConfig, server_config
from tuner.server.lifecycle import LOCAL
from tuner.sglang.log_parser import THROUGH_NCCL
from tuner.sglang.nccl.benchmark import BACK_END_FLAGS, expected_s
from tuner.sglang.nccl.messages import BYTES, message_shape
from tuner.sglang.nccl.screening import Screened, screened_apart
from tuner.sglang.server_settings import Launches

Carrier = Literal["own kernels", "NCCL", "another"]
"""`own kernels`: SGLang's, as the baseline's log shows, so that NCCL settings do nothing.
`NCCL`: NCCL, or not known: where it is not on the path after all, its settings do nothing.
`another`: a back-end that a benchmark of NCCL says nothing about."""

OWN_BYTES = 8 * 2**20
"""Custom all-reduce takes messages up to this on every GPU and leaves larger ones to NCCL
(custom_all_reduce.py:42 of SGLang 0.5.17; the newer kind takes 16 MiB and more)."""
ANY_TOKENS = 10**9
"""Of a simulated server, whose own kernels carry every size."""
_OTHERS = (
    "enable-dp-attention",  # gathers and scatters in place of reducing
    "enable-flashinfer-allreduce-fusion",
    "enable-mscclpp",
    "enable-symm-mem",
    "enable-torch-symm-mem",
)
_CHOOSING = (*BACK_END_FLAGS, "enable-deterministic-inference")
"""Flags that have a say in it."""


def own_tokens(sweep: Sweep, environment: Mapping[str, str]) -> int | None:
    """The most tokens of a pass that SGLang's own kernels carry; None where the model's shape is
    not known here."""
    if sweep.engine.is_simulated:
        return ANY_TOKENS
    try:
        shape = message_shape(sweep, environment, None, None)
    except UserError:
        return None
    width = max(shape.hidden, shape.draft_hidden or 0)
    return OWN_BYTES // (width * BYTES[shape.dtype])


def carriers(sweep: Sweep, back_end: str | None, most: int | None) -> Callable[[Point], Carrier]:
    """For any point of the sweep. `back_end` is what the baseline's log shows, None: nothing;
    `most` is `own_tokens`."""
    base = _chosen_by(server_config(sweep, None))
    shown_own = back_end is not None and back_end not in THROUGH_NCCL

    def carrier(point: Point) -> Carrier:
        config = server_config(sweep, point)
        if any(config.flags.get(name) is True for name in _OTHERS):
            return "another"
        if dict(point.flags).get("enable-nccl-nvls"):  # the benchmark has the server's flags alone
            return "another"
        if shown_own and _chosen_by(config) == base and _fits(point, sweep, most):
            return "own kernels"
        return "NCCL"

    return carrier


def _chosen_by(config: ServerConfig) -> tuple[object, ...]:
    """What SGLang chooses a back-end by."""
    flags = tuple(config.flags.get(name) or False for name in _CHOOSING)
    env = {name: value for name, value in config.env.items() if not is_nccl(name)}
    return flags, env, {name for name in config.unset if not is_nccl(name)}


def _fits(point: Point, sweep: Sweep, most: int | None) -> bool:
    """All its all-reduces are of the target's group, and small enough."""
    if most is None or point.num_draft_tokens is None:
        return False
    if point.draft_tp not in (None, "target", 1):
        return False  # a group of its own, which no log was read of
    return point.num_draft_tokens * max(sweep.workload.concurrency) <= most


CLEARLY = 0.05
"""How much slower a setting must be at a point's sizes alone; at every size of the benchmark, 3 %
are enough (`screening.THRESHOLD`)."""
SHARE, MOST = 0.3, 0.3
"""ASSUMED, of all-reduces in a cycle under the best setting; and the most that is expected of a
worse one, as a share of a cycle. Launches soon say more."""


@dataclass(frozen=True)
class Timing:
    """A benchmark beside the points that it was made for."""

    results: CommResults
    levels: Sequence[int]
    """Concurrency."""
    screened: Screened
    """What is worth a server, over all sizes (`screened_apart`)."""
    _ratios: dict[tuple[Setting, Setting, int], bool] = field(default_factory=dict)

    @cached_property
    def rows(self) -> Mapping[Setting, SettingResult]:
        """Settings that ran."""
        return {each.setting: each for each in self.results.usable}

    def beats(self, one: Setting, other: Setting, point: Point) -> bool:
        """`one` is clearly faster than `other` at every size that the point sends."""
        counts = token_counts([point], self.levels, self.results.tp)
        places = {p for part, sizes in counts.items() for n in sizes for p in self._near(part, n)}
        return bool(places) and all(self._is_faster(one, other, place) for place in places)

    def share(self, point: Point) -> float | None:
        """What the point's verify passes take beside the fastest setting's, as a share of a cycle;
        None where its setting was not timed."""
        row = self.rows.get(Setting.of(point))
        if row is None:
            return None
        counts = token_counts([point], self.levels, self.results.tp)["verify"]
        places = [place for tokens in counts for place in self._near("verify", tokens)]
        logs = [math.log(row.latency(place).value / self._lowest[place]) for place in places]
        return min(MOST, SHARE * (math.exp(math.fsum(logs) / len(logs)) - 1)) if logs else None

    @cached_property
    def _lowest(self) -> list[float]:
        """The lowest latency at each size."""
        count = range(len(self.results.messages))
        return [min(row.latency(place).value for row in self.rows.values()) for place in count]

    def _near(self, part: str, tokens: int) -> set[int]:
        """The messages of that part with so many tokens, or those on both sides of them."""
        sizes = [
            (message.tokens, place)
            for place, message in enumerate(self.results.messages)
            if part in message.parts
        ]
        below = max((each for each in sizes if each[0] <= tokens), default=None)
        above = min((each for each in sizes if each[0] >= tokens), default=None)
        return {each[1] for each in (below, above) if each is not None}

    def _is_faster(self, one: Setting, other: Setting, place: int) -> bool:
        key = one, other, place
        if key not in self._ratios:
            ratio = self.rows[other].ratio(self.rows[one], place)
            self._ratios[key] = (
                ratio.low is not None and ratio.low > 1 and ratio.value >= 1 + CLEARLY
            )
        return self._ratios[key]


def timed_shares(
    points: Iterable[Point], carrier: Callable[[Point], Carrier], timing: Timing | None
) -> Mapping[Point, float]:
    """What points' all-reduces add to their cycles beside the fastest setting's, as a share.

    0 where NCCL carries nothing; without a point that nothing is known of.
    """
    found = {}
    for point in points:
        kind = carrier(point)
        if kind == "own kernels":
            found[point] = 0.0
        elif kind == "NCCL" and timing is not None and (share := timing.share(point)) is not None:
            found[point] = share
    return found


OFF_PATH = "NCCL does not carry their all-reduces, so one NCCL setting is enough"
SAME = "all-reduces cannot be told apart from those under another setting (comm.json)"
SLOWER = "all-reduces are slower at every size than under another setting (comm.json)"
SLOWER_HERE = "all-reduces of their sizes are slower than under another setting (comm.json)"


@dataclass(frozen=True)
class Narrowing:
    """What is not launched; everything else is."""

    reasons: dict[Point, str] = field(default_factory=dict)
    """Points that are not launched, each with the reason."""
    stand_ins: dict[Point, Point] = field(default_factory=dict)
    """Those of them that another point stands for; the rest lost."""

    def of(self, space: Space) -> Space:
        """The space that is left."""
        lost = {p: why for p, why in self.reasons.items() if p not in self.stand_ins}
        return space.merged(self.stand_ins, self.reasons).without(lost)

    @property
    def counts(self) -> Mapping[str, int]:
        """Reason -> points, as decisions carry it."""
        return dict(Counter(self.reasons.values()))


def narrowing(
    points: Sequence[Point], carrier: Callable[[Point], Carrier], timing: Timing | None
) -> Narrowing:
    """What need not be launched of `points`. `timing` is None where nothing was timed.

    A point is only left out where the one that stands for it, or beats it, is in the space and
    differs in NCCL settings alone, or where all-reduces did not run under its setting. Nothing is
    left out where nothing would be left.
    """
    found = Narrowing()
    for family in families(points):
        kind = carrier(family[0])
        if kind == "own kernels":
            _merge(family, timing, found)
        elif kind == "NCCL" and timing is not None:
            _screen(family, timing.screened, found)
            _hold_against([each for each in family if each not in found.reasons], timing, found)
    return Narrowing() if len(found.reasons) == len(points) else found


def families(points: Iterable[Point]) -> list[list[Point]]:
    """Points that differ in NCCL settings alone, together."""
    found: dict[Point, list[Point]] = {}
    for point in points:
        found.setdefault(without_nccl(point), []).append(point)
    return list(found.values())


def undecided(points: Iterable[Point], carrier: Callable[[Point], Carrier]) -> list[Point]:
    """Points whose NCCL setting is for the benchmark to judge: there are others to hold it
    against, and NCCL may carry their all-reduces."""
    told = [f for f in families(points) if len(f) > 1 and carrier(f[0]) == "NCCL"]
    return [point for family in told for point in family]


def _merge(family: Sequence[Point], timing: Timing | None, found: Narrowing) -> None:
    """One of them is enough: the plainest, of those that are not known not to run."""
    failed = {} if timing is None else timing.screened.failed
    running = [point for point in family if Setting.of(point) not in failed]
    chosen = min(running or family, key=lambda point: len(point.env))
    for point in family:
        if point != chosen:
            _leave_out(found, point, OFF_PATH, chosen)


def _screen(family: Sequence[Point], screened: Screened, found: Narrowing) -> None:
    """By what holds at every size."""
    by_setting = {Setting.of(point): point for point in family}
    has_winner = any(kept.setting in by_setting for kept in screened.keep)
    measured = {*screened.ranked()}
    for setting, point in by_setting.items():
        if setting not in measured:
            continue
        chosen = screened.representative(setting)
        if (failure := screened.failed.get(setting)) is not None:
            _leave_out(found, point, f"all-reduces ended in {failure} (comm.json)")
        elif chosen is None and has_winner:
            _leave_out(found, point, SLOWER)
        elif chosen is not None and chosen != setting and chosen in by_setting:
            _leave_out(found, point, SAME, by_setting[chosen])


def _hold_against(left: Sequence[Point], timing: Timing, found: Narrowing) -> None:
    """By what holds at the sizes of these points, which differ in NCCL settings alone."""
    timed = {Setting.of(point): point for point in left if Setting.of(point) in timing.rows}
    for setting, point in timed.items():
        if any(timing.beats(other, setting, point) for other in timed if other != setting):
            _leave_out(found, point, SLOWER_HERE)


def _leave_out(found: Narrowing, point: Point, why: str, chosen: Point | None = None) -> None:
    found.reasons[point] = why
    if chosen is not None:
        found.stand_ins[point] = chosen


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

    def require_same_sweep(self, loaded: LoadedSweep, where: Path) -> None:
        """Raises UserError where what was timed cannot be of this sweep."""
        if self.results is None:
            return
        sweep, points, found = loaded.sweep, loaded.space.points, self.results
        counts = token_counts(points, sweep.workload.concurrency, sweep.model.tp)
        sent = {(part, tokens) for part, sizes in counts.items() for tokens in sizes}
        timed = {(part, each.tokens) for each in found.messages for part in each.parts}
        if (
            found.tp != sweep.model.tp
            or found.simulated != sweep.engine.is_simulated
            or not {each.setting for each in found.measured} <= {*list_settings(points)}
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
    if "comm" not in sweep.search.active_stages or not sweep.engine.launches_servers:
        return False
    return sweep.model.tp > 1 and any(len(each) > 1 for each in families(loaded.space.points))


def refusal(sweep: Sweep, environment: Mapping[str, str]) -> str | None:
    """Return why the benchmark says nothing about these servers, or None if it does."""
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
    measure: Callable[[LoadedSweep], CommResults],
    why_not: str | None = None,
) -> Screening:
    """Time the settings that there is something to decide about.

    `measure` returns the latencies of the settings of a sweep. `why_not` is a reason to time
    nothing. What stops the benchmark is in the answer, not raised. KeyboardInterrupt passes
    through, and no process is left.
    """
    found = Screening(back_end, own_tokens(loaded.sweep, environment))
    carrier = carriers(loaded.sweep, back_end, found.own_tokens)
    points = tuple(undecided(loaded.space.points, carrier))
    if not points:
        return replace(found, not_measured=_nothing(back_end))
    if why_not is not None:
        return replace(found, not_measured=why_not)
    part = replace(loaded, space=replace(loaded.space, points=points))
    began = time.monotonic()
    try:
        results = measure(part)
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
    settings = len(list_settings(loaded.space.points))
    counts = token_counts(
        loaded.space.points, loaded.sweep.workload.concurrency, loaded.sweep.model.tp
    )
    simulated = loaded.sweep.engine.is_simulated
    return settings, 0.0 if simulated else expected_s(settings, count_sizes(counts))
