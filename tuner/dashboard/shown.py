"""A study as optuna-dashboard shows it: plain values, before any storage."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

State = Literal["running", "ok", "infeasible", "failed"]

_STATES: Mapping[State, TrialState] = {
    "running": TrialState.RUNNING,
    "ok": TrialState.COMPLETE,
    "infeasible": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}

CONSTRAINTS = "constraints"
"""Where optuna-dashboard looks for them: a list. What Optuna 5 writes itself it does not see."""


@dataclass(frozen=True)
class DashboardSchema:
    """What is the same for all trials of a study."""

    name: str
    owner: str
    """Identifies the run that the study is of."""
    objectives: tuple[str, ...] = ("speed-up",)
    """A name for each; all are maximised."""
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Every value that a trial can have, by parameter."""

    def distributions(self) -> dict[str, BaseDistribution]:
        """The axes as Optuna knows them."""
        return {name: _distribution(values) for name, values in self.axes.items()}


@dataclass(frozen=True)
class DashboardTrial:
    """One trial. Its number is its place: trials are shown in the ledger's order."""

    params: Mapping[str, Any]
    """A value of each of the layout's axes."""
    state: State
    values: tuple[float, ...] = ()
    """One for each objective where the state is ok, else ()."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """By name; numbers can be sorted and plotted."""
    excess: float = 0.0
    """How far it is over a limit, as a share of it."""
    note: str = ""
    """Markdown."""
    files: tuple[str, ...] = ()
    """Paths in the run folder."""
    started: datetime | None = None
    """With its time zone; None: now."""
    ended: datetime | None = None

    @property
    def optuna_state(self) -> TrialState:
        return _STATES[self.state]

    @property
    def constraints(self) -> dict[str, list[float]]:
        """As a trial's system attribute: above 0 for what cannot be served; {} while unknown."""
        known = {"ok": self.excess, "infeasible": 1.0}
        return {CONSTRAINTS: [known[self.state]]} if self.state in known else {}

    def frozen(
        self, distributions: dict[str, BaseDistribution], system: Mapping[str, Any]
    ) -> FrozenTrial:
        """As Optuna adds it, with these system attributes besides the constraint.

        Without the user attributes: Optuna would look for each of them before it adds it.
        """
        trial = create_trial(
            state=self.optuna_state,
            values=list(self.values) or None,
            params=dict(self.params),
            distributions={name: distributions[name] for name in self.params},
            system_attrs={**self.constraints, **system},
        )
        if self.started is not None:
            trial.datetime_start = _local(self.started)
        if trial.state.is_finished():
            trial.datetime_complete = _local(self.ended or self.started or datetime.now())
        return trial


def _local(moment: datetime) -> datetime:
    """As Optuna keeps times: this machine's, without a zone."""
    return moment.astimezone().replace(tzinfo=None)


def _distribution(values: Collection[Any]) -> BaseDistribution:
    """Whole numbers keep their distances, so that plots have a scale; the rest are choices."""
    if all(type(value) is int for value in values):
        return IntDistribution(min(values), max(values))
    return CategoricalDistribution(tuple(values))
