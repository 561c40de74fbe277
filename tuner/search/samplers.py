"""The samplers of `search.sampler`, each made anew and seeded for every proposal."""

import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import (
    BaseSampler,
    GPSampler,
    NSGAIISampler,
    PartialFixedSampler,
    RandomSampler,
    TPESampler,
)
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.config.dimensions import DIMENSIONS
from tuner.config.schema import SearchSpec

if TYPE_CHECKING:
    from optuna._gp.acqf import BaseAcquisitionFunc

from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.trial import Trial

from tuner.config.field_types import UNSET
from tuner.config.point import Point
from tuner.config.space import Space

Floats = NDArray[np.float64]

MAX_COMBINATIONS = 20_000
"""That a GP is asked about at once; of more, so many are drawn."""


def missing_library(spec: SearchSpec) -> str | None:
    """What to install for the sampler, in a sentence; None where it can run."""
    if spec.sampler != "gp":
        return None
    found = find_spec("torch")
    if found is not None and found.origin is not None:  # a folder of that name has none
        return None
    return (
        "gp needs torch, which is not installed here: pip install 'sglang-specbench[gp]', or "
        "write tpe"
    )


def startup_trials(trials: int) -> int:
    """Points drawn at random before anything is modelled: a quarter of the run, 4 to 10.

    10 is Optuna's own number. A model fitted to fewer than 4 points is noise, and a short run
    that spends more than a quarter on random points would be a random search.
    """
    return min(10, max(4, trials // 4))


def population_size(trials: int) -> int:
    """NSGA-II's: four generations in a run; 4 to 50, which is Optuna's own number."""
    return min(50, max(4, trials // 4))


class ListedGPSampler(GPSampler):
    """Optuna's GPSampler, choosing from a list of combinations.

    By itself it looks for the best combination anywhere, and learns nothing from one that is
    illegal or measured: it would propose the same one again. Optuna names `_optimize_acqf` as the
    place for another way to choose, without a promise to keep it: the extra `gp` is held to one
    major version of Optuna for this.
    """

    def __init__(self, seed: int, combinations: Sequence[dict[str, Any]]) -> None:
        super().__init__(seed=seed, n_startup_trials=1)
        self._combinations = combinations

    def _optimize_acqf(
        self,
        acqf: "BaseAcquisitionFunc",
        best_params: Floats | None,  # noqa: ARG002 - where Optuna would begin to look
    ) -> Floats:
        """The row of the combination that promises most, as Optuna normalises it."""
        listed = self._combinations
        if len(listed) > MAX_COMBINATIONS:
            drawn = self._rng.rng.choice(len(listed), MAX_COMBINATIONS, replace=False)
            listed = [listed[index] for index in drawn]
        trials = [create_trial(value=0.0)] * len(listed)  # only how many there are is looked at
        rows: Floats = acqf.search_space.get_normalized_params(trials, list(listed))
        chosen: Floats = rows[int(np.argmax(acqf.eval_acqf_no_grad(rows)))]
        return chosen


class FixedSpaceTPESampler(TPESampler):
    """Optuna's TPESampler, told that every trial has every parameter.

    By itself it looks through all trials for the parameters that they have in common, each time
    anew for a sampler that is made for one proposal.
    """

    def infer_relative_search_space(
        self,
        study: Study,
        trial: FrozenTrial,  # noqa: ARG002 - Optuna's signature
    ) -> dict[str, BaseDistribution]:
        """Those of any finished trial, by name, less those of one value."""
        if not self._is_multivariate(study):
            return {}
        states = (TrialState.COMPLETE, TrialState.PRUNED)
        finished = study.get_trials(deepcopy=False, states=states)
        known = finished[-1].distributions if finished else {}
        return {name: how for name, how in sorted(known.items()) if not how.single()}


def model_sampler(
    spec: SearchSpec, seed: int, combinations: Sequence[dict[str, Any]], *, waits: bool = False
) -> BaseSampler:
    """The sampler for a proposal that rests on what was told; `combinations` are left to measure.

    `waits`: other proposals have no verdict yet; TPE then takes those for bad ones, so that it does
    not crowd around them. Random where the sampler has no model.
    """
    if spec.sampler == "tpe":
        return FixedSpaceTPESampler(seed=seed, n_startup_trials=1, constant_liar=waits)
    if spec.sampler == "gp":
        return ListedGPSampler(seed, combinations)
    return RandomSampler(seed=seed)


def generation_sampler(seed: int, trials: int) -> BaseSampler:
    """NSGA-II, which draws its first generation at random by itself."""
    return NSGAIISampler(seed=seed, population_size=population_size(trials))


def fixed_sampler(values: Mapping[str, Any], sampler: BaseSampler) -> BaseSampler:
    """Return a sampler that suggests these values. NSGA-II counts the trial to its generation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return PartialFixedSampler(dict(values), sampler)


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
    else:
        own = getattr(point, name)
        canonical = next(each.canonical for each in DIMENSIONS if each.name == name)
        same = tuple(value for value in allowed if canonical(value, space.tp) == own)
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
