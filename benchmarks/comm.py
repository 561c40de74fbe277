"""The stage `comm` on a landscape: an all-reduce benchmark on paper, and the space that is left."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.landscape import Landscape
from tuner.config.point import Point
from tuner.config.space import Space
from tuner.core.errors import Failure
from tuner.server.all_reduce import (
    ROUNDS,
    CommResults,
    Message,
    Setting,
    SettingResult,
    list_settings,
    thinned,
    token_counts,
)
from tuner.sglang.nccl.benchmark import expected_s
from tuner.sglang.nccl.screening import screened_apart
from tuner.sglang.nccl.selection import Carrier, Timing, narrowing, timed_shares, undecided

NOISE = 0.01
"""Relative standard deviation between rounds."""
HUNG_S = 60.0


@dataclass(frozen=True)
class Stage:
    """What the search begins with after the stage."""

    space: Space
    timed: Mapping[Point, float] = field(default_factory=dict)
    hours: float = 0.0


def comm_stage(landscape: Landscape, seed: int) -> Stage:
    """Nothing is timed where the landscape is a table."""
    space = landscape.space
    if not landscape.has_model or landscape.tp == 1:
        return Stage(space)

    def carrier(point: Point) -> Carrier:
        return "own kernels" if landscape.is_off_nccl(point) else "NCCL"

    points = undecided(space.points, carrier)
    levels = landscape.load.concurrency
    if not points:
        left = narrowing(space.points, carrier, None).of(space)
        return Stage(left, timed_shares(left.points, carrier, None))
    settings = list_settings(points)
    counts = sorted(token_counts(points, levels, landscape.tp)["verify"])
    messages = thinned(tuple(Message(tokens, 0, tokens, ("verify",)) for tokens in counts))
    measured = tuple(_measured(landscape, each, messages, seed) for each in settings)
    results = CommResults(messages, measured, "landscape", "simulated", landscape.tp, True)
    timing = Timing(results, levels, screened_apart(results))
    left = narrowing(space.points, carrier, timing).of(space)
    hung = sum(each.failure is not None for each in measured)
    seconds = expected_s(len(settings), len(messages)) + HUNG_S * hung
    return Stage(left, timed_shares(left.points, carrier, timing), seconds / 3600)


def _measured(
    landscape: Landscape, setting: Setting, messages: tuple[Message, ...], seed: int
) -> SettingResult:
    draw = random.Random(f"{landscape.name}:{seed}:comm:{setting.label()}")
    rounds = []
    for message in messages:
        true = landscape.all_reduce_ms(dict(setting.env), message.tokens)
        if isinstance(true, str):
            return SettingResult(
                setting, failure=Failure(true), message="by a rule of the landscape"
            )
        rounds.append(tuple(1000 * true * math.exp(draw.gauss(0, NOISE)) for _ in range(ROUNDS)))
    return SettingResult(setting, tuple(rounds))
