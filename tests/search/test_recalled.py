"""A resume puts into the study what the sampler drew once, and asks it for nothing again."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.search.test_study import GP, SMALL, SWEEP, both, make, measured
from tuner.config.loader import LoadedSweep, load_sweep
from tuner.config.point import Point
from tuner.search.asked import ProposalContext
from tuner.search.decision import Decision
from tuner.search.observation import Observation
from tuner.search.optuna_study import Study

History = list[tuple[Point, Observation]]


def loaded_as(folder: Path, sampler: str, text: str) -> LoadedSweep:
    path = folder / f"{sampler}.yaml"
    path.write_text(text.replace("SAMPLER", sampler))
    return load_sweep(path)


def go(
    study: Study, count: int, verdict=measured
) -> tuple[History, dict[Point, ProposalContext], dict[Point, Decision]]:
    """Measure so many points, and keep what a ledger would keep of them."""
    history, asked, decided = [], {}, {}
    for _ in range(count):
        proposal = study.propose()
        if proposal is None:
            break
        found = verdict(proposal.point)
        study.tell(proposal, found)
        history.append((proposal.point, found))
        asked[proposal.point] = proposal.asked
        if proposal.decision is not None:
            decided[proposal.point] = proposal.decision
    return history, asked, decided


def state(study: Study) -> list[tuple]:
    """All that a sampler reads of a study's trials."""
    return [
        (trial.number, trial.state, trial.values, trial.params, trial.constraints)
        for trial in study.asked
    ]


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid", GP])
@pytest.mark.parametrize("text", [SWEEP, SMALL], ids=["wide", "nearly exhausted"])
def test_what_was_drawn_is_put_back_and_nobody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampler: str, text: str
) -> None:
    """Asking again takes time with the square of the trials; another state is another search."""
    loaded = loaded_as(tmp_path, sampler, text)
    first = make(loaded)
    history, asked, _ = go(first, 24)
    again = make(loaded)
    with monkeypatch.context() as patch:
        patch.setattr(Study, "_ask", lambda *_: pytest.fail("a sampler was asked"))
        assert again.replay(history, asked=asked) == 0
    assert state(again) == state(first)
    assert go(again, 9)[0] == go(first, 9)[0]


def test_the_stages_go_on_where_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their checks and misses count what they decided before."""
    text = SWEEP.replace("sampler: SAMPLER,", "sampler: tpe, stages: [anchors, model],")
    loaded = loaded_as(tmp_path, "staged", text)
    for length in (1, 3, 7, 12):
        first, again = (a_staged_study(loaded) for _ in range(2))
        history, asked, decided = go(first, length, both)
        with monkeypatch.context() as patch:
            patch.setattr(Study, "_ask", lambda *_: pytest.fail("a sampler was asked"))
            assert again.replay(history, asked=asked, decided=decided) == 0
        assert state(again) == state(first)
        rest, rest_again = go(first, 12, both), go(again, 12, both)
        assert [each for each, _ in rest[0]] == [each for each, _ in rest_again[0]]
        assert rest[2] == rest_again[2]
        assert again.handed_over == first.handed_over


def a_staged_study(loaded: LoadedSweep) -> Study:
    study = Study(loaded.space, loaded.sweep.search, 24, persists=True)
    study.tell_baseline(both(Point(1, 1, 2, "target")).levels)
    return study


@pytest.mark.parametrize(
    "drawn", [((9, 9, 9, 9, 9, 9),), ((0,),), ((-1, 0, 0, 0, 0, 0),)], ids=["high", "few", "low"]
)
def test_draws_that_are_none_of_the_space_are_asked_for_again(
    tmp_path: Path, drawn: tuple[tuple[int, ...], ...]
) -> None:
    """A line that somebody changed by hand must not end a resume with a traceback."""
    loaded = loaded_as(tmp_path, "tpe", SWEEP)
    history, asked, _ = go(make(loaded), 8)
    odd = history[5][0]
    asked[odd] = ProposalContext(5, 5, drawn=drawn)
    again = make(loaded)
    assert again.replay(history, asked=asked) == 0
    assert again.propose() is not None


def test_a_ledger_of_an_older_specbench_is_replayed_by_asking(tmp_path: Path) -> None:
    loaded = loaded_as(tmp_path, "tpe", SWEEP)
    first = make(loaded)
    history, _, _ = go(first, 9)
    again = make(loaded)
    assert again.replay(history) == 0
    assert state(again) == state(first)


def by_asking(asked: dict[Point, ProposalContext]) -> dict[Point, ProposalContext]:
    """The same lines as an older specbench wrote them."""
    return {point: replace(each, drawn=()) for point, each in asked.items()}


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid", GP])
def test_recalled_is_what_asking_again_brings(tmp_path: Path, sampler: str) -> None:
    """Points that shared a launch came unasked in between: each is a trial of its own."""
    loaded = loaded_as(tmp_path, sampler, SWEEP)
    first = make(loaded)
    history, asked, _ = go(first, 5)
    for point in [each for each in loaded.space.points if each not in dict(history)][:3]:
        first.tell_unasked(point, measured(point))
        history.append((point, measured(point)))
    unasked = {point for point, _ in history[5:]}
    more, more_asked, _ = go(first, 9)
    history, asked = history + more, asked | more_asked
    recalled, replayed = make(loaded), make(loaded)
    assert recalled.replay(history, unasked, asked) == 0
    assert replayed.replay(history, unasked, by_asking(asked)) == 0
    assert state(recalled) == state(replayed) == state(first)
    assert go(recalled, 6)[:2] == go(replayed, 6)[:2] == go(first, 6)[:2]


def test_an_extended_search_goes_on_where_the_stages_had_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--trials +N` after "nothing better is left", interrupted: the sampler's turn stays its."""
    text = SMALL.replace("sampler: SAMPLER,", "sampler: tpe, stages: [anchors, model],")
    loaded = loaded_as(tmp_path, "extended", text)
    first = a_staged_study(loaded)
    history, asked, decided = go(first, 24, both)
    assert first.handed_over is not None
    assert "sampler" in {each.stage for each in decided.values()}
    recalled = a_staged_study(loaded)
    with monkeypatch.context() as patch:
        patch.setattr(Study, "_ask", lambda *_: pytest.fail("a sampler was asked"))
        assert recalled.replay(history, asked=asked, decided=decided) == 0
    replayed = a_staged_study(loaded)
    assert replayed.replay(history, asked=by_asking(asked), decided=decided) == 0
    assert state(recalled) == state(replayed) == state(first)
    assert recalled.handed_over == replayed.handed_over == first.handed_over
    assert go(recalled, 4, both) == go(replayed, 4, both) == go(first, 4, both)


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_what_was_measured_beside_others_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampler: str
) -> None:
    """With slots a draw was made while others had no verdict; the order of verdicts is another."""
    loaded = loaded_as(tmp_path, sampler, SWEEP)
    first = make(loaded)
    history: History = []
    asked: dict[Point, ProposalContext] = {}
    flying = [first.propose(), first.propose()]
    for _ in range(12):
        landed = flying.pop(-1)
        first.tell(landed, measured(landed.point))
        history.append((landed.point, measured(landed.point)))
        asked[landed.point] = landed.asked
        flying.append(first.propose())
    for left in flying:
        first.tell(left, measured(left.point))
        history.append((left.point, measured(left.point)))
        asked[left.point] = left.asked
    again = make(loaded)
    monkeypatch.setattr(Study, "_recall", lambda *_: pytest.fail("it was beside others"))
    assert again.replay(history, asked=asked) == 0
    assert state(again) == state(first)
    assert again.propose().point == first.propose().point


def test_lines_of_an_older_specbench_and_new_ones_after_them(tmp_path: Path) -> None:
    """A run that was begun before the upgrade: half of its lines say what was drawn."""
    loaded = loaded_as(tmp_path, "tpe", SWEEP)
    first = make(loaded)
    history, asked, _ = go(first, 16)
    for point, _ in history[:8]:
        del asked[point]
    again = make(loaded)
    assert again.replay(history, asked=asked) == 0
    assert state(again) == state(first)
    assert go(again, 4)[0] == go(first, 4)[0]


def test_draws_of_another_point_are_not_believed(tmp_path: Path) -> None:
    """Of a space whose values were put into another order: the places are there, and others'."""
    loaded = loaded_as(tmp_path, "random", SWEEP)
    first = make(loaded)
    history, asked, _ = go(first, 12)
    one, other = history[3][0], history[7][0]
    asked[one] = replace(asked[one], drawn=asked[other].drawn)
    again = make(loaded)
    assert again.replay(history, asked=asked) == 0
    assert state(again) == state(first)
