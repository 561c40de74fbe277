"""A search that several hosts share: points are claimed and told through an Optuna study.

Every worker has a study of its own in memory and decides by itself what it measures next. The
shared study has what the others measure and what they have found. A claim is a running trial with a
heartbeat by the database's clock. A worker that is silent for longer than the grace period is dead,
and its points are free again. Of two claims on one point the trial with the lower number stands:
numbers are given one after the other, and `add_trial` writes a trial together with its point, which
`ask` does not, so all workers see the same order.
"""

import json
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
from optuna.storages import RDBStorage, fail_stale_trials
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.config.load_level import parse_level
from tuner.config.point import Point
from tuner.config.space import Space
from tuner.search.observation import LevelFigures, Observation, Outcome
from tuner.search.optuna_storage import StorageUnusable, database_reason
from tuner.search.samplers import combination, distribution

_WORKER, _POINT, _OBSERVATION, _WITHDRAWN, _BEATS = (
    f"specbench {name}" for name in ("worker", "point", "verdict", "withdrawn", "beats")
)
"""User attributes of a trial. `_BEATS`: the claim has its first heartbeat."""
_ENDED = "specbench ended"
"""User attribute of the study: a worker's search came to its end, and what was known then."""
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
    observation: Observation


@dataclass(frozen=True)
class StudySnapshot:
    """The shared study at one moment."""

    told: tuple[SharedResult, ...]
    """By all workers, in the order in which the points were claimed."""
    live: Mapping[Point, str]
    """Points that are being measured, and by which worker."""

    @property
    def measured(self) -> int:
        """Points that were measured by any worker."""
        return len({result.point for result in self.told})

    @property
    def taken(self) -> int:
        """Points that were measured or are being measured by any worker."""
        return len({result.point for result in self.told} | self.live.keys())


@contextmanager
def reaching_database() -> Iterator[None]:
    """Raise StorageUnusable for whatever the database's driver raises."""
    try:
        yield
    except StorageUnusable:
        raise
    except Exception as error:
        raise StorageUnusable(database_reason(error)) from error


@dataclass
class SharedStudy:
    """One worker's side of a shared study.

    Its methods raise StorageUnusable while the database cannot be reached. Nothing is lost if they
    are called again.
    """

    study: Study
    storage: RDBStorage
    worker: str
    space: Space
    heartbeat_s: float
    _claims: dict[Point, FrozenTrial] = field(default_factory=dict)
    """Running trials of this worker."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)
    _heart: threading.Thread | None = None

    def look(self) -> StudySnapshot:
        """Free the claims of dead workers, and return what others measure and found."""
        with reaching_database():
            for trial in self._running():
                if _BEATS not in trial.user_attrs:  # Optuna takes it for alive for ever
                    self._beat_first(trial)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)
                fail_stale_trials(self.study)
            self._give_up_leftovers()
            trials = self.study.get_trials(deepcopy=False)
        told, live = list[SharedResult](), dict[Point, str]()
        for trial in filter(_stands, trials):
            point = Point.from_json(json.loads(trial.user_attrs[_POINT]))
            worker = str(trial.user_attrs.get(_WORKER))
            if trial.state == TrialState.RUNNING:
                live.setdefault(point, worker)
            else:
                observation = observation_from(json.loads(trial.user_attrs[_OBSERVATION]))
                told.append(SharedResult(trial.number, worker, point, observation))
        return StudySnapshot(tuple(told), live)

    def claim(self, point: Point, most: int) -> bool:
        """Claim a point for this worker; return True if the claim stands.

        It does not if another worker measures or measured the point, or if `most` points are
        claimed or measured without it.
        """
        if point in self._claims:
            return True
        with reaching_database(), suppress(UpdateFinishedTrialError):  # it was taken for dead
            self._add(point, TrialState.RUNNING)
            trials = self.study.get_trials(deepcopy=False)
            own = next(trial for trial in reversed(trials) if self._is_own(trial, point))
            before = [trial for trial in trials if trial.number < own.number and _stands(trial)]
            points = {trial.user_attrs[_POINT] for trial in before}
            if point.key in points or len(points) >= most:
                self._withdraw(own)
                return False
            self._beat_first(own)
            with self._lock:
                self._claims[point] = own
            self._beat_from_now_on()
        return point in self._claims

    def release(self, point: Point) -> None:
        """Give up a claim; the others see that after the next look."""
        with self._lock:
            self._claims.pop(point, None)

    def publish(self, point: Point, observation: Observation) -> None:
        """Tell the others what was observed of a point, claimed or not."""
        state = _STATES[observation.outcome]
        with reaching_database():
            claim = self._claims.get(point)
            if claim is None or not self._end(claim, observation, state):
                self._add(point, state, observation)
        self.release(point)

    def conclude(self, wanted: int) -> None:
        """Record that the search is at its end: of `wanted` candidates none is worth a launch."""
        known = {"told": self.look().measured, "wanted": wanted}
        with reaching_database():
            self.study.set_user_attr(_ENDED, known)

    def is_concluded(self, wanted: int) -> bool:
        """Return True if a search for no fewer candidates is at its end, and nothing was told or
        claimed since."""
        with reaching_database():
            known = self.study.user_attrs.get(_ENDED)
        if not isinstance(known, dict) or not known.get("wanted", 0) >= wanted:
            return False
        sight = self.look()
        return not sight.live and sight.measured == known.get("told")

    def close(self) -> None:
        """Give up all claims. If the database is away, they go stale by themselves."""
        self._over.set()
        if self._heart is not None:
            self._heart.join(timeout=self.heartbeat_s + 1)
        self._claims.clear()
        with suppress(Exception):
            self._give_up_leftovers()

    def _running(self) -> Sequence[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))

    def _is_own(self, trial: FrozenTrial, point: Point) -> bool:
        names = trial.user_attrs.get(_WORKER), trial.user_attrs.get(_POINT)
        return names == (self.worker, point.key)

    def _beat_first(self, trial: FrozenTrial) -> None:
        """Record the first heartbeat of a claim, its own or of a worker that was killed before."""
        self.storage.record_heartbeat(trial._trial_id)
        with suppress(UpdateFinishedTrialError):
            self.storage.set_trial_user_attr(trial._trial_id, _BEATS, True)

    def _give_up_leftovers(self) -> None:
        """Give up claims of this worker's name that it does not hold.

        They are of an earlier call of its run, which was killed, or their answer was lost.
        """
        held = {trial.number for trial in self._claims.values()}
        for trial in self._running():
            if trial.user_attrs.get(_WORKER) != self.worker or trial.number in held:
                continue
            with suppress(UpdateFinishedTrialError):
                if _OBSERVATION not in trial.user_attrs:
                    self._withdraw(trial)
                else:  # it was ended between its observation and its state
                    self._tell(trial, TrialState.FAIL)

    def _tell(self, trial: FrozenTrial, state: TrialState, value: float | None = None) -> None:
        self.study.tell(trial.number, value, state=state, skip_if_finished=True)

    def _end(self, claim: FrozenTrial, observation: Observation, state: TrialState) -> bool:
        """End a claim with an observation. Returns False if it was taken for dead meanwhile."""
        text = json.dumps(observation_json(observation))
        try:
            self.storage.set_trial_user_attr(claim._trial_id, _OBSERVATION, text)
        except UpdateFinishedTrialError:
            return False
        self._tell(claim, state, observation.value if state == TrialState.COMPLETE else None)
        return True

    def _withdraw(self, trial: FrozenTrial) -> None:
        self.storage.set_trial_user_attr(trial._trial_id, _WITHDRAWN, True)
        self._tell(trial, TrialState.FAIL)

    def _add(self, point: Point, state: TrialState, found: Observation | None = None) -> None:
        attributes: dict[str, Any] = {_WORKER: self.worker, _POINT: point.key}
        attributes["configuration"] = point.label()
        if found is not None:
            attributes[_OBSERVATION] = json.dumps(observation_json(found))
        trial = create_trial(
            state=state,
            value=None if found is None or state != TrialState.COMPLETE else found.value,
            params=combination(self.space, point),
            distributions={n: distribution(v) for n, v in self.space.dimensions.items()},
            user_attrs=attributes,
        )
        self.study.add_trial(trial)

    def _beat_from_now_on(self) -> None:
        """Start the heartbeat; Optuna starts one only in `optimize`."""
        if self._heart is None:
            self._heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
            self._heart.start()

    def _beat(self) -> None:
        while not self._over.wait(self.heartbeat_s):
            with self._lock:
                claims = list(self._claims.values())
            with suppress(Exception):  # the database is away; the next beat may find it
                for trial in claims:
                    self.storage.record_heartbeat(trial._trial_id)


def _stands(trial: FrozenTrial) -> bool:
    """Return True for a claim that runs or has an observation."""
    if _POINT not in trial.user_attrs or trial.user_attrs.get(_WITHDRAWN):
        return False
    return trial.state == TrialState.RUNNING or _OBSERVATION in trial.user_attrs


def observation_json(observation: Observation) -> dict[str, Any]:
    """Return the whole observation as JSON."""
    found = asdict(replace(observation, levels={}))
    found["levels"] = {str(level): asdict(its) for level, its in observation.levels.items()}
    return found


def observation_from(data: Mapping[str, Any]) -> Observation:
    """Parse what `observation_json` returned."""
    levels = {
        parse_level(level): LevelFigures(**{**its, "reached": tuple(its["reached"])})
        for level, its in data["levels"].items()
    }
    return Observation(**{**data, "levels": levels})
