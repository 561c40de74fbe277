"""A server that cannot keep up with a rate: its latencies say how long the window was."""

import math
import random

import pytest

from tests.factories import make_queue_window, make_sample
from tuner.loadgen.client import arrivals
from tuner.metrics.catalogue import summarise
from tuner.metrics.request_rate import (
    NAMES,
    client_lateness,
    is_overloaded,
    overload_figures,
    overloaded_at,
)
from tuner.metrics.samples import Window
from tuner.metrics.warnings import Context, doubts


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [12, 60, 200])
def test_a_server_with_room_keeps_up(seed: int, count: int) -> None:
    """A false alarm would take the best candidate out of a sweep."""
    figures = summarise(
        [make_queue_window(2.0, lambda n: 1.0 + n % 3 / 5, 8, count, seed)] * 2, None, None
    )
    assert not is_overloaded(figures)
    near = 0.2 if count < 60 else 0.1  # the last answers are a part of a short window
    assert figures["served_request_s"] == pytest.approx(figures["arrival_request_s"], rel=near)


@pytest.mark.parametrize("seed", range(20))
def test_one_without_is_told_with_both_figures(seed: int) -> None:
    """Two at a time, 1 s each: 2 a second are answered of 4 that come."""
    windows = [make_queue_window(4.0, lambda _: 1.0, 2, seed=seed)] * 2
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
    plain = make_queue_window(4.0, lambda _: 1.0, 2)
    talks = []
    for each in plain.samples:
        talks += [each, make_sample((each.ended + 1, each.ended + 2), (1, 9), ended=each.ended + 2)]
    figures = overload_figures([Window(256, 99.0, 0.1, tuple(talks))])
    assert figures["arrival_request_s"] == overload_figures([plain])["arrival_request_s"]
    assert is_overloaded(figures)


def test_a_closed_loop_has_no_rate_to_keep_up_with() -> None:
    figures = overload_figures([Window(1, 2.0, 0.1, (make_sample(),) * 20)])
    assert set(figures.values()) == {None}
    assert not is_overloaded(figures)
    assert not is_overloaded({})  # an older ledger
    few = make_queue_window(4.0, lambda _: 9.0, 1, count=5)
    assert {overload_figures([few])[name] for name in NAMES} == {None}


def test_a_client_that_sends_late_is_doubted() -> None:
    """Its mean CPU share is low, since it rests between bursts."""
    good = make_queue_window(2.0, lambda _: 0.2, 8)
    late = [
        make_sample(
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


def talks(count: int, seed: int, streams: int = 300, turns: int | None = None) -> Window:
    """Conversations that come 4 a second, of 1 to 10 turns of 1 s where no number is given."""
    draw, free, samples = random.Random(seed), [0.0] * streams, []
    for number, due in enumerate(arrivals(count, 4.0, seed)):
        at = max(due, min(free))
        place = free.index(min(free))
        for turn in range(turns or min(10, 1 + int(draw.expovariate(0.45)))):
            end = at + draw.uniform(0.9, 1.1)
            samples.append(
                make_sample((at + 0.1, end), (1, 99), prompt_id=f"p{number}#{turn + 1}", sent=at,
                       due=None if turn else due, ended=end)
            )  # fmt: skip
            at = end
        free[place] = at
    return Window(256, max(each.ended for each in samples), 0.1, tuple(samples))


@pytest.mark.parametrize("count", [8, 12, 20, 60])
def test_a_long_conversation_is_no_queue(count: int) -> None:
    """A quarter of such windows was called overloaded, and the best candidate not taken for it: of
    8 conversations the last third was the two that happened to be long."""
    windows = [talks(count, seed) for seed in range(40)]
    figures = [overload_figures([window] * 3) for window in windows]
    assert not any(map(is_overloaded, figures))
    assert (figures[0]["arrival_request_s"] is None) is (count == 8)
    sent = [len(window.samples) / count for window in windows]
    assert [each["turns_per_arrival"] for each in figures] == sent


def test_conversations_that_wait_for_a_place_still_are() -> None:
    """A place for 6 of the 12 that are asked for, 3 s each."""
    late = [is_overloaded(overload_figures([talks(60, seed, 6, 3)])) for seed in range(20)]
    assert all(late)
    window = talks(60, 1, 6, 3)
    figures = summarise([window], None, None)
    (doubt,) = [
        each
        for each in doubts([window], figures, Context(None, None, request_rate=4.0))
        if each.check == "overload"
    ]
    assert "4 conversations (of 3 requests) a second were asked for" in doubt.message
    served_more = Context(None, None, request_rate=4.0, served=7.89)
    assert "overload" not in {each.check for each in doubts([window], figures, served_more)}


def test_a_rate_below_one_that_was_served_is_not_called_overloaded() -> None:
    """`overload` at 4/s, where 8/s was answered by the same launch."""
    bad = {"arrival_request_s": 4.3, "served_request_s": 3.85, "wait_growth": 1.9}
    good = {"arrival_request_s": 8.6, "served_request_s": 7.89, "wait_growth": 1.2}
    assert is_overloaded(bad)
    assert not overloaded_at({"4/s": bad, "8/s": good}, "4/s")
    assert overloaded_at({"4/s": bad, "8/s": {**good, "served_request_s": 4.2}}, "4/s")
    assert overloaded_at({"1": bad, "8": good}, "1")  # of two caps one may be too low


def test_a_window_too_short_to_tell_says_so() -> None:
    window = talks(8, 0)
    figures = summarise([window], None, None)
    context = Context(None, None, request_rate=4.0)
    (doubt,) = [each for each in doubts([window], figures, context) if each.check == "few arrivals"]
    assert "8 conversations came in a window" in doubt.message
    assert f"raise workload.requests to {math.ceil(12 * len(window.samples) / 8)}" in doubt.remedy
