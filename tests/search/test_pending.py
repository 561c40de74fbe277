"""Several proposals in flight: none is made twice, and a resume knows what each rested on."""

import json
import random
from pathlib import Path

import pytest

from tests.sweeps import tiny_sweep
from tuner.config.loader import LoadedSweep
from tuner.config.point import Point
from tuner.runner.observations import ledger_line
from tuner.runs.records import AskedLine
from tuner.search.asked import Proposal, ProposalContext
from tuner.search.observation import LevelFigures, Observation
from tuner.search.optuna_study import Study

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


History = list[tuple[Point, Observation]]


def go(
    study: Study, places: int, count: int, draw: random.Random
) -> tuple[History, dict[Point, ProposalContext], list[Proposal]]:
    """Answer `count` proposals in any order, with as many in flight as there are places; those
    that are in flight at the end are returned last."""
    history: History = []
    asked: dict[Point, ProposalContext] = {}
    flying: list[Proposal] = []
    while len(history) < count:
        while len(flying) < places and (proposal := study.propose()) is not None:
            assert proposal.point not in asked
            asked[proposal.point] = proposal.asked
            flying.append(proposal)
        if not flying:
            break
        done = flying.pop(draw.randrange(len(flying)))
        history.append((done.point, verdict(done.point)))
        study.tell(done, history[-1][1])
    return history, asked, flying


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("places", [2, 4])
def test_no_point_is_proposed_while_it_is_measured(
    tmp_path: Path, search: str, places: int
) -> None:
    """A launch spent on what runs beside it tells nothing new."""
    loaded = tiny_sweep(tmp_path, search=search, steps="1, 2, 3, 4, 5, 6")
    history, asked, flying = go(a_study(loaded), places, 99, random.Random(places))
    points = [point for point, _ in history]
    assert len(set(points)) == len(points) == len(asked) and not flying
    if "anchors" not in search:  # the stages end a search before the space is exhausted
        assert set(points) == set(loaded.space.points)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("seed", range(3))
def test_a_replay_is_exact_whatever_order_verdicts_came_in(
    tmp_path: Path, search: str, seed: int
) -> None:
    """A resumed run would otherwise choose other points than an undisturbed one."""
    loaded = tiny_sweep(tmp_path, search=search, steps="1, 2, 3, 4, 5, 6")
    draw = random.Random(seed)
    history, asked, flying = go(a_study(loaded), 3, 6, draw)
    kept = {point: travelled(each) for point, each in asked.items()}
    again = a_study(loaded)
    assert again.replay(history, asked=kept) == 0
    # Proposals that nobody was proposed beside have left no trace: they are as if never made.
    lost = [each.point for each in again.pending]
    assert lost == [each.point for each in flying[: len(lost)]]
    # It goes on, is interrupted once more, and what its lines say is replayed as well.
    more, asked_too, _ = continued(again, history, kept, draw)
    last = a_study(loaded)
    assert last.replay(more, asked={p: travelled(a) for p, a in asked_too.items()}) == 0


def continued(
    study: Study, history: History, asked: dict[Point, ProposalContext], draw: random.Random
) -> tuple[History, dict[Point, ProposalContext], list[Proposal]]:
    flying, history, asked = list(study.pending), list(history), dict(asked)
    asked |= {each.point: each.asked for each in flying}
    for _ in range(4):
        if len(flying) < 3 and (proposal := study.propose()) is not None:
            asked[proposal.point] = proposal.asked
            flying.append(proposal)
        if not flying:
            break
        done = flying.pop(draw.randrange(len(flying)))
        history.append((done.point, verdict(done.point)))
        study.tell(done, history[-1][1])
    return history, {point: asked[point] for point, _ in history}, flying


def travelled(asked: ProposalContext) -> ProposalContext:
    """As it comes back from a ledger line."""
    from tuner.runner.observations import _asked

    return _asked(AskedLine.model_validate(json.loads(json.dumps(ledger_line(asked).model_dump()))))


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
    waiting.tell_unasked(elsewhere, verdict(elsewhere))
    assert waiting.propose() is None and waiting.stopped is not None
