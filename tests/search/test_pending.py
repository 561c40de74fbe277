"""Several proposals in flight: no point is proposed twice."""

import random
from pathlib import Path

import pytest

from tests.sweeps import tiny_sweep
from tuner.config.loader import LoadedSweep
from tuner.config.point import Point
from tuner.search.observation import LevelFigures, Observation
from tuner.search.optuna_study import Proposal, Study

SEARCHES = ["trials: 12", "trials: 12, stages: [anchors, model]", "sampler: random, trials: 12",
            "sampler: grid", "sampler: nsga2, trials: 12"]  # fmt: skip
PLAIN = {1: LevelFigures(10.0, None, (), None)}


def verdict(point: Point) -> Observation:
    """A machine on which a cycle takes 10 ms and 1.5 more a step, NCCL_PROTO=LL a tenth less."""
    steps = point.num_steps or 0
    cycle = (10 + 1.5 * steps) * (0.9 if point.env else 1.0)
    rates = tuple(0.7 ** (n + 1) for n in range(steps))
    length = 1 + sum(rates)
    value = length * 10 / cycle
    return Observation("ok", value, levels={1: LevelFigures(cycle, length, rates, value)})


def a_study(loaded: LoadedSweep) -> Study:
    study = Study(loaded.space, loaded.sweep.search, loaded.sweep.search.trials,
                  levels=(1,) if loaded.sweep.search.sampler == "nsga2" else ())  # fmt: skip
    study.tell_baseline(PLAIN)
    return study


def measure_all(study: Study, places: int, draw: random.Random) -> list[Point]:
    """Measure what the study proposes, in any order, with so many in flight."""
    measured: list[Point] = []
    flying: list[Proposal] = []
    while True:
        while len(flying) < places and (proposal := study.propose()) is not None:
            flying.append(proposal)
        if not flying:
            return measured
        done = flying.pop(draw.randrange(len(flying)))
        measured.append(done.point)
        study.tell(done, verdict(done.point))


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("places", [2, 4])
def test_no_point_is_proposed_while_it_is_measured(
    tmp_path: Path, search: str, places: int
) -> None:
    """A second launch of a point in flight tells nothing new."""
    loaded = tiny_sweep(tmp_path, search=search, steps="1, 2, 3, 4, 5, 6")
    points = measure_all(a_study(loaded), places, random.Random(places))
    assert len(set(points)) == len(points)
    if "anchors" not in search:  # the stages end a search before the space is exhausted
        assert set(points) == set(loaded.space.points)


@pytest.mark.parametrize("search", SEARCHES)
def test_resume_with_trials_in_flight_measures_the_rest_once(tmp_path: Path, search: str) -> None:
    """A crash leaves no line of what was in flight: those points are proposed like any other."""
    loaded = tiny_sweep(tmp_path, search=search, steps="1, 2, 3, 4, 5, 6")
    first, again = a_study(loaded), a_study(loaded)
    for _ in range(3):
        proposal, _in_flight = first.propose(), first.propose()
        assert proposal is not None
        first.tell(proposal, verdict(proposal.point))
        again.add(proposal.point, verdict(proposal.point), proposal.decision)
    rest = measure_all(again, 3, random.Random(0))
    assert len(set(rest)) == len(rest) and not {*rest} & {*first._told}


def test_both_anchors_are_launched_side_by_side(tmp_path: Path) -> None:
    """Two long chains at once would tell little more than one."""
    loaded = tiny_sweep(tmp_path, search="trials: 12, stages: [anchors, model]",
                        steps="1, 2, 3, 4, 5, 6")  # fmt: skip
    study = a_study(loaded)
    first, second = study.propose(), study.propose()
    assert first is not None and second is not None
    assert first.point.num_steps == 6 and (second.point.num_steps or 9) <= 0.6 * 6
    assert {each.decision and each.decision.stage for each in (first, second)} == {"anchors"}


def test_a_search_does_not_end_while_something_is_measured(tmp_path: Path) -> None:
    """What runs may show that something better is left."""
    loaded = tiny_sweep(tmp_path, search="trials: 12, stages: [anchors, model]",
                        steps="1, 2, 3, 4, 5, 6")  # fmt: skip
    study, waited = a_study(loaded), 0
    flying: list[Proposal] = []
    while True:
        proposal = study.propose() if len(flying) < 3 else None
        if proposal is not None:
            flying.append(proposal)
            continue
        assert study.stopped is None or not flying
        if not flying:
            break
        waited += len(flying) < 3
        study.tell(flying[0], verdict(flying.pop(0).point))
    assert study.stopped is not None and waited


def test_a_search_does_not_end_while_others_measure(tmp_path: Path) -> None:
    """What another host's point brings may change what is worth a launch; one that ended would
    leave the rest, and what a dead one had claimed, to nobody."""
    study = a_study(tiny_sweep(tmp_path, search="trials: 12, stages: [anchors, model]"))
    points, made = study._space.points, 0
    while (proposal := study.propose()) is not None:
        study.tell(proposal, verdict(proposal.point))
        made += 1
    assert study.stopped is not None and made < len(points)
    (elsewhere,) = [each for each in points if each not in study._told][:1]

    waiting = a_study(tiny_sweep(tmp_path, search="trials: 12, stages: [anchors, model]"))
    while (proposal := waiting.propose([elsewhere])) is not None:
        waiting.tell(proposal, verdict(proposal.point))
    assert waiting.stopped is None
    waiting.add(elsewhere, verdict(elsewhere))
    assert waiting.propose() is None and waiting.stopped is not None
