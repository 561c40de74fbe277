"""Doubts: each appears for its own cause, says what to try, and a clean level has none."""

import re
from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from tests.factories import World, make_gpu_trace, make_sample
from tuner.metrics.catalogue import summarise
from tuner.metrics.samples import EngineCounters, RequestSample, SpecCounts, Window
from tuner.metrics.warnings import CheckResult, Context, doubts

PLAIN = Context(None, None)
CHAIN = Context(2, 1)


def found(context: Context, *windows: Window) -> list[CheckResult]:
    return doubts(windows, summarise(windows, context.num_steps, context.eagle_topk), context)


def level(*changed: RequestSample, count: int = 3, cpu: float = 0.1) -> list[Window]:
    """`count` equal windows of 1,000 tokens, with `changed` added to the first."""
    good = make_sample((0.1, 10.0), (1, 999), prompt_id="good")
    first = Window(1, 10.0, cpu, (good, *changed))
    return [first, *[Window(1, 10.0, cpu, (good,))] * (count - 1)]


def speculating(verifies: int, correct: int, histogram: tuple[int, ...]) -> list[Window]:
    tokens = 1 + verifies + correct
    spec = SpecCounts(verifies, correct, 2 * verifies, histogram)
    good = make_sample((0.1, 10.0), (1, tokens - 1), spec=spec)
    return [Window(1, 10.0, 0.1, (good,))] * 3


def test_a_clean_level_has_no_doubts() -> None:
    """Otherwise users learn to skip the warnings."""
    assert found(PLAIN, *level()) == []
    assert found(CHAIN, *speculating(600, 600, (200, 200, 200))) == []
    cut = make_sample((0.1, 10.0), (1, 2397), spec=SpecCounts(1200, 1199, 2400, (401, 399, 400)))
    assert found(CHAIN, *[Window(1, 10.0, 0.1, (cut,))] * 3) == [], "the last verify was cut by 2"


@pytest.mark.parametrize(
    ("windows", "context", "check", "level_name", "words"),
    [
        (level(make_sample(error="HTTP 500")), PLAIN, "failed requests", "doubt", "1 of 4"),
        (level(make_sample(engine_tokens=4)), PLAIN, "token counts", "doubt", "4 against 5"),
        (
            level(make_sample((1, 2), (1, 8), spec=SpecCounts(4, 3))),
            PLAIN,
            "speculative counts",
            "doubt",
            "1 of 4",
        ),
        (
            level(make_sample((1, 2), (1, 8), spec=SpecCounts(8, 8))),
            CHAIN,
            "speculative counts",
            "doubt",
            "1 of 4 requests the engine counts more",
        ),
        (
            level(make_sample((1, 2), (1, 8), spec=SpecCounts(2, 6))),
            CHAIN,
            "speculative counts",
            "doubt",
            "1 of 4 requests the engine counts more",
        ),
        (
            level(make_sample((1, 2), (1, 8), spec=SpecCounts(4, 4, 8, (2, 1, 1)))),
            CHAIN,
            "speculative counts",
            "doubt",
            "1 of 4 requests the engine's verifies by accepted drafts",
        ),
        (speculating(1000, 20, (980, 20)), CHAIN, "accept length", "doubt", "wired"),
        (speculating(900, 180, (720, 180)), CHAIN, "accept rate", "doubt", "20%"),
        (level(), CHAIN, "speculation not in effect", "doubt", "no verify"),
        ([Window(1, 2.0, 0.1, (make_sample(),))], PLAIN, "too few tokens", "note", "5 tokens"),
        (level(cpu=9.0), PLAIN, "client-bound", "doubt", "90%"),
        (level(), Context(None, None, "no chat template"), "tokenisation", "doubt", "template"),
        (
            speculating(600, 600, (200, 200, 200)),
            Context(2, 1, random_words="no order"),
            "random prompts",
            "note",
            "no order",
        ),
        (
            [Window(1, 10.0, 0.1, (make_sample((6.0, 10.0), (1, 999)),))] * 2,
            PLAIN,
            "mostly prefill",
            "note",
            "60% of",
        ),
    ],
)
def test_a_cause_has_its_doubt_and_only_that(
    windows: list[Window], context: Context, check: str, level_name: str, words: str
) -> None:
    """Otherwise a wrong number is shown without its warning."""
    (doubt,) = found(context, *windows)
    assert (doubt.check, doubt.level) == (check, level_name)
    assert words in f"{doubt.message}; {doubt.remedy}"
    assert all(doubt.to_json().values())


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


def test_a_fast_first_window_is_a_machine_that_slows_down() -> None:
    """Warming up longer, the remedy of a cold cache, would hide that."""
    good = level()[1]
    checks = [doubt.check for doubt in found(PLAIN, Window(1, 8.0, 0.1, good.samples), good, good)]
    assert checks == ["noisy", "slowing down"]


@pytest.mark.parametrize("third", [7.5, 13.0])
def test_an_odd_window_that_is_not_the_first_is_noise(third: float) -> None:
    """Otherwise one disturbed window at the end has the user warm up longer, for nothing."""
    good = level()[1]
    checks = [
        doubt.check for doubt in found(PLAIN, good, good, Window(1, third, 0.1, good.samples))
    ]
    assert checks == ["noisy"]


def test_prefill_that_is_half_or_less_is_not_told() -> None:
    """A note on every run is read by nobody."""
    assert found(PLAIN, *[Window(1, 10.0, 0.1, (make_sample((5.0, 10.0), (1, 999)),))] * 2) == []


def test_answers_of_other_lengths_than_the_baselines_are_told() -> None:
    """Otherwise a candidate that stops early passes for a fast one."""
    below, shorter = (
        [Window(1, 10.0, 0.1, (make_sample((0.1, 10.0), (1, n), finish_reason="stop"),))] * 2
        for n in (1999, 1499)
    )
    (doubt,) = found(replace(PLAIN, baseline=below), *shorter)
    assert (doubt.check, doubt.level) == ("unequal lengths", "doubt")
    assert "25% shorter than the baseline's (1500 tokens against 2000" in doubt.message
    assert found(replace(PLAIN, baseline=below), *below) == []
    other = [replace(each, samples=(make_sample(prompt_id="other"),)) for each in below]
    assert "unequal lengths" not in [d.check for d in found(replace(PLAIN, baseline=other), *below)]


def test_answers_that_go_round_in_a_loop_are_told() -> None:
    """Such a loop looks like 75 % acceptance and is the model's end, not the draft's merit."""
    (good, *_), real = level()[0].samples, array("I", range(1000))
    looping = replace(good, output_ids=array("I", [7, 8] * 500))
    prose = replace(good, output_ids=real)
    assert found(PLAIN, *[Window(1, 10.0, 0.1, (prose,))] * 3) == []
    (doubt,) = found(PLAIN, *[Window(1, 10.0, 0.1, (looping,)), Window(1, 10.0, 0.1, (prose,))])
    assert (doubt.check, doubt.level) == ("looping answers", "doubt")
    assert "1 of 2 answers" in doubt.message


def counted(
    accept_lengths: tuple[float | None, ...], throughputs=(100.0,), ranks=1
) -> list[Window]:
    counters = EngineCounters(ranks, accept_lengths, throughputs)
    return [replace(each, engine=counters) for each in speculating(600, 600, (200, 200, 200))]


def test_an_engine_that_counts_as_the_client_does_is_no_doubt() -> None:
    """Rounding, and the steps that SGLang has not counted yet, differ on every run."""
    assert found(CHAIN, *counted((2.05,), (130.0,))) == []
    assert found(CHAIN, *counted((None,), (None,))) == []


@pytest.mark.parametrize(
    ("windows", "words"),
    [
        (counted((1.5,)), "own accept length is 1.50 over a window, by the counts of its requests"),
        (counted((2.0,), (200.0,)), "made 200 tok/s, at most 121 tok/s can have"),
        (
            [
                Window(1, 10.0, 0.1, tuple(
                    replace(s, engine_figures={"spec_accept_length": 3.0}) for s in each.samples
                ))
                for each in speculating(600, 600, (200, 200, 200))
            ],
            "the engine made 3.00 tokens a verify, the client received 2.00",
        ),
    ],
)  # fmt: skip
def test_an_engine_that_counts_otherwise_is_told(windows: list[Window], words: str) -> None:
    """Otherwise an accept length is published that the server's own log contradicts."""
    (doubt,) = found(CHAIN, *windows)
    assert (doubt.check, doubt.level) == ("engine and client disagree", "doubt")
    assert words in doubt.message


def test_ranks_without_counters_are_told() -> None:
    """SGLang's average of the ranks that tell passes for the whole server's otherwise."""
    (doubt,) = found(CHAIN, *counted((2.0, None), (60.0, 60.0), ranks=2))
    assert (doubt.check, doubt.level) == ("silent ranks", "note")
    assert "1 of 2 data-parallel ranks" in doubt.message
    (doubt,) = found(CHAIN, *counted((2.0,), (60.0,), ranks=4))
    assert "3 of 4" in doubt.message
    assert found(CHAIN, *counted((2.0, 2.1), (60.0, 60.0), ranks=2)) == []
    assert found(PLAIN, *[replace(each, engine=EngineCounters(2, (None, None), (1.0, 1.0)))
                          for each in level()]) == []  # fmt: skip


def at_clock(mhz: int, reasons: int = 0) -> list[Window]:
    return [replace(each, gpus=(make_gpu_trace(mhz=mhz, reasons=reasons),)) for each in level()]


@pytest.mark.parametrize(
    ("own", "below", "checks"),
    [
        ((1950, 0), (1980, 0), []),
        ((1700, 0), (1980, 0), ["GPU clock"]),
        ((1980, 0), (1700, 0), ["GPU clock"]),  # the baseline was slowed: a ratio too high
        ((1700, 0x4), (1980, 0), ["power cap"]),  # its own power, as in production
        ((1980, 0), (1700, 0x4), []),
        ((1700, 0x24), (1980, 0), ["GPU clock", "GPU slowed down", "power cap"]),
        ((1980, 0x48), (1980, 0), ["GPU slowed down"]),
        ((1980, 0x88), (1980, 0), ["GPU slowed down"]),
        ((1980, 0x8), (1980, 0), ["GPU slowed down"]),
    ],
)
def test_clocks_and_slowdowns_of_the_gpus(
    own: tuple[int, int], below: tuple[int, int], checks: list[str]
) -> None:
    """Otherwise a hot GPU's lower clock is taken for the configuration's speed."""
    doubts_ = found(replace(PLAIN, baseline=at_clock(*below)), *at_clock(*own))
    assert [doubt.check for doubt in doubts_] == checks
    assert [doubt.level for doubt in doubts_] == [
        "note" if name == "power cap" else "doubt" for name in checks
    ]


def test_one_slow_gpu_of_several_is_told() -> None:
    """A median over all of them hides the one that the others wait for."""

    def on(*clocks: int, reasons: int = 0) -> list[Window]:
        gpus = tuple(make_gpu_trace(mhz, reasons, gpu=str(n)) for n, mhz in enumerate(clocks))
        return [replace(each, gpus=gpus) for each in level()]

    (doubt,) = found(PLAIN, *on(1980, 1980, 1500, 1980))
    assert (doubt.check, doubt.level) == ("uneven GPU clocks", "note")
    assert "GPU 2 runs at 1500 MHz" in doubt.message
    assert found(PLAIN, *on(1980, 1950)) == []
    assert [d.check for d in found(PLAIN, *on(1980, 1500, reasons=4))] == ["power cap"]


def test_a_clock_doubt_has_its_numbers() -> None:
    """Without them nobody can tell a degree from a broken fan."""
    (doubt,) = found(replace(PLAIN, baseline=at_clock(2000)), *at_clock(1600))
    assert "1600 MHz, 20% lower than the baseline's 2000" in doubt.message
    assert "60 °C" in doubt.message
    (doubt,) = found(PLAIN, *at_clock(1980, 0x40))
    assert "thermal slowdown by the hardware in 100% of the readings" in doubt.message


def test_every_check_has_its_row_in_the_docs() -> None:
    """A user who looks up a doubt finds its cause and what to try."""
    table = Path("docs/checks.md").read_text(encoding="utf-8")
    sources = [*Path("tuner/metrics/warnings").glob("*.py"), Path("tuner/execution/recording.py")]
    made = re.compile(r'(?:CheckResult|_note)\(\s*"([^"]+)"')
    named = {name for path in sources for name in made.findall(path.read_text(encoding="utf-8"))}
    assert len(named) > 20
    assert {name for name in named if f"| `{name}` |" not in table} == set()
