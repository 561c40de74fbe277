"""Requests that come at a rate: users do not wait until the server is free."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.factories import make_sample, make_window
from tests.loadgen.fake_server import FakeServer
from tuner.loadgen.client import Load, arrivals, run_window
from tuner.metrics.catalogue import summarise
from tuner.metrics.samples import Request, Window
from tuner.metrics.samples_file import read_samples, write_samples


@given(st.integers(1, 200), st.floats(0.01, 1000), st.integers(0, 2**63))
def test_arrivals_are_the_same_for_every_configuration(count: int, rate: float, seed: int) -> None:
    """Luck in the arrivals would be told as a speed-up."""
    times = arrivals(count, rate, seed)
    assert times == arrivals(count, rate, seed)
    assert len(times) == count
    assert times[0] == 0
    assert all(one <= other for one, other in pairwise(times))
    assert arrivals(count, 2 * rate, seed) == pytest.approx([at / 2 for at in times])
    assert arrivals(count + 5, rate, seed)[:count] == times
    assert count < 3 or arrivals(count, rate, seed + 1) != times


def test_they_are_a_poisson_process_of_that_rate() -> None:
    """Even gaps never queue; they would show no waiting where real users wait."""
    times = arrivals(20_001, 4.0, 7)
    gaps = sorted(later - one for one, later in pairwise(times))
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(0.25, rel=0.03)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert variance == pytest.approx(mean**2, rel=0.06)  # of an exponential
    assert gaps[len(gaps) // 2] == pytest.approx(mean * 0.6931, rel=0.03)


def asks(count: int, text: str = "slow") -> list[Request]:
    return [Request(f"p{n}", "chat", text=text) for n in range(count)]


def at_a_rate(count: int, concurrency: int, text: str = "slow") -> tuple[Window, int]:
    """A window whose requests come far faster than `slow` is answered, and how many were open."""
    load = Load(concurrency, 4, request_rate=200.0)
    with FakeServer() as server:
        return run_window(server.url, asks(count, text), load), server.most_open


def test_nobody_waits_for_an_answer_to_another() -> None:
    """In a closed loop a slow server is asked for less, and its queue is never seen."""
    found, most = at_a_rate(12, 100)
    assert [each.prompt_id for each in found.samples] == [f"p{n}" for n in range(12)]
    assert all(each.error is None for each in found.samples)
    assert [each.due for each in found.samples] == pytest.approx(arrivals(12, 200.0, 0), abs=1e-6)
    assert all(each.due is not None and each.sent >= each.due - 1e-6 for each in found.samples)
    assert most > 2
    other, _ = at_a_rate(12, 100, text="complete")
    assert [each.due for each in other.samples] == [each.due for each in found.samples]


def test_who_comes_when_all_are_busy_waits_and_that_is_counted() -> None:
    """Time before a request is sent is time that its user waits."""
    found, most = at_a_rate(6, 1)
    assert most == 1
    assert all(later.sent >= one.ended for one, later in pairwise(found.samples))  # in order
    figures = summarise([found], None, None)
    last = found.samples[-1]
    assert last.due is not None
    assert figures["e2e_ms_p99"] > 1000 * (last.ended - last.sent)
    assert figures["queue_ms_p99"] > figures["queue_ms_p50"] > 0
    assert figures["request_s"] == pytest.approx(6 / found.wall_s)


def test_a_server_that_fails_is_not_asked_for_ever() -> None:
    found, _ = at_a_rate(40, 1, text="500")
    assert found.stopped is not None
    assert len(found.samples) == 3


def test_a_conversation_arrives_once_and_its_turns_follow() -> None:
    requests = [Request(f"{n}", "chat", text="complete", follows=n % 2 == 1) for n in range(6)]
    with FakeServer() as server:
        load = Load(8, 4, request_rate=100.0, seed=3)
        found = run_window(server.url, requests, load)
    times = arrivals(3, 100.0, 3)
    assert [each.due for each in found.samples[::2]] == pytest.approx(times, abs=1e-6)
    assert [each.due for each in found.samples[1::2]] == [None] * 3
    pairs = zip(found.samples[::2], found.samples[1::2], strict=True)
    assert all(later.sent >= one.ended for one, later in pairs)


def test_latencies_begin_when_a_request_came() -> None:
    late = make_sample((2.0, 3.0), (1, 4), sent=1.5, due=0.5)
    figures = summarise([make_window(late)], None, None)
    assert figures["ttft_ms_p50"] == pytest.approx(1500)
    assert figures["e2e_ms_p50"] == pytest.approx(2500)
    assert figures["queue_ms_p50"] == pytest.approx(1000)
    assert figures["goodput_request_s"] is None  # nobody said what is good
    closed = summarise([make_window(make_sample())], None, None)
    assert closed["queue_ms_p50"] is None


def test_goodput_counts_requests_that_keep_every_limit() -> None:
    """A percentile over all requests does not tell how many users were served well."""
    quick, slow = make_sample((0.1, 0.5), (1, 4)), make_sample((0.9, 1.3), (1, 4))
    broken = make_sample((), (), error="HTTP 500")
    both = [make_window(quick, slow, broken, wall=2.0)]
    limits = {"ttft_ms_p99": 500.0, "tpot_ms_p90": 101.0}
    assert summarise(both, None, None, limits)["goodput_request_s"] == pytest.approx(0.5)
    assert summarise(both, None, None, {"e2e_ms_p50": 1.0})["goodput_request_s"] == 0
    assert summarise(both, None, None, {"itl_ms_p50": 1.0})["goodput_request_s"] is None
    assert summarise(both, None, None, limits)["request_s"] == pytest.approx(1.0)


def test_samples_keep_when_requests_came(tmp_path: Path) -> None:
    windows = {1: [make_window(make_sample(due=0.25, cached_tokens=3), make_sample())]}
    write_samples(tmp_path / "s.gz", windows)
    assert read_samples(tmp_path / "s.gz") == windows
