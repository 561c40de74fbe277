"""Latencies of a server's all-reduces under communication settings, as values and as JSON.

Every layer of a tensor-parallel model reduces one hidden state for each token of the pass: the
verify pass has num_draft_tokens a request, a draft step has eagle_topk a request, a plain decode
step one. A draft on a TP size d of its own reduces in each block of d GPUs.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.config.field_types import UNSET
from tuner.config.point import Point
from tuner.core.errors import Failure, UserError
from tuner.core.formatting import short
from tuner.metrics.statistics import Interval, mean_interval, ratio_of_rounds

FORMAT = 1
ROUNDS = 4
DRAFT_TP = "draft TP "
MOST_SIZES = 8
"""Of one group. More are thinned out: neighbours tell nothing new, and each must be told apart from
noise."""
_PREFIXES = ("NCCL_", "TORCH_NCCL_", "GLOO_", "CUDA_")
_NCCL = ("NCCL_", "TORCH_NCCL_")


def is_communication(variable: str) -> bool:
    """True for a variable that changes an all-reduce outside of SGLang too."""
    return variable.startswith(_PREFIXES)


def is_nccl(variable: str) -> bool:
    """True for a variable that does nothing where NCCL carries nothing."""
    return variable.startswith(_NCCL)


def without_nccl(point: Point) -> Point:
    """The point with NCCL left alone: equal for points that differ in NCCL settings only."""
    return replace(point, env=tuple(pair for pair in point.env if not is_nccl(pair[0])))


@dataclass(frozen=True)
class Setting:
    """The communication variables that are set; those of the space that are not are unset."""

    env: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, point: Point) -> "Setting":
        """The setting that a point's server runs with."""
        return cls(tuple(pair for pair in point.env if is_communication(pair[0])))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Setting":
        """What `to_json` wrote."""
        return cls(tuple(sorted(data["env"].items())))

    def to_json(self) -> dict[str, Any]:
        """The shape that files keep."""
        return {"env": dict(self.env)}

    @property
    def beside_nccl(self) -> tuple[tuple[str, str], ...]:
        """Its variables that are not NCCL's."""
        return tuple(pair for pair in self.env if not is_nccl(pair[0]))

    def label(self) -> str:
        """`NCCL_ALGO=Ring, NCCL_PROTO=LL`, or `unset`."""
        return ", ".join(f"{name}={value}" for name, value in self.env) or UNSET


def list_settings(points: Iterable[Point]) -> tuple[Setting, ...]:
    """Every setting that a point has, once; the one that sets least comes first."""
    found = dict.fromkeys(Setting.of(point) for point in points)
    return tuple(sorted(found, key=lambda setting: len(setting.env)))


@dataclass(frozen=True, order=True)
class Message:
    """One all-reduce."""

    elements: int
    bytes: int
    """0 where a preset plays it, which knows tokens alone."""
    tokens: int
    parts: tuple[str, ...]
    """Passes that send it: verify, draft; both where they are equal; `draft TP 2` of a smaller
    group."""
    ranks: int = 0
    """GPUs of each group that reduces it, all groups at the same time; 0: one group of all."""

    def label(self) -> str:
        """`verify, 4 tokens (32 KiB)`."""
        noun = "token" if self.tokens == 1 else "tokens"
        words = f"{' and '.join(self.parts)}, {self.tokens} {noun}"
        if not self.bytes:
            return words
        size = f"{self.bytes} B" if self.bytes < 1024 else f"{short(self.bytes / 1024, 3)} KiB"
        if self.bytes >= 2**20:
            size = f"{short(self.bytes / 2**20, 3)} MiB"
        return f"{words} ({size})"

    def to_json(self) -> dict[str, Any]:
        """The shape that files keep."""
        return {
            "parts": list(self.parts),
            "tokens": self.tokens,
            "elements": self.elements,
            "bytes": self.bytes,
            **({"ranks": self.ranks} if self.ranks else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Message":
        """What `to_json` wrote."""
        parts, ranks = tuple(data["parts"]), data.get("ranks", 0)
        return cls(data["elements"], data["bytes"], data["tokens"], parts, ranks)


def token_counts(
    points: Iterable[Point], levels: Iterable[int], tp: int
) -> Mapping[str, frozenset[int]]:
    """Tokens of one pass, by part, over all points and concurrency levels.

    `draft TP d` is a draft on d of the GPUs; one that runs on one GPU reduces nothing.
    """
    found: dict[str, set[int]] = {"verify": set(), "draft": set()}
    for point in points:
        found["verify"].add(point.num_draft_tokens or 1)
        size = point.draft_tp
        if point.num_steps is not None and size != 1:
            part = "draft" if size in (None, "target", tp) else f"{DRAFT_TP}{size}"
            found.setdefault(part, set()).add(point.eagle_topk or 1)
    batches = sorted(set(levels))
    return {
        part: frozenset(tokens * batch for tokens in counts for batch in batches)
        for part, counts in found.items()
    }


def group_ranks(part: str) -> int:
    """GPUs of the groups that reduce a part of `token_counts`; 0: all."""
    return int(part.removeprefix(DRAFT_TP)) if part.startswith(DRAFT_TP) else 0


def count_sizes(tokens: Mapping[str, frozenset[int]]) -> int:
    """About how many messages `messages` makes of them."""
    counts: dict[int, set[int]] = {}
    for part, some in tokens.items():
        counts.setdefault(group_ranks(part), set()).update(some)
    return sum(min(MOST_SIZES, len(each)) for each in counts.values())


def thinned(sizes: tuple[Message, ...]) -> tuple[Message, ...]:
    """Of many sizes, ascending, those that lie nearest to even steps of their logarithm."""
    if len(sizes) <= MOST_SIZES:
        return sizes
    low, high = math.log(sizes[0].elements), math.log(sizes[-1].elements)
    steps = [low + (high - low) * index / (MOST_SIZES - 1) for index in range(MOST_SIZES)]
    nearest = {min(sizes, key=lambda m: abs(math.log(m.elements) - step)) for step in steps}
    return tuple(sorted(nearest))


@dataclass(frozen=True)
class TimingOptions:
    """How all-reduces are timed. None: as the sweep says, or the default."""

    hidden: int | None = None
    dtype: str | None = None
    tokens: tuple[int, ...] | None = None
    tp: int | None = None
    python: str | None = None
    device: str | None = None
    settings: tuple[Setting, ...] = ()
    rounds: int = ROUNDS
    limit_s: float = 60.0
    at_once: int | None = None


@dataclass(frozen=True)
class SettingResult:
    """One setting: its latencies, or why it has none."""

    setting: Setting
    rounds: tuple[tuple[float, ...], ...] = ()
    """Microseconds of one all-reduce by message and round, each the median of its round."""
    failure: Failure | None = None
    message: str | None = None
    """The sentence that goes with the failure."""
    no_graphs: str | None = None
    """Why CUDA graphs could not be captured, so that launches are in the figures."""

    def latency(self, index: int) -> Interval:
        """Of message `index` over the rounds; ends are None with one round."""
        return mean_interval(self.rounds[index])

    def ratio(self, other: "SettingResult", index: int) -> Interval:
        """This one's latency over the other's, by rounds that ran beside each other."""
        return ratio_of_rounds(self.rounds[index], other.rounds[index])


@dataclass(frozen=True)
class CommResults:
    """A whole benchmark. Every setting that has latencies has them for every message."""

    messages: tuple[Message, ...]
    measured: tuple[SettingResult, ...]
    backend: str
    """`NCCL 2.28.9`, `gloo`, or what a preset plays."""
    device: str
    tp: int
    simulated: bool = False
    notes: tuple[str, ...] = ()

    @property
    def usable(self) -> tuple[SettingResult, ...]:
        """Settings with latencies."""
        return tuple(each for each in self.measured if each.failure is None)

    @property
    def is_whole(self) -> bool:
        """There are messages, and each setting that ran has positive latencies for every one, in
        as many rounds as the others."""
        known = [rounds for each in self.usable for rounds in each.rounds]
        return (
            bool(self.messages)
            and all(len(each.rounds) == len(self.messages) for each in self.usable)
            and len({len(rounds) for rounds in known}) <= 1
            and all(rounds and all(0 < us < math.inf for us in rounds) for rounds in known)
        )

    def to_json(self) -> dict[str, Any]:
        """The shape of `--json` and `--out`, without what follows from it."""
        return {
            "format": FORMAT,
            "simulated": self.simulated,
            "backend": self.backend,
            "device": self.device,
            "tp": self.tp,
            "notes": list(self.notes),
            "messages": [message.to_json() for message in self.messages],
            "settings": [self._setting(each) for each in self.measured],
        }

    def _setting(self, each: SettingResult) -> dict[str, Any]:
        latencies = []
        for index, rounds in enumerate(each.rounds):
            found = each.latency(index)
            us = {"us": found.value, "us_low": found.low, "us_high": found.high}
            latencies.append({**us, "rounds": list(rounds)})
        return {
            **each.setting.to_json(),
            "failure": None if each.failure is None else str(each.failure),
            "message": each.message,
            "no_graphs": each.no_graphs,
            "latencies": latencies,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str) -> "CommResults":
        """What `to_json` wrote. Raises UserError at `where` for anything else."""
        try:
            if data["format"] != FORMAT:
                raise UserError(f"this has format {data['format']}, {FORMAT} is read here", where)
            found = cls(
                messages=tuple(Message.from_json(each) for each in data["messages"]),
                measured=tuple(_measured(each) for each in data["settings"]),
                backend=data["backend"],
                device=data["device"],
                tp=data["tp"],
                simulated=data["simulated"],
                notes=tuple(data["notes"]),
            )
            if not found.is_whole:
                raise ValueError("latencies are missing or no numbers")
            return found
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            message = "this is not what specbench comm --out writes, make it again"
            raise UserError(message, where) from error


def _measured(data: Mapping[str, Any]) -> SettingResult:
    rounds: Sequence[Sequence[float]] = [each["rounds"] for each in data["latencies"]]
    return SettingResult(
        setting=Setting.from_json(data),
        rounds=tuple(tuple(map(float, each)) for each in rounds),
        failure=None if data["failure"] is None else Failure(data["failure"]),
        message=data["message"],
        no_graphs=data["no_graphs"],
    )
