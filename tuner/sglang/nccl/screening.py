"""Which settings are worth a server: alike ones collapse, ones that lose everywhere are dropped."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.core.errors import Failure
from tuner.metrics.statistics import Interval
from tuner.server.all_reduce import CommResults, Setting, SettingResult

THRESHOLD = 0.03
"""A difference below this is not worth a launch."""
SHOWN_BESIDE = 5
"""Settings that people are shown beside those worth a server."""


@dataclass(frozen=True)
class Kept:
    """A setting worth a launch."""

    setting: Setting
    cost: float
    """Geometric mean over the messages of its latency by the lowest one; 1: the lowest at each."""
    reason: str


@dataclass(frozen=True)
class Collapsed:
    """A setting that cannot be told apart from another, which stands for it."""

    setting: Setting
    into: Setting
    reason: str


@dataclass(frozen=True)
class Dropped:
    """A setting that is not worth a launch."""

    setting: Setting
    failure: Failure | None
    """HANG or CRASH where it did not run; None where it is slower."""
    reason: str


@dataclass(frozen=True)
class Screened:
    """What to do with each setting; every one is in one of the three."""

    keep: tuple[Kept, ...]
    """The most promising first."""
    collapse: tuple[Collapsed, ...]
    drop: tuple[Dropped, ...]

    def representative(self, setting: Setting) -> Setting | None:
        """The setting that is launched in place of this one; None where none is."""
        into = {each.setting: each.into for each in self.collapse}.get(setting, setting)
        return into if into in {each.setting for each in self.keep} else None

    @property
    def failed(self) -> dict[Setting, Failure]:
        """Settings that did not run."""
        return {each.setting: each.failure for each in self.drop if each.failure is not None}

    def verdict(self, setting: Setting) -> str:
        """What is done with a setting, in words."""
        for rank, kept in enumerate(self.keep, start=1):
            if kept.setting == setting:
                return f"{rank}. {kept.reason}"
        for collapsed in self.collapse:
            if collapsed.setting == setting:
                return f"the same: {collapsed.reason}"
        return next(f"dropped: {each.reason}" for each in self.drop if each.setting == setting)

    def ranked(self) -> tuple[Setting, ...]:
        """Kept ones by rank with those that they stand for, then the dropped ones."""
        order: list[Setting] = []
        for kept in self.keep:
            order.append(kept.setting)
            order += [each.setting for each in self.collapse if each.into == kept.setting]
        return (*order, *(each.setting for each in self.drop))

    @property
    def shown(self) -> tuple[Setting, ...]:
        """Every kept one and SHOWN_BESIDE of the rest, in their order; the JSON has the others."""
        kept = {each.setting for each in self.keep}
        rest = [each for each in self.ranked() if each not in kept][:SHOWN_BESIDE]
        return tuple(each for each in self.ranked() if each in kept or each in rest)

    def to_json(self) -> dict[str, Any]:
        """The shape of `--json`."""
        return {
            "keep": [
                {**each.setting.to_json(), "cost": each.cost, "reason": each.reason}
                for each in self.keep
            ],
            "collapse": [
                {**each.setting.to_json(), "into": each.into.to_json(), "reason": each.reason}
                for each in self.collapse
            ],
            "drop": [
                {
                    **each.setting.to_json(),
                    "failure": None if each.failure is None else str(each.failure),
                    "reason": each.reason,
                }
                for each in self.drop
            ],
        }


def screened(results: CommResults, threshold: float = THRESHOLD) -> Screened:
    """What is worth a launch.

    Settings are alike where at every message their ratio differs from 1 by less than `threshold`
    and its interval holds 1 or lies within that distance too; of alike ones the one that sets
    least stands for all, then the earlier one. A setting is dropped where one that is left is
    faster at every message, by `threshold` or more and with an interval that leaves 1 out. With
    one round nothing has an interval, so nothing is dropped.
    """
    chosen = sorted(results.usable, key=lambda each: len(each.setting.env))
    heads: list[SettingResult] = []
    collapse = []
    for each in chosen:
        alike = next((head for head in heads if _are_alike(each, head, threshold)), None)
        if alike is None:
            heads.append(each)
        else:
            reason = f"within {100 * threshold:g} % of {alike.setting.label()} at every size"
            collapse.append(Collapsed(each.setting, alike.setting, reason))
    lost = [
        Dropped(each.setting, each.failure, f"{each.failure}: {each.message}")
        for each in results.measured
        if each.failure is not None
    ]
    left = []
    for head in heads:
        better = [each for each in heads if _is_slower(head, each, threshold)]
        if better:
            best = min(better, key=lambda each: _cost(each, chosen))
            lost.append(Dropped(head.setting, None, _describe_slower(head, best)))
        else:
            left.append(head)
    left.sort(key=lambda each: _cost(each, chosen))
    dropped = {each.setting for each in lost}
    # What is alike to a dropped one is dropped with it.
    lost += [
        Dropped(each.setting, None, f"{each.reason}, which is dropped")
        for each in collapse
        if each.into in dropped
    ]
    return Screened(
        keep=tuple(_kept(each, left, chosen) for each in left),
        collapse=tuple(each for each in collapse if each.into not in dropped),
        drop=tuple(lost),
    )


def screened_apart(results: CommResults) -> Screened:
    """The same, settings being held only against those that differ in NCCL's variables alone.

    Another `CUDA_` variable may do more to a server than to an all-reduce.
    """
    groups: dict[tuple[tuple[str, str], ...], list[SettingResult]] = {}
    for each in results.measured:
        groups.setdefault(each.setting.beside_nccl, []).append(each)
    parts = [screened(replace(results, measured=tuple(group))) for group in groups.values()]
    kept = sorted((each for part in parts for each in part.keep), key=lambda each: each.cost)
    return Screened(
        keep=tuple(kept),
        collapse=tuple(each for part in parts for each in part.collapse),
        drop=tuple(each for part in parts for each in part.drop),
    )


def _ratios(one: SettingResult, other: SettingResult) -> list[Interval]:
    return [one.ratio(other, index) for index in range(len(one.rounds))]


def _are_alike(one: SettingResult, other: SettingResult, threshold: float) -> bool:
    for ratio in _ratios(one, other):
        if abs(math.log(ratio.value)) >= math.log1p(threshold):
            return False
        if ratio.low is None or ratio.high is None:
            continue
        within = max(abs(math.log(ratio.low)), abs(math.log(ratio.high))) < math.log1p(threshold)
        if not (ratio.low <= 1 <= ratio.high or within):
            return False
    return True


def _is_slower(one: SettingResult, other: SettingResult, threshold: float) -> bool:
    if one is other:
        return False
    return all(
        ratio.low is not None and ratio.low > 1 and ratio.value >= 1 + threshold
        for ratio in _ratios(one, other)
    )


def _describe_slower(one: SettingResult, other: SettingResult) -> str:
    values = [ratio.value for ratio in _ratios(one, other)]
    low, high = min(values), max(values)
    times = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
    return f"{times} times as slow as {other.setting.label()}, at every size"


def _cost(one: SettingResult, all_: Sequence[SettingResult]) -> float:
    logs = [
        math.log(one.latency(index).value / min(each.latency(index).value for each in all_))
        for index in range(len(one.rounds))
    ]
    return math.exp(math.fsum(logs) / len(logs)) if logs else 1.0


def _kept(one: SettingResult, left: Sequence[SettingResult], all_: Sequence[SettingResult]) -> Kept:
    cost = _cost(one, all_)
    if len(left) == 1:
        return Kept(one.setting, cost, "the only one left: others are the same, lose or fail")
    wins = [
        index
        for index in range(len(one.rounds))
        if one.latency(index).value == min(each.latency(index).value for each in left)
    ]
    if len(wins) == len(one.rounds):
        return Kept(one.setting, cost, "lowest at every size")
    if wins:
        return Kept(one.setting, cost, f"lowest at {len(wins)} of {len(one.rounds)} sizes")
    return Kept(one.setting, cost, "not clearly slower at every size")
