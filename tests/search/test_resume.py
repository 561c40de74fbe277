"""A resumed study knows every recorded trial and proposes none of them again."""

from pathlib import Path

import pytest

from tests.factories import load_sweep_text
from tests.search.landscape import (
    GP,
    SMALL,
    SWEEP,
    load_searched,
    make_study,
    measured,
    measured_at_two_levels,
    run_study,
)
from tuner.config.loader import LoadedSweep
from tuner.config.point import Point
from tuner.search.decision import Decision
from tuner.search.observation import Observation
from tuner.search.optuna_study import Study

History = list[tuple[Point, Observation, Decision | None]]
SAMPLERS = ["tpe", "random", "grid", "nsga2", GP]


def staged(folder: Path, text: str = SWEEP) -> LoadedSweep:
    text = text.replace("sampler: SAMPLER,", "sampler: tpe, stages: [anchors, model],")
    return load_sweep_text(folder, text)


def staged_study(loaded: LoadedSweep) -> Study:
    study = Study(loaded.space, loaded.sweep.search, 24, persists=True)
    study.tell_baseline(measured_at_two_levels(Point(1, 1, 2, "target")).levels)
    return study


def go(study: Study, count: int) -> History:
    """Measure so many points, and keep what a ledger keeps of them."""
    history: History = []
    while len(history) < count and (proposal := study.propose()) is not None:
        observation = measured_at_two_levels(proposal.point)
        study.tell(proposal, observation)
        history.append((proposal.point, observation, proposal.decision))
    return history


def resume(study: Study, history: History) -> Study:
    for point, observation, decision in history:
        study.add(point, observation, decision)
    return study


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("text", [SWEEP, SMALL], ids=["wide", "nearly exhausted"])
def test_resumed_study_knows_every_recorded_trial(tmp_path: Path, sampler: str, text: str) -> None:
    """The sampler learns of a recorded trial what it learned when the trial was measured."""
    loaded = load_searched(tmp_path, sampler, text)
    first, again = make_study(loaded), make_study(loaded)
    history = run_study(first, 24)
    for point, observation in history:
        again.add(point, observation)
    told = {
        t.user_attrs["point"]: t for t in reversed(first.optuna_trials) if "point" in t.user_attrs
    }
    assert len(again.optuna_trials) == len(history)
    for (point, _), trial in zip(history, again.optuna_trials, strict=True):
        before = told[point.label()]
        assert (trial.state, trial.values) == (before.state, before.values)
        assert trial.constraints == before.constraints
        assert loaded.space.at(trial.params) == point
    rest = [point for point, _ in run_study(again, 10_000 if text == SMALL else 6)]
    assert len(set(rest)) == len(rest) and not {*rest} & {point for point, _ in history}
    assert text != SMALL or len(rest) + len(history) == len(loaded.space.points)


def test_resume_asks_no_sampler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sampler fits a model for each answer, so asking takes time with the square of trials."""
    loaded = load_searched(tmp_path, "tpe")
    again = make_study(loaded)
    monkeypatch.setattr(Study, "_ask", lambda *_: pytest.fail("a sampler was asked"))
    for point in loaded.space.points:
        again.add(point, measured(point))
    assert again.propose() is None


def test_resumed_nsga2_goes_on_with_its_generations(tmp_path: Path) -> None:
    """Trials without a generation would leave the next one nothing to breed from."""
    loaded = load_searched(tmp_path, "nsga2")
    again = make_study(loaded)
    for point, observation in run_study(make_study(loaded), 12):
        again.add(point, observation)
    again.propose()
    generations = [
        value
        for trial in again.optuna_trials
        for name, value in trial.system_attrs.items()
        if name.endswith(":generation")
    ]
    assert len(generations) == len(again.optuna_trials) and max(generations) > 0


@pytest.mark.parametrize("length", [1, 3, 7, 12])
def test_resumed_stages_decide_as_before(tmp_path: Path, length: int) -> None:
    """The checks and missed predictions of the earlier call count."""
    loaded = staged(tmp_path)
    first = staged_study(loaded)
    again = resume(staged_study(loaded), go(first, length))
    assert again.handed_over == first.handed_over
    while first.handed_over is None:
        one, other = first.propose(), again.propose()
        assert one is not None and other is not None
        if first.handed_over is None:
            assert (one.point, one.decision) == (other.point, other.decision)
            first.tell(one, measured_at_two_levels(one.point))
            again.tell(other, measured_at_two_levels(one.point))
    assert again.handed_over == first.handed_over


def test_extended_search_stays_with_the_sampler(tmp_path: Path) -> None:
    """`--trials +N` after "nothing better is left", interrupted: the sampler's turn goes on."""
    loaded = staged(tmp_path, SMALL)
    first = staged_study(loaded)
    history = go(first, 24)
    assert first.handed_over is not None
    assert resume(staged_study(loaded), history).handed_over == first.handed_over
