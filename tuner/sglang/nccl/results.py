"""What the benchmark has measured, as values and as JSON."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.core.errors import Failure, UserError
from tuner.metrics.statistics import Interval, mean_interval, ratio_of_rounds
from tuner.sglang.nccl.messages import Message
from tuner.sglang.nccl.settings import Setting

FORMAT = 1


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
