"""The search proposes what can be launched, once."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import optuna
import pytest

from tests.search.landscape import (
    GP,
    SMALL,
    load_searched,
    make_study,
    measured,
    measured_at_two_levels,
    run_study,
)
from tuner.config.loader import LoadedSweep
from tuner.search.optuna_study import FEASIBLE, Study, startup_trials
from tuner.search.samplers import missing_library


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., LoadedSweep]:
    return partial(load_searched, tmp_path)


def test_grid_measures_every_point_once_in_the_order_of_the_plan(load):
    loaded = load("grid")
    points = [point for point, _ in run_study(make_study(loaded), 10_000)]
    assert points == list(loaded.space.points)


@pytest.mark.parametrize("sampler", ["tpe", "random", "nsga2", GP])
def test_the_whole_space_is_reached_and_no_point_is_launched_twice(load, sampler):
    loaded = load(sampler, SMALL)
    points = [point for point, _ in run_study(make_study(loaded), 10_000)]
    assert len(points) == len(set(points)) == len(loaded.space.points)


def test_another_seed_is_another_search(load):
    loaded = load("tpe")
    other = loaded.sweep.search.model_copy(update={"seed": 4})
    assert run_study(make_study(loaded), 6) != run_study(Study(loaded.space, other, 24), 6)


def test_tpe_spends_its_trials_where_it_is_fast(load):
    loaded = load("tpe")
    values = sorted(measured(p).value or 0 for p in loaded.space.points)
    found = max(verdict.value or 0 for _, verdict in run_study(make_study(loaded), 24))
    assert found >= values[-3]


@pytest.mark.parametrize("sampler", [GP])
def test_gp_launches_nothing_but_what_promises_most(load, sampler):
    """Out of the box it proposes illegal and measured combinations again and again."""
    loaded = load(sampler)
    study = make_study(loaded)
    values = sorted(measured(p).value or 0 for p in loaded.space.points)
    done = run_study(study, 24)
    assert max(verdict.value or 0 for _, verdict in done) >= values[-3]
    labels = [trial.user_attrs.get("point") for trial in study.optuna_trials]
    modelled = labels[labels.index(done[startup_trials(24)][0].label()) :]
    assert modelled == [point.label() for point, _ in done[startup_trials(24) :]]


def test_nsga2_has_an_objective_for_each_concurrency(load):
    """One number would hide the configuration that is best at one of them."""
    loaded = load("nsga2")
    study = Study(loaded.space, loaded.sweep.search, 24, levels=(1, 8))
    history = []
    for _ in range(24):
        proposal = study.propose()
        assert proposal is not None
        study.tell(proposal, measured_at_two_levels(proposal.point))
        history.append((proposal.point, measured_at_two_levels(proposal.point)))
    assert len({point for point, _ in history}) == 24
    shown = {t.user_attrs["point"]: t.values for t in study.optuna_trials if t.values}
    assert shown == {
        point.label(): [v.levels[1].speedup, v.levels[8].speedup] for point, v in history
    }
    again = Study(loaded.space, loaded.sweep.search, 24, levels=(1, 8))
    for point, observation in history:
        again.add(point, observation)
    values = [[o.levels[1].speedup, o.levels[8].speedup] for _, o in history]
    assert [trial.values for trial in again.optuna_trials] == values


def test_gp_without_torch_says_what_to_install(load, monkeypatch):
    monkeypatch.setattr("tuner.search.samplers.find_spec", lambda name: None)
    told = missing_library(load("gp").sweep.search)
    assert told is not None and "pip install 'sglang-specbench[gp]'" in told
    assert missing_library(load("tpe").sweep.search) is None


def test_the_sampler_learns_of_each_trial_what_it_was(load):
    """Told that an illegal or unlaunchable point is good, it would go there again."""
    loaded = load("tpe")
    study = make_study(loaded)
    done, trials = run_study(study, 40), study.optuna_trials
    verdicts = {point.label(): verdict for point, verdict in done}

    illegal = [each for each in trials if "point" not in each.user_attrs]
    assert illegal
    for trial in illegal:
        assert trial.state == optuna.trial.TrialState.PRUNED
        assert trial.constraints[FEASIBLE] > 0
        assert "num_draft_tokens is above" in trial.user_attrs["reason"]

    out_of_memory = [t for t in trials if t.user_attrs.get("reason", "").startswith("OOM")]
    assert out_of_memory
    for trial in out_of_memory:
        assert trial.state == optuna.trial.TrialState.PRUNED
        assert trial.constraints[FEASIBLE] > 0

    first_of_point = {t.user_attrs["point"]: t for t in reversed(trials) if t not in illegal}
    assert set(first_of_point) == set(verdicts)
    for label, trial in first_of_point.items():
        verdict = verdicts[label]
        assert set(trial.params) == set(loaded.space.dimensions)
        if verdict.outcome == "ok":
            assert trial.state == optuna.trial.TrialState.COMPLETE
            assert trial.value == verdict.value
            assert trial.constraints[FEASIBLE] <= 0
        elif verdict.outcome == "failed":
            assert trial.state == optuna.trial.TrialState.FAIL
