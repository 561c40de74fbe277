"""The search proposes what can be launched, once."""

from importlib.util import find_spec
from pathlib import Path

import optuna
import pytest

from tuner.config.loader import LoadedSweep, load_sweep
from tuner.config.point import Point
from tuner.search.observation import LevelFigures
from tuner.search.optuna_study import FEASIBLE, Observation, Study, startup_trials
from tuner.search.samplers import missing_library

SWEEP = """
name: searched
engine: {kind: simulated}
model: {target: some/model, draft: some/draft, algorithm: EAGLE3, tp: 8}
space:
  num_steps: {low: 1, high: 6}
  eagle_topk: [1, 2]
  num_draft_tokens: [4, 8, 20]
  draft_tp: [1, 8]
  env: {NCCL_PROTO: [unset, LL]}
  flags: {disable-custom-all-reduce: [false, true]}
search: {sampler: SAMPLER, trials: 24, seed: 3}
"""

GP = pytest.param(
    "gp", marks=pytest.mark.skipif(find_spec("torch") is None, reason="the extra gp is not there")
)

SMALL = SWEEP.replace("high: 6", "high: 3").replace("[4, 8, 20]", "[4, 8]")


@pytest.fixture
def load(tmp_path: Path):
    def loaded(sampler: str, text: str = SWEEP) -> LoadedSweep:
        path = tmp_path / f"{sampler}.yaml"
        path.write_text(text.replace("SAMPLER", sampler))
        return load_sweep(path)

    return loaded


def measured(point: Point) -> Observation:
    """A landscape with its best at 3 steps, NCCL_PROTO=LL, and an OOM corner."""
    if point.num_steps == 6 and point.eagle_topk == 2:
        return Observation("infeasible", reason="OOM: out of memory")
    if point.num_steps == 5:
        return Observation("failed", reason="CRASH: ended")
    value = 1.2 - 0.05 * abs(point.num_steps - 3) - 0.05 * (point.eagle_topk - 1)
    value += 0.1 * (dict(point.env).get("NCCL_PROTO") == "LL") - 0.04 * len(point.flags)
    return Observation("ok", value)


def run(study: Study, count: int) -> list[tuple[Point, Observation]]:
    done = []
    for _ in range(count):
        proposal = study.propose()
        if proposal is None:
            break
        verdict = measured(proposal.point)
        study.tell(proposal, verdict)
        done.append((proposal.point, verdict))
    return done


def make(loaded: LoadedSweep) -> Study:
    return Study(loaded.space, loaded.sweep.search, 24)


def test_grid_measures_every_point_once_in_the_order_of_the_plan(load):
    loaded = load("grid")
    points = [point for point, _ in run(make(loaded), 10_000)]
    assert points == list(loaded.space.points)


@pytest.mark.parametrize("sampler", ["tpe", "random", "nsga2", GP])
def test_the_whole_space_is_reached_and_no_point_is_launched_twice(load, sampler):
    loaded = load(sampler, SMALL)
    points = [point for point, _ in run(make(loaded), 10_000)]
    assert len(points) == len(set(points)) == len(loaded.space.points)


def test_another_seed_is_another_search(load):
    loaded = load("tpe")
    other = loaded.sweep.search.model_copy(update={"seed": 4})
    assert run(make(loaded), 6) != run(Study(loaded.space, other, 24), 6)


def test_tpe_spends_its_trials_where_it_is_fast(load):
    loaded = load("tpe")
    values = sorted(measured(p).value or 0 for p in loaded.space.points)
    found = max(verdict.value or 0 for _, verdict in run(make(loaded), 24))
    assert found >= values[-3]


@pytest.mark.parametrize("sampler", [GP])
def test_gp_launches_nothing_but_what_promises_most(load, sampler):
    """Out of the box it proposes illegal and measured combinations again and again."""
    loaded = load(sampler)
    study = make(loaded)
    values = sorted(measured(p).value or 0 for p in loaded.space.points)
    done = run(study, 24)
    assert max(verdict.value or 0 for _, verdict in done) >= values[-3]
    labels = [trial.user_attrs.get("point") for trial in study.optuna_trials]
    modelled = labels[labels.index(done[startup_trials(24)][0].label()) :]
    assert modelled == [point.label() for point, _ in done[startup_trials(24) :]]


def both(point: Point) -> Observation:
    """Long chains for one stream, short ones for eight."""
    first, second = 1 + 0.1 * point.num_steps, 1.7 - 0.1 * point.num_steps
    levels = {1: LevelFigures(1.0, speedup=first), 8: LevelFigures(1.0, speedup=second)}
    return Observation("ok", (first * second) ** 0.5, levels=levels)


def test_nsga2_has_an_objective_for_each_concurrency(load):
    """One number would hide the configuration that is best at one of them."""
    loaded = load("nsga2")
    study = Study(loaded.space, loaded.sweep.search, 24, levels=(1, 8))
    history = []
    for _ in range(24):
        proposal = study.propose()
        assert proposal is not None
        study.tell(proposal, both(proposal.point))
        history.append((proposal.point, both(proposal.point)))
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
    study = make(loaded)
    done, trials = run(study, 40), study.optuna_trials
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
