"""The search proposes what can be launched, once, and the same again after a resume."""

from importlib.util import find_spec
from pathlib import Path

import optuna
import pytest

from tuner.search.samplers import missing_library, population_size
from tuner.search.stored import StorageUnusable, StoredStudy, open_own_study, sqlite_url
from tuner.search.study import FEASIBLE, Study, Verdict, combination, startup_trials
from tuner.search.verdict import Figures
from tuner.sweep.door import LoadedSweep, load_sweep
from tuner.sweep.point import Point

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


def measured(point: Point) -> Verdict:
    """A landscape with its best at 3 steps, NCCL_PROTO=LL, and an OOM corner."""
    if point.num_steps == 6 and point.eagle_topk == 2:
        return Verdict("infeasible", reason="OOM: out of memory")
    if point.num_steps == 5:
        return Verdict("failed", reason="CRASH: ended")
    value = 1.2 - 0.05 * abs(point.num_steps - 3) - 0.05 * (point.eagle_topk - 1)
    value += 0.1 * (dict(point.env).get("NCCL_PROTO") == "LL") - 0.04 * len(point.flags)
    return Verdict("ok", value, attributes={"c1.output_tok_s": 90 * value})


def run(study: Study, count: int) -> list[tuple[Point, Verdict]]:
    done = []
    for _ in range(count):
        proposal = study.propose()
        if proposal is None:
            break
        verdict = measured(proposal.point)
        study.tell(proposal, verdict)
        done.append((proposal.point, verdict))
    return done


def make(loaded: LoadedSweep, stored: StoredStudy | None = None) -> Study:
    return Study(loaded.space, loaded.sweep.search, 24, stored)


def test_grid_measures_every_point_once_in_the_order_of_the_plan(load):
    loaded = load("grid")
    points = [point for point, _ in run(make(loaded), 10_000)]
    assert points == list(loaded.space.points)


@pytest.mark.parametrize("sampler", ["tpe", "random", "nsga2", GP])
def test_the_whole_space_is_reached_and_no_point_is_launched_twice(load, sampler):
    loaded = load(sampler, SMALL)
    points = [point for point, _ in run(make(loaded), 10_000)]
    assert len(points) == len(set(points)) == len(loaded.space.points)


@pytest.mark.parametrize("sampler", ["tpe", "random", "nsga2", GP])
def test_a_resumed_search_goes_on_like_an_undisturbed_one(load, sampler):
    loaded = load(sampler)
    undisturbed = run(make(loaded), 20)
    resumed = make(loaded)
    assert resumed.replay(undisturbed[:9]) == 0
    assert undisturbed[:9] + run(resumed, 11) == undisturbed


def test_points_that_optuna_would_not_propose_again_are_told_all_the_same(load):
    loaded = load("tpe", SMALL)
    history = [(point, measured(point)) for point in loaded.space.points[-5:]]
    study = make(loaded)
    assert study.replay(history) > 0
    rest = {point for point, _ in run(study, 10_000)}
    assert rest == set(loaded.space.points) - {point for point, _ in history}


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
def test_gp_launches_nothing_but_what_promises_most(load, sampler, tmp_path: Path):
    """Out of the box it proposes illegal and measured combinations again and again."""
    loaded, url = load(sampler), sqlite_url(tmp_path / "study.db")
    values = sorted(measured(p).value or 0 for p in loaded.space.points)
    done = run(make(loaded, StoredStudy(url, "run-1", "me")), 24)
    assert max(verdict.value or 0 for _, verdict in done) >= values[-3]
    trials = optuna.load_study(study_name="run-1", storage=url).trials
    labels = [trial.user_attrs.get("point") for trial in trials]
    modelled = labels[labels.index(done[startup_trials(24)][0].label()) :]
    assert modelled == [point.label() for point, _ in done[startup_trials(24) :]]


def both(point: Point) -> Verdict:
    """Long chains for one stream, short ones for eight."""
    first, second = 1 + 0.1 * point.num_steps, 1.7 - 0.1 * point.num_steps
    levels = {1: Figures(1.0, speedup=first), 8: Figures(1.0, speedup=second)}
    return Verdict("ok", (first * second) ** 0.5, levels=levels)


def test_nsga2_has_an_objective_for_each_concurrency(load, tmp_path: Path):
    """One number would hide the configuration that is best at one of them."""
    loaded, url = load("nsga2"), sqlite_url(tmp_path / "study.db")
    stored = StoredStudy(url, "run-1", "me", objectives=2)
    study = Study(loaded.space, loaded.sweep.search, 24, stored, levels=(1, 8))
    history = []
    for _ in range(24):
        proposal = study.propose()
        assert proposal is not None
        study.tell(proposal, both(proposal.point))
        history.append((proposal.point, both(proposal.point)))
    assert len({point for point, _ in history}) == 24
    trials = optuna.load_study(study_name="run-1", storage=url).trials
    shown = {t.user_attrs["point"]: t.values for t in trials if t.values}
    assert shown == {
        point.label(): [v.levels[1].speedup, v.levels[8].speedup] for point, v in history
    }
    again = Study(loaded.space, loaded.sweep.search, 24, levels=(1, 8))
    assert again.replay(history) == 0
    assert again.propose().point == study.propose().point


def test_gp_without_torch_says_what_to_install(load, monkeypatch):
    monkeypatch.setattr("tuner.search.samplers.find_spec", lambda name: None)
    told = missing_library(load("gp").sweep.search)
    assert told is not None and "pip install 'sglang-specbench[gp]'" in told
    assert missing_library(load("tpe").sweep.search) is None


def test_the_dashboard_shows_each_trial_as_what_it_was(load, tmp_path: Path):
    loaded = load("tpe")
    url = sqlite_url(tmp_path / "study.db")
    done = run(make(loaded, StoredStudy(url, "run-1", "me")), 40)
    trials = optuna.load_study(study_name="run-1", storage=url).trials
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
            assert trial.user_attrs["c1.output_tok_s"] == 90 * verdict.value
        elif verdict.outcome == "failed":
            assert trial.state == optuna.trial.TrialState.FAIL


def test_a_replaced_study_holds_the_replayed_trials_and_not_the_old_ones(load, tmp_path: Path):
    loaded = load("random")
    url = sqlite_url(tmp_path / "study.db")
    done = run(make(loaded, StoredStudy(url, "run-1", "me")), 8)
    before = optuna.load_study(study_name="run-1", storage=url).trials
    make(loaded, StoredStudy(url, "run-1", "me")).replay(done)
    after = optuna.load_study(study_name="run-1", storage=url).trials
    assert [(t.number, t.params, t.state, t.values) for t in after] == [
        (t.number, t.params, t.state, t.values) for t in before
    ]


def test_a_study_of_somebody_elses_is_not_overwritten(tmp_path: Path):
    url = sqlite_url(tmp_path / "study.db")
    StoredStudy(url, "run-1", "me")
    with pytest.raises(StorageUnusable, match="has another run's study run-1"):
        StoredStudy(url, "run-1", "somebody else")
    StoredStudy(url, "run-1", "me")


@pytest.mark.parametrize(
    "url",
    ["", "nonsense", "sqlite:////no/such/folder/study.db", "foo://x/y", "redis://x", "sqlite:///."],
)
def test_a_storage_that_cannot_be_used_has_one_reason(url):
    with pytest.raises(StorageUnusable) as caught:
        StoredStudy(url, "run-1", "me")
    assert len(str(caught.value).splitlines()) == 1


def test_a_broken_study_file_is_set_aside_and_written_anew(tmp_path: Path):
    """It is derived: a run must not depend on it."""
    file = tmp_path / "study.db"
    file.write_bytes(b"no database" * 100)
    stored, note = open_own_study(file, "run-1", "me")
    assert stored is not None
    assert note is not None and "study.db.broken" in note and "search.storage" not in note
    assert (tmp_path / "study.db.broken").read_bytes().startswith(b"no database")
    assert open_own_study(file, "run-1", "me")[1] is None


def test_a_study_file_that_cannot_be_replaced_is_done_without(tmp_path: Path):
    file = tmp_path / "study.db"
    file.mkdir()
    (tmp_path / "study.db.broken").mkdir()
    (tmp_path / "study.db.broken" / "full").touch()
    stored, note = open_own_study(file, "run-1", "me")
    assert stored is None
    assert note is not None and "goes on without" in note


def test_a_storage_that_breaks_does_not_end_the_run(load, tmp_path: Path):
    loaded = load("random")
    stored = StoredStudy(sqlite_url(tmp_path / "study.db"), "run-1", "me")
    study = make(loaded, stored)
    run(study, 2)
    optuna.delete_study(study_name="run-1", storage=sqlite_url(tmp_path / "study.db"))
    assert len(run(study, 3)) == 3
    assert study.storage_lost


def test_every_point_can_be_put_back_into_values(load):
    space = load("tpe").space
    for point in space.points:
        assert space.at(combination(space, point)) == point


def test_a_short_run_is_not_all_random():
    assert [startup_trials(n) for n in (1, 8, 24, 40, 400)] == [4, 4, 6, 10, 10]
    assert [population_size(n) for n in (1, 8, 24, 40, 400)] == [4, 4, 6, 10, 50]


@pytest.mark.parametrize("sampler", ["grid", "tpe", "random", "nsga2", GP])
def test_points_that_were_measured_along_are_known_and_replayed(load, sampler):
    """They came with another point's launch; a resumed run must go on where this one stopped."""
    loaded = load(sampler)
    study, history, unasked = make(loaded), [], []
    for _ in range(8):
        proposal = study.propose()
        study.tell(proposal, measured(proposal.point))
        history.append((proposal.point, measured(proposal.point)))
        known = {point for point, _ in history}
        along = next(point for point in loaded.space.points if point not in known)
        study.tell_unasked(along, measured(along))
        history.append((along, measured(along)))
        unasked.append(along)
    assert len({point for point, _ in history}) == 16
    again = make(loaded)
    assert again.replay(history, unasked) == 0
    assert again.propose().point == study.propose().point
