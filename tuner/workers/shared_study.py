"""A search that several hosts share: points claimed and told through an Optuna storage.

Every worker has a study of its own in memory and decides by itself what it measures next; the
storage says what others are at and what they have found. A claim is a running trial with a
heartbeat by the database's clock (`RDBStorage.heartbeat_interval`): who has been silent for longer
than the grace period is dead, and its points are free again. Of two claims on one point the trial
with the lower number stands; numbers are given one after the other, and a trial is there with its
point from the first moment, so both sides see the same.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import optuna
import sqlalchemy
from optuna.distributions import BaseDistribution
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.config.point import Point
from tuner.config.space import Space
from tuner.search.observation import Observation, Outcome
from tuner.search.optuna_storage import StorageUnusable, database_reason
from tuner.search.samplers import combination, distribution
from tuner.workers.observation_json import verdict_from, verdict_json

_WORKER, _POINT, _VERDICT, _WITHDRAWN = (
    f"specbench {name}" for name in ("worker", "point", "verdict", "withdrawn")
)
_ENDED = "specbench ended"
"""Attribute of the study: that a worker's search came to its end, and what was known then."""
_STATES: Mapping[Outcome, TrialState] = {
    "ok": TrialState.COMPLETE,
    "infeasible": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


@dataclass(frozen=True)
class SharedResult:
    """What a worker found of a point."""

    number: int
    """Of the trial in the shared study."""
    worker: str
    point: Point
    verdict: Observation


@dataclass(frozen=True)
class StudySnapshot:
    """The shared study at one moment."""

    told: tuple[SharedResult, ...]
    """By all workers, in the order in which the points were claimed."""
    live: Mapping[Point, str]
    """Points that are being measured, and by whom."""

    @property
    def measured(self) -> int:
        """Points that were measured, whoever did."""
        return len({each.point for each in self.told})

    @property
    def taken(self) -> int:
        """Points that were measured or are being measured, whoever does."""
        return len({each.point for each in self.told} | self.live.keys())


@dataclass
class SharedStudy:
    """One worker's side of a shared study. Its methods raise StorageUnusable while the database
    cannot be reached; nothing is lost by calling them again."""

    storage: RDBStorage
    study: int
    worker: str
    space: Space
    heartbeat_s: float
    _claims: dict[Point, int] = field(default_factory=dict)
    """Trials that are ours and run."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)
    _heart: threading.Thread | None = None

    def look(self) -> StudySnapshot:
        """Free what dead workers had claimed, and see what others do and found."""
        try:
            self._beat_for_the_silent()
            for number in self.storage._get_stale_trial_ids(self.study):
                self._fail(number)
            self._give_up_leftovers()
            trials = self.storage.get_all_trials(self.study, deepcopy=False)
        except Exception as error:  # whatever the database's driver raises
            raise StorageUnusable(database_reason(error)) from error
        told, live = list[SharedResult](), dict[Point, str]()
        for trial in trials:
            point = _read_point(trial)
            if point is None or trial.user_attrs.get(_WITHDRAWN):
                continue
            worker = str(trial.user_attrs.get(_WORKER))
            if trial.state == TrialState.RUNNING:
                live.setdefault(point, worker)
            elif (data := trial.user_attrs.get(_VERDICT)) is not None:
                told.append(
                    SharedResult(trial.number, worker, point, verdict_from(json.loads(data)))
                )
        return StudySnapshot(tuple(told), live)

    def claim(self, point: Point, most: int) -> bool:
        """Whether the point is ours to measure now; False where another one has it or had it, and
        where `most` points are claimed or measured without it."""
        if point in self._claims:
            return True
        try:
            number = self._create(point, TrialState.RUNNING)
            self.storage.record_heartbeat(number)
            trials = self.storage.get_all_trials(self.study, deepcopy=False)
            own = next(each for each in trials if each._trial_id == number)
            before = {
                each.user_attrs[_POINT]
                for each in trials
                if each.number < own.number and _stands(each)
            }
            if point.key in before or len(before) >= most:
                self._withdraw(number)
                return False
        except Exception as error:
            raise StorageUnusable(database_reason(error)) from error
        with self._lock:
            self._claims[point] = number
        self._beat_from_now_on()
        return True

    def release(self, point: Point) -> None:
        """Give up a claim; the others see that with the next look."""
        with self._lock:
            self._claims.pop(point, None)

    def publish(self, point: Point, verdict: Observation) -> None:
        """Tell the others what was found of a point, claimed or not."""
        value = [verdict.value] if verdict.outcome == "ok" and verdict.value is not None else None
        try:
            number = self._claims.get(point)
            if number is None or not self._end(number, verdict, value):
                self._create(point, _STATES[verdict.outcome], value, verdict)
        except Exception as error:
            raise StorageUnusable(database_reason(error)) from error
        with self._lock:
            self._claims.pop(point, None)

    def conclude(self, wanted: int) -> None:
        """Say that the search has come to its end by itself: of `wanted` candidates none is left
        that is worth a launch, by what is told now."""
        said = {"told": self.look().measured, "wanted": wanted}
        try:
            self.storage.set_study_user_attr(self.study, _ENDED, said)
        except Exception as error:
            raise StorageUnusable(database_reason(error)) from error

    def is_concluded(self, wanted: int) -> bool:
        """Whether a search for no fewer candidates has come to its end, and nothing was told or
        claimed since."""
        try:
            said = self.storage.get_study_user_attrs(self.study).get(_ENDED)
        except Exception as error:
            raise StorageUnusable(database_reason(error)) from error
        if not isinstance(said, dict) or not said.get("wanted", 0) >= wanted:
            return False
        sight = self.look()
        return not sight.live and sight.measured == said.get("told")

    def close(self) -> None:
        """Give up what is claimed and not measured. Raises nothing: where the database is away,
        the claims go stale by themselves."""
        self._over.set()
        if self._heart is not None:
            self._heart.join(timeout=self.heartbeat_s + 1)
        self._claims.clear()
        with suppress(Exception):
            self._give_up_leftovers()

    def _running(self) -> Sequence[FrozenTrial]:
        states = (TrialState.RUNNING,)
        return self.storage.get_all_trials(self.study, deepcopy=False, states=states)

    def _beat_for_the_silent(self) -> None:
        """Give the first heartbeat to claims without one, after which they can go stale: whoever
        made them was killed, or lost the database, before it. Optuna takes them for alive for ever.
        """
        running = {each._trial_id for each in self._running()}
        beat: sqlalchemy.ColumnClause[int] = sqlalchemy.column("trial_id")
        beats = sqlalchemy.select(beat).select_from(sqlalchemy.table("trial_heartbeats", beat))
        with self.storage.engine.begin() as connection:
            beating = connection.execute(beats.where(beat.in_(running))).scalars().all()
        for number in running.difference(beating):
            self.storage.record_heartbeat(number)

    def _give_up_leftovers(self) -> None:
        """Claims of this worker's name that it does not hold: of an earlier call of its run, which
        was killed, or one whose answer was lost on the way."""
        held = set(self._claims.values())
        for trial in self._running():
            attributes = trial.user_attrs
            if attributes.get(_WORKER) != self.worker or trial._trial_id in held:
                continue
            if _VERDICT in attributes:  # it was ended between its verdict and its state
                self._fail(trial._trial_id)
            else:
                self._withdraw(trial._trial_id)

    def _fail(self, number: int) -> None:
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # by another worker
            self.storage.set_trial_state_values(number, TrialState.FAIL)

    def _end(self, number: int, verdict: Observation, value: list[float] | None) -> bool:
        """False for a claim that was taken from us meanwhile."""
        try:
            self.storage.set_trial_user_attr(number, _VERDICT, json.dumps(verdict_json(verdict)))
            self.storage.set_trial_state_values(number, _STATES[verdict.outcome], value)
        except optuna.exceptions.UpdateFinishedTrialError:
            return False
        return True

    def _withdraw(self, number: int) -> None:
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # it was taken for dead
            self.storage.set_trial_user_attr(number, _WITHDRAWN, True)
            self.storage.set_trial_state_values(number, TrialState.FAIL)

    def _create(
        self,
        point: Point,
        state: TrialState,
        values: list[float] | None = None,
        verdict: Observation | None = None,
    ) -> int:
        attributes: dict[str, Any] = {_WORKER: self.worker, _POINT: point.key}
        attributes["configuration"] = point.label()
        if verdict is not None:
            attributes[_VERDICT] = json.dumps(verdict_json(verdict))
        trial = create_trial(
            state=state,
            values=values,
            params=combination(self.space, point),
            distributions=_distributions(self.space),
            user_attrs=attributes,
        )
        return int(self.storage.create_new_trial(self.study, template_trial=trial))

    def _beat_from_now_on(self) -> None:
        if self._heart is None:
            self._heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
            self._heart.start()

    def _beat(self) -> None:
        while not self._over.wait(self.heartbeat_s):
            with self._lock:
                numbers = list(self._claims.values())
            for number in numbers:
                try:
                    self.storage.record_heartbeat(number)
                except Exception:
                    break  # it is away; the next beat may find it


def _distributions(space: Space) -> dict[str, BaseDistribution]:
    return {name: distribution(values) for name, values in space.dimensions.items()}


def _read_point(trial: FrozenTrial) -> Point | None:
    text = trial.user_attrs.get(_POINT)
    return None if text is None else Point.from_json(json.loads(text))


def _stands(trial: FrozenTrial) -> bool:
    """A claim that runs, or one that has brought something."""
    if _POINT not in trial.user_attrs or trial.user_attrs.get(_WITHDRAWN):
        return False
    return trial.state == TrialState.RUNNING or _VERDICT in trial.user_attrs
