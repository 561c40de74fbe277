"""Optuna trials of which everything is known, in the place of some that are asked for.

To ask a sampler for what it once said takes a model fit each time. A trial that is put into the
study with the values that it had then is the same to every later ask.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

_EPOCH = datetime(1970, 1, 1)
"""No sampler looks at when a trial was."""
_NOTHING: dict[Any, Any] = {}


class _Kept(FrozenTrial):
    """A trial that the study keeps as it is: Optuna copies each one with all its distributions,
    which takes longer, and far more memory, than the trial."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Kept":
        return self


class GivenTrial:
    """A trial to be told, with the methods of Optuna's `Trial` that telling needs."""

    def __init__(
        self, params: Mapping[str, Any], distributions: dict[str, BaseDistribution]
    ) -> None:
        """`distributions` is shared, and is not to be changed any more."""
        self.params = dict(params)
        self._distributions = distributions
        self._system = _NOTHING

    def set_constraint(self, key: str, value: float) -> None:
        self._system = _constrained(key, float(value))

    def add_to(self, study: Study, state: TrialState, values: Sequence[float] | None) -> None:
        """Put it into the study, finished."""
        study.add_trial(
            _Kept(
                number=-1,  # the study gives it one
                trial_id=-1,
                state=state,
                value=None,
                values=values,
                datetime_start=_EPOCH,
                datetime_complete=_EPOCH,
                params=self.params,
                distributions=self._distributions,
                user_attrs=_NOTHING,
                system_attrs=self._system,
                intermediate_values=_NOTHING,
            )
        )


@lru_cache(maxsize=1024)
def _constrained(key: str, value: float) -> dict[str, Any]:
    """The attributes that are a constraint; one dictionary for all trials that have it."""
    return create_trial(value=0.0, constraints={key: value}).system_attrs
