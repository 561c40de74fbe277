"""A space's dimensions as Optuna knows them, and a point put back into a value for each."""

from collections.abc import Sequence
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import Trial

from tuner.sweep.fields import UNSET
from tuner.sweep.point import Point
from tuner.sweep.space import Space


def combination(space: Space, point: Point) -> dict[str, Any]:
    """The value of each dimension that makes `point`, which is one of the space's."""
    return {name: _value(space, point, name) for name in space.dimensions}


def _value(space: Space, point: Point, name: str) -> Any:
    kind, _, key = name.partition(".")
    allowed = space.dimensions[name]
    same: tuple[Any, ...]  # spellings that make the same point
    if kind == "env":
        same = (dict(point.env).get(key, UNSET),)
    elif kind == "flags":
        flags = dict(point.flags)
        same = (flags[key],) if key in flags else (False, UNSET)
    elif name == "num_draft_tokens" and point.eagle_topk == 1:
        same = allowed  # it follows from num_steps
    elif name == "draft_tp" and point.draft_tp == "target":
        same = ("target", space.tp)
    else:
        same = (getattr(point, name),)
    wanted = {(type(value), value) for value in same}
    return next(value for value in allowed if (type(value), value) in wanted)


def distribution(values: Sequence[Any]) -> BaseDistribution:
    """Integers in a row keep their order for the sampler; anything else is a set of choices."""
    if all(type(value) is int for value in values):
        low, high = min(values), max(values)
        if sorted(values) == list(range(low, high + 1)):
            return IntDistribution(low, high)
    return CategoricalDistribution(values)


def suggest(trial: Trial, name: str, how: BaseDistribution) -> Any:
    """The sampler's value of one dimension."""
    if isinstance(how, IntDistribution):
        return trial.suggest_int(name, how.low, how.high)
    assert isinstance(how, CategoricalDistribution)
    return trial.suggest_categorical(name, how.choices)
