"""Figures of hand-made samples against values computed by hand."""

import pytest

from tests.factories import make_sample, make_window
from tuner.metrics.catalogue import summarise
from tuner.metrics.level_metrics import accept_length, by_kind, by_length
from tuner.metrics.samples import SpecCounts, Window

FIGURES = ["decode_tok_s", "accept_length", "accept_rate", "accept_rate_first", "cycle_ms"]


def test_throughput_is_all_tokens_by_all_wall_time() -> None:
    """Otherwise windows of different length are weighted wrongly."""
    metrics = summarise(
        [
            make_window(make_sample(), make_sample(), wall=2.0, cpu=0.5),
            make_window(make_sample(), wall=3.0),
        ],
        None,
        None,
    )
    assert metrics["output_tok_s"] == pytest.approx(15 / 5)
    assert metrics["output_tok_s_low"] < 3 < metrics["output_tok_s_high"]
    assert metrics["completion_tokens"] == 15
    assert metrics["prompt_tokens"] == 30
    assert (metrics["requests"], metrics["failed_requests"]) == (3, 0)
    assert metrics["wall_s"] == 5.0
    assert metrics["client_cpu_share"] == pytest.approx(0.6 / 5)


def test_decode_speed_leaves_the_first_chunk_out() -> None:
    """Otherwise the batch-1 figure contains prefill and is not that of published ones."""
    one_first = make_sample((0.5, 1.0, 1.5), (1, 2, 2))  # 4 tokens in 1 s
    three_first = make_sample((0.5, 2.5), (3, 2))  # 2 tokens in 2 s
    one_chunk = make_sample((0.5,), (5,))
    metrics = summarise([make_window(one_first, three_first, one_chunk)], None, None)
    assert metrics["decode_tok_s"] == pytest.approx(6 / 3)
    assert summarise([make_window(one_chunk)], None, None)["decode_tok_s"] is None


def test_latencies() -> None:
    """Otherwise a chunk of several tokens counts as one slow token."""
    metrics = summarise(
        [make_window(make_sample((0.5, 1.0, 1.9), (1, 2, 3), ended=2.0))], None, None
    )
    assert metrics["ttft_ms_p50"] == pytest.approx(500)
    assert metrics["tpot_ms_p50"] == pytest.approx(1400 / 5)
    assert metrics["e2e_ms_p99"] == pytest.approx(2000)
    # Tokens came every 250, 250, 300, 300, 300 ms.
    assert metrics["itl_ms_p50"] == pytest.approx(300)
    assert metrics["itl_ms_p90"] == pytest.approx(300)
    two = summarise([make_window(make_sample((0.1,), (1,)), make_sample((0.3,), (1,)))], None, None)
    assert two["ttft_ms_p50"] == pytest.approx(200)
    assert two["ttft_ms_p90"] == pytest.approx(280)
    assert two["tpot_ms_p50"] is None
    assert two["itl_ms_p50"] is None


def test_acceptance_comes_from_summed_counts() -> None:
    """Otherwise short requests pull the accept length, the figure everything is tuned by."""
    long = make_sample(spec=SpecCounts(90, 90, 180, (30, 30, 30)))
    short = make_sample(spec=SpecCounts(10, 0, 20, (10,)))
    metrics = summarise([make_window(long, short)], 2, 1)
    assert metrics["accept_length"] == pytest.approx(1 + 90 / 100)
    assert metrics["accept_rate"] == pytest.approx(90 / 200)
    assert metrics["accept_rate_first"] == pytest.approx(60 / 100)
    assert metrics["accept_rate_by_position"] == pytest.approx([0.6, 0.3])


def test_the_recorded_answer_of_the_real_server() -> None:
    """Otherwise the formulas disagree with the engine's own: 7 of 11 x 3 drafts were accepted."""
    real = make_sample(spec=SpecCounts(11, 7, 33, (6, 4, 0, 1)))
    metrics = summarise([make_window(real)], 3, 1)
    assert metrics["accept_rate"] == pytest.approx(0.21212121212121213)
    assert metrics["accept_length"] == pytest.approx(18 / 11)
    assert metrics["accept_rate_by_position"] == pytest.approx([5 / 11, 1 / 11, 1 / 11])


def test_accept_rate_is_for_chains_only() -> None:
    """Otherwise rates of trees, which are low by construction, are held against chains'."""
    samples = make_window(make_sample(spec=SpecCounts(10, 5, 80, (5, 5))))
    tree = summarise([samples], 4, 2)
    assert tree["accept_rate"] is None
    assert tree["accept_rate_first"] == pytest.approx(0.5)
    assert tree["accept_rate_by_position"] == pytest.approx([0.5, 0, 0, 0])
    ngram = summarise([samples], None, None)
    assert ngram["accept_rate"] is None
    assert ngram["accept_length"] == pytest.approx(1.5)
    assert ngram["accept_rate_by_position"] == pytest.approx([0.5])


def test_positions_without_a_histogram() -> None:
    """Otherwise 0.5.8 shows no first-position rate, or a wrong one where chunks are merged."""
    # Four verifies accepted 1, 0, 2 and 2, the last cut from 3 tokens to 1.
    counts = SpecCounts(4, 5, 8, None)
    one_by_one = make_sample((1, 2, 3, 4, 5), (1, 2, 1, 3, 1), spec=counts)
    metrics = summarise([make_window(one_by_one)], 2, 1)
    assert metrics["accept_rate_by_position"] == pytest.approx([3 / 4, 2 / 4])
    merged = make_sample((1, 2, 3, 5), (1, 2, 4, 1), spec=counts)
    for group in ([merged], [one_by_one, merged]):
        metrics = summarise([make_window(*group)], 2, 1)
        assert metrics["accept_rate_by_position"] is None
        assert metrics["accept_rate_first"] is None
        assert metrics["accept_length"] == pytest.approx(2.25)


def test_cycle_time() -> None:
    """Otherwise the cost model learns a wrong time for each verify."""
    first_alone = make_sample((1.0, 2.0, 3.0), (1, 2, 2), spec=SpecCounts(2, 2))
    assert summarise([make_window(first_alone)], 1, 1)["cycle_ms"] == pytest.approx(1000)
    # Three of seven tokens after the prefill's own were there when the clock started.
    merged = make_sample((1.0, 3.0), (4, 4), spec=SpecCounts(7, 0))
    assert summarise([make_window(merged)], 1, 1)["cycle_ms"] == pytest.approx(500)
    plain = make_sample((1.0, 2.0, 3.0), (1, 1, 1))
    assert summarise([make_window(plain)], None, None)["cycle_ms"] == pytest.approx(1000)
    assert summarise([make_window(plain)], 2, 1)["cycle_ms"] is None


def test_what_was_not_measured_is_none() -> None:
    """Otherwise an absent figure is plotted and compared as zero."""
    metrics = summarise([make_window(make_sample())], 2, 1)
    for name in ("accept_length", "accept_rate", "accept_rate_first", "accept_rate_by_position"):
        assert metrics[name] is None
    assert metrics["engine_accept_length"] is None
    broken = make_sample((), (), error="HTTP 500", prompt_tokens=None, finish_reason=None)
    failed = summarise([make_window(broken)], 2, 1)
    assert (failed["requests"], failed["failed_requests"]) == (1, 1)
    numbers = {
        "windows",
        "requests",
        "failed_requests",
        "completion_tokens",
        "wall_s",
        "client_cpu_share",
    }
    assert {name for name, value in failed.items() if value is not None} == numbers | {
        "by_kind",
        "by_length",
    }
    empty = summarise([Window(1, 0.0, 0.0, ())], None, None)
    assert empty["output_tok_s"] is None
    assert empty["client_cpu_share"] is None
    zero = summarise([make_window(make_sample(spec=SpecCounts(0, 0)))], 2, 1)
    assert [zero[name] for name in FIGURES[1:]] == [None] * 4


def test_failed_requests_count_their_tokens_but_not_their_times() -> None:
    """Otherwise a hang's minutes end up in the latencies, or its tokens vanish."""
    cut = make_sample((0.5, 0.6), (1, 1), error="cut short", ended=60.0)
    metrics = summarise([make_window(make_sample(), cut, wall=7.0)], None, None)
    assert metrics["output_tok_s"] == pytest.approx(7 / 7)
    assert metrics["failed_requests"] == 1
    assert metrics["e2e_ms_p99"] == pytest.approx(1500)
    assert metrics["decode_tok_s"] == pytest.approx(4)


def test_engine_figures_are_weighted_by_verifies() -> None:
    """Otherwise the engine's figure differs from ours where requests differ in length."""
    long = make_sample(spec=SpecCounts(30, 30), engine_figures={"spec_accept_length": 2.0})
    short = make_sample(spec=SpecCounts(10, 0), engine_figures={"spec_accept_length": 1.0})
    metrics = summarise([make_window(long, short)], 2, 1)
    assert metrics["engine_accept_length"] == pytest.approx(1.75)
    assert metrics["engine_accept_rate"] is None


def test_kinds_are_told_apart() -> None:
    """Otherwise a draft that fails on one kind of prompt hides behind the others."""
    chat = make_sample(spec=SpecCounts(10, 5, None, (5, 5)))
    code = make_sample((1, 3), (1, 8), spec=SpecCounts(4, 4, None, (1, 2, 1)), kind="code")
    kinds = by_kind([make_window(chat), make_window(chat, code)])
    assert list(kinds) == ["chat", "code"]
    assert kinds["chat"]["requests"] == 2
    assert kinds["chat"]["accept_length"] == pytest.approx(1.5)
    assert kinds["chat"]["accept_rate_first"] == pytest.approx(0.5)
    assert kinds["code"]["accept_rate_first"] == pytest.approx(0.75)
    assert kinds["code"]["decode_tok_s"] == pytest.approx(4)
    assert kinds["code"]["accept_rate"] is None  # nobody said how many were drafted
    kinds = by_kind([make_window(chat), make_window(chat, code)], 2, 1)
    assert kinds["chat"]["accept_rate"] == pytest.approx(10 / (20 * 2))
    assert kinds["code"]["accept_rate"] == pytest.approx(4 / (4 * 2))
    assert by_kind([make_window(chat)], 2, 4)["chat"]["accept_rate"] is None  # a tree drafts others
    assert accept_length([]) is None


def test_lengths_are_told_apart() -> None:
    """A long prompt is accepted otherwise and waits longer; an average shows neither."""
    short = make_sample(spec=SpecCounts(10, 5, None, (5, 5)), prompt_tokens=511)
    long = make_sample((2, 3), (1, 8), spec=SpecCounts(4, 4), prompt_tokens=512)
    longest = make_sample(prompt_tokens=10**6)
    unknown = make_sample(prompt_tokens=None)
    found = by_length([make_window(longest, short), make_window(short, long, unknown)], 2, 1)
    assert list(found) == ["0-511", "512-2047", "32768-"]
    assert [each["requests"] for each in found.values()] == [2, 1, 1]
    assert found["0-511"]["accept_length"] == pytest.approx(1.5)
    assert found["0-511"]["ttft_ms_p50"] == pytest.approx(500)
    assert found["512-2047"]["ttft_ms_p50"] == pytest.approx(2000)
    assert found["512-2047"]["accept_rate"] == pytest.approx(0.5)
    assert found["32768-"]["accept_length"] is None
    assert by_length([make_window(unknown)]) == {}
