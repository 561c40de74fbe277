"""Doubts: each appears for its own cause, says what to try, and a clean level has none."""

import pytest

from tests.measure.make import World, sample
from tuner.measure.checks import Context, Doubt, doubts
from tuner.measure.metrics import summarise
from tuner.measure.samples import RequestSample, SpecCounts, Window

PLAIN = Context(None, None)
CHAIN = Context(2, 1)


def found(context: Context, *windows: Window) -> list[Doubt]:
    return doubts(windows, summarise(windows, context.num_steps, context.eagle_topk), context)


def level(*changed: RequestSample, count: int = 3, cpu: float = 0.1) -> list[Window]:
    """`count` equal windows of 1,000 tokens, with `changed` added to the first."""
    good = sample((0.1, 10.0), (1, 999), prompt_id="good")
    first = Window(1, 10.0, cpu, (good, *changed))
    return [first, *[Window(1, 10.0, cpu, (good,))] * (count - 1)]


def speculating(verifies: int, correct: int, histogram: tuple[int, ...]) -> list[Window]:
    tokens = 1 + verifies + correct
    spec = SpecCounts(verifies, correct, 2 * verifies, histogram)
    good = sample((0.1, 10.0), (1, tokens - 1), spec=spec)
    return [Window(1, 10.0, 0.1, (good,))] * 3


def test_a_clean_level_has_no_doubts() -> None:
    """Otherwise users learn to skip the warnings."""
    assert found(PLAIN, *level()) == []
    assert found(CHAIN, *speculating(600, 600, (200, 200, 200))) == []


@pytest.mark.parametrize(
    ("windows", "context", "check", "level_name", "words"),
    [
        (level(sample(error="HTTP 500")), PLAIN, "failed requests", "doubt", "1 of 4"),
        (level(sample(engine_tokens=4)), PLAIN, "token counts", "doubt", "4 against 5"),
        (
            level(sample((1, 2), (1, 8), spec=SpecCounts(4, 3))),
            PLAIN,
            "speculative counts",
            "doubt",
            "1 of 4",
        ),
        (speculating(1000, 20, (980, 20)), CHAIN, "accept length", "doubt", "wired"),
        (speculating(900, 180, (720, 180)), CHAIN, "accept rate", "doubt", "20%"),
        (level(), CHAIN, "speculation not in effect", "doubt", "no verify"),
        ([Window(1, 2.0, 0.1, (sample(),))], PLAIN, "too few tokens", "note", "5 tokens"),
        (level(cpu=9.0), PLAIN, "client-bound", "doubt", "90%"),
        (level(), Context(None, None, "no chat template"), "tokenisation", "doubt", "template"),
    ],
)
def test_a_cause_has_its_doubt_and_only_that(
    windows: list[Window], context: Context, check: str, level_name: str, words: str
) -> None:
    """Otherwise a wrong number is shown without its warning."""
    (doubt,) = found(context, *windows)
    assert (doubt.check, doubt.level) == (check, level_name)
    assert words in doubt.message


def test_spread_between_windows_is_noise() -> None:
    """Otherwise a figure from a busy machine passes for a measurement."""
    names = [doubt.check for doubt in found(PLAIN, *World(1, 8, 0.03, 0.0).windows(4))]
    assert names == ["noisy"]
    assert found(PLAIN, *World(1, 8, 0.001, 0.0).windows(4)) == []


def test_a_slow_first_window_is_a_cold_cache() -> None:
    """Otherwise warming up is measured as the point's speed."""
    good = level()[1]
    cold = Window(1, 12.5, 0.1, good.samples)
    (noisy, doubt) = found(PLAIN, cold, *[good] * 3)
    assert (noisy.check, doubt.check, doubt.level) == ("noisy", "cold cache", "note")
    assert "20% slower" in doubt.message


def test_a_stopped_window_is_told() -> None:
    """Otherwise nobody knows that a part of the load was never sent."""
    good = level()[1]
    stopped = Window(1, 10.0, 0.1, good.samples, "a request timed out")
    (doubt,) = found(PLAIN, good, good, stopped)
    assert doubt.check == "stopped early"
    assert "timed out" in doubt.message
