"""One number to maximise, from the ratios to the baseline at each concurrency."""

import math
from collections.abc import Mapping

from tuner.config.load_level import Level
from tuner.config.schema import ObjectiveSpec


def objective(ratios: Mapping[Level, float], spec: ObjectiveSpec) -> float:
    """The levels' ratios (1.0: as fast as the baseline) combined as `spec.over` says.

    `ratios` is keyed by level and not empty. The door has checked that a level named in
    `over` is measured.
    """
    if spec.level is not None:
        return ratios[spec.level]
    if spec.over == "min":
        return min(ratios.values())
    if min(ratios.values()) <= 0:
        return 0.0
    return math.exp(math.fsum(math.log(ratio) for ratio in ratios.values()) / len(ratios))
