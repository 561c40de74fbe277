"""What a run answers after a search, on landscapes and in this process: what users launch is the
answer, not the search's choice."""

import pytest

from benchmarks.answering import Answering
from benchmarks.landscape import FOLDER, Landscape
from benchmarks.search_efficiency import Clock, Search, run, studied, summarised
from benchmarks.smoothing import errors
from tuner.analysis.winner import LESS_SURELY
from tuner.config.schema import SearchSpec

SEEDS = range(4)


@pytest.mark.parametrize("name", ["trees_win", "kimi_cliff"])
def test_an_answer_gives_up_no_more_than_the_rule_says(name: str) -> None:
    """A simple configuration's lucky launch took the place of one that was up to 2.6 % faster: of
    these searches every choice was within 1 % of the best, and of the answers half."""
    landscape = Landscape(FOLDER / f"{name}.yaml")
    lost = []
    for seed in SEEDS:
        clock = Clock(landscape, seed)
        studied(SearchSpec(seed=seed))(landscape, clock)
        answering = Answering(landscape, seed)
        answers = {
            weighs: answering.answer(clock.launched, clock.recommended, confirm=weighs)
            for weighs in (True, False)
        }
        true = {how: landscape.truth(point).value for how, point in answers.items()}
        assert true[True] * 1.02 >= landscape.best
        lost.append(true[False] * 1.01 < landscape.best)
    assert any(lost)  # without all measurements together; else this test shows nothing


def test_a_real_tie_goes_to_the_simpler_one() -> None:
    """On the two H200 the draft on TP 1 is as fast and needs a plug-in: that is not launched."""
    found = run(Landscape(FOLDER / "h200_search.yaml"), "specbench", 0)
    assert found is not None and found.loss == 0
    landscape = Landscape(FOLDER / "h200_placement.yaml")
    clock = Clock(landscape, 0)
    studied(SearchSpec(seed=0))(landscape, clock)
    answer = Answering(landscape, 0).answer(clock.launched, clock.recommended, confirm=True)
    assert answer is not None and answer.draft_tp == "target"
    assert landscape.truth(answer).value < landscape.best


def test_all_measurements_together_are_off_by_less_than_the_rule_leaves_room_for() -> None:
    """Else what they call slower is noise, and simple equals lose their place."""
    found = errors(Landscape(FOLDER / "trees_win.yaml"), seeds=2)
    assert found.pairs >= 5
    assert found.together < min(LESS_SURELY, found.single)


def test_no_speculation_is_an_answer_and_another_tool_gives_none() -> None:
    landscape = Landscape(FOLDER / "never_wins.yaml")
    for method in ("specbench", "random"):
        found = run(landscape, method, 0)
        assert found is not None and found.loss == 0
    other = run(landscape, "bench_speculative", 0)
    assert other is not None and other.loss is None
    assert summarised([other])["answer_within_1pct"] is None


def test_the_summary_counts_answers_by_what_they_lose() -> None:
    searches = [Search(3, 1.0, True, 4, loss) for loss in (0.0, 0.0098, 0.0102, 0.04)]
    told = summarised([*searches, None])
    assert (told["success"], told["answer_within_1pct"]) == (1.0, 0.5)
    assert (told["answer_loss_mean"], told["answer_loss_max"]) == (0.015, 0.04)
    assert set(summarised([None]).values()) == {None}


def test_windows_give_back_what_the_launch_shows() -> None:
    """Else the intervals that a tie is judged by are those of other launches."""
    landscape = Landscape(FOLDER / "h200_two_levels.yaml")
    clock = Clock(landscape, 0)
    point = landscape.points[0]
    clock.launch(point)
    answering = Answering(landscape, 0)
    for number in (0, 1):
        for level, speed in landscape.throughput(point, 0, number).items():
            windows = answering.windows(point, number, level)
            tokens = sum(each.tokens for window in windows for each in window.samples)
            assert tokens / sum(each.wall_s for each in windows) == pytest.approx(speed)
            assert len(windows) == landscape.load.repeats
    first, second = (landscape.throughput(point, 0, number) for number in (0, 1))
    assert first != second
    assert landscape.measure(point, 0).value == pytest.approx(first_ratio(landscape, first))


def first_ratio(landscape: Landscape, shown: dict[int, float]) -> float:
    base = landscape.throughput(None, 0)
    product = 1.0
    for level in shown:
        product *= shown[level] / base[level]
    return product ** (1 / len(shown))
