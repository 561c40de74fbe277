"""A resumed study knows every recorded trial and proposes none of them again."""

from pathlib import Path

import pytest

from tests.search.test_study import GP, SMALL, SWEEP, both, make, measured, run
from tuner.config.loader import LoadedSweep, load_sweep
from tuner.config.point import Point
from tuner.search.decision import Decision
from tuner.search.observation import Observation
from tuner.search.optuna_study import Study

History = list[tuple[Point, Observation, Decision | None]]
SAMPLERS = ["tpe", "random", "grid", "nsga2", GP]


def loaded_as(folder: Path, sampler: str, text: str = SWEEP) -> LoadedSweep:
    path = folder / f"{sampler}.yaml"
    path.write_text(text.replace("SAMPLER", sampler))
    return load_sweep(path)


def staged(folder: Path, text: str = SWEEP) -> LoadedSweep:
    text = text.replace("sampler: SAMPLER,", "sampler: tpe, stages: [anchors, model],")
    return loaded_as(folder, "staged", text)


def staged_study(loaded: LoadedSweep) -> Study:
    study = Study(loaded.space, loaded.sweep.search, 24, persists=True)
    study.tell_baseline(both(Point(1, 1, 2, "target")).levels)
    return study


def go(study: Study, count: int) -> History:
    """Measure so many points, and keep what a ledger keeps of them."""
    history: History = []
    while len(history) < count and (proposal := study.propose()) is not None:
        observation = both(proposal.point)
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
    loaded = loaded_as(tmp_path, sampler, text)
    first, again = make(loaded), make(loaded)
    history = run(first, 24)
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
    rest = [point for point, _ in run(again, 10_000 if text == SMALL else 6)]
    assert len(set(rest)) == len(rest) and not {*rest} & {point for point, _ in history}
    assert text != SMALL or len(rest) + len(history) == len(loaded.space.points)


def test_resume_asks_no_sampler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sampler fits a model for each answer, so asking takes time with the square of trials."""
    loaded = loaded_as(tmp_path, "tpe")
    again = make(loaded)
    monkeypatch.setattr(Study, "_ask", lambda *_: pytest.fail("a sampler was asked"))
    for point in loaded.space.points:
        again.add(point, measured(point))
    assert again.propose() is None


def test_resumed_nsga2_goes_on_with_its_generations(tmp_path: Path) -> None:
    """Trials without a generation would leave the next one nothing to breed from."""
    loaded = loaded_as(tmp_path, "nsga2")
    again = make(loaded)
    for point, observation in run(make(loaded), 12):
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
            first.tell(one, both(one.point))
            again.tell(other, both(one.point))
    assert again.handed_over == first.handed_over


def test_extended_search_stays_with_the_sampler(tmp_path: Path) -> None:
    """`--trials +N` after "nothing better is left", interrupted: the sampler's turn goes on."""
    loaded = staged(tmp_path, SMALL)
    first = staged_study(loaded)
    history = go(first, 24)
    assert first.handed_over is not None
    assert resume(staged_study(loaded), history).handed_over == first.handed_over
