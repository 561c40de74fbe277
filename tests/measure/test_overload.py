"""A server that cannot keep up with a rate: its latencies say how long the window was."""

from collections.abc import Callable

import pytest

from tests.measure.make import sample
from tuner.measure.arrivals import arrivals
from tuner.measure.checks import Context, doubts
from tuner.measure.metrics import summarise
from tuner.measure.overload import client_lateness, is_overloaded, overload_figures
from tuner.measure.samples import Window


def served(
    rate: float, seconds: Callable[[int], float], servers: int, count: int = 60, seed: int = 0
) -> Window:
    """A window of a queue: request n takes so long, so many are served at a time, in order."""
    free, samples = [0.0] * servers, []
    for number, due in enumerate(arrivals(count, rate, seed)):
        begin = max(due, min(free))
        end = begin + seconds(number)
        free[free.index(min(free))] = end
        times = (begin + (end - begin) / 2, end)
        samples.append(sample(times, (1, 99), prompt_id=f"p{number}", sent=due, due=due, ended=end))
    return Window(256, samples[-1].ended, 0.1, tuple(samples))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [12, 60, 200])
def test_a_server_with_room_keeps_up(seed: int, count: int) -> None:
    """A false alarm would take the best candidate out of a sweep."""
    figures = summarise([served(2.0, lambda n: 1.0 + n % 3 / 5, 8, count, seed)] * 2, None, None)
    assert not is_overloaded(figures)
    near = 0.2 if count < 60 else 0.1  # the last answers are a part of a short window
    assert figures["served_request_s"] == pytest.approx(figures["arrival_request_s"], rel=near)


@pytest.mark.parametrize("seed", range(20))
def test_one_without_is_told_with_both_figures(seed: int) -> None:
    """Two at a time, 1 s each: 2 a second are answered of 4 that come."""
    windows = [served(4.0, lambda _: 1.0, 2, seed=seed)] * 2
    figures = summarise(windows, None, None)
    assert is_overloaded(figures)
    assert figures["served_request_s"] == pytest.approx(2.0, rel=0.25)
    found = doubts(windows, figures, Context(None, None, request_rate=4.0))
    (doubt,) = [each for each in found if each.check == "overload"]
    assert doubt.level == "doubt"
    assert "4 requests a second were asked for" in doubt.message
    assert f"{figures['served_request_s']:.4g} were answered" in doubt.message
    assert "ask for less than" in doubt.remedy
    assert "concurrency" not in doubt.remedy  # nobody waited for a stream


def test_later_turns_are_of_the_conversation_that_came() -> None:
    """A second turn has no arrival; its end is the end of its conversation's wait."""
    plain = served(4.0, lambda _: 1.0, 2)
    talks = []
    for each in plain.samples:
        talks += [each, sample((each.ended + 1, each.ended + 2), (1, 9), ended=each.ended + 2)]
    figures = overload_figures([Window(256, 99.0, 0.1, tuple(talks))])
    assert figures["arrival_request_s"] == overload_figures([plain])["arrival_request_s"]
    assert is_overloaded(figures)


def test_a_closed_loop_has_no_rate_to_keep_up_with() -> None:
    figures = overload_figures([Window(1, 2.0, 0.1, (sample(),) * 20)])
    assert set(figures.values()) == {None}
    assert not is_overloaded(figures)
    assert not is_overloaded({})  # an older ledger
    few = served(4.0, lambda _: 9.0, 1, count=5)
    assert set(overload_figures([few]).values()) == {None}


def test_a_client_that_sends_late_is_doubted() -> None:
    """Its mean CPU share is low, since it rests between bursts."""
    good = served(2.0, lambda _: 0.2, 8)
    late = [
        sample(
            (each.due + 0.15, each.due + 0.3), (1, 99), prompt_id=each.prompt_id,
            sent=each.due + 0.05, due=each.due, ended=each.due + 0.3,
        )
        for each in good.samples
        if each.due is not None
    ]  # fmt: skip
    slow = Window(256, good.wall_s, 0.1, tuple(late))
    context = Context(None, None, request_rate=2.0)
    for window, told in ((good, False), (slow, True)):
        names = {each.check for each in doubts([window], summarise([window], None, None), context)}
        assert ("late client" in names) is told
    in_line = Window(1, good.wall_s, 0.1, tuple(late))  # one stream: who waits, waits for it
    assert len(client_lateness([in_line])) < len(client_lateness([slow]))
