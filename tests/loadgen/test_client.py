"""The load client against a real server: nothing may be lost, invented or waited for in vain."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import pytest

from tests.loadgen.fake_server import FakeServer
from tuner.loadgen import client
from tuner.loadgen.client import Load, run_window
from tuner.loadgen.stream_parser import TokenStream
from tuner.metrics.samples import Request, RequestSample, SpecCounts


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


def asks(*texts: str) -> list[Request]:
    return [Request(f"p{i}", "chat", text=text) for i, text in enumerate(texts)]


def one(server: FakeServer, text: str, tokens: int = 9, **load: float | bool) -> RequestSample:
    window = run_window(server.url, asks(text), Load(1, tokens, **load))  # type: ignore[arg-type]
    (sample,) = window.samples
    return sample


@pytest.mark.parametrize(
    ("text", "tokens", "chunks"),
    [
        ("complete", 4, (1, 1, 1, 1)),
        ("split", 9, (1, 2, 6)),
        ("together", 9, (1, 2, 6)),
        ("speculative", 9, (1, 1, 2, 3, 2)),
        ("ids only", 9, (1, 3, 5)),
    ],
)
def test_every_token_is_counted_once_however_the_stream_is_cut(
    server: FakeServer, text: str, tokens: int, chunks: tuple[int, ...]
) -> None:
    """Otherwise every speed is wrong for servers or networks that cut streams differently."""
    sample = one(server, text, tokens)
    assert sample.error is None
    assert sample.chunk_tokens == chunks
    assert sample.tokens == tokens
    assert len(sample.chunk_times) == len(chunks)
    assert sample.sent <= sample.chunk_times[0]
    assert list(sample.chunk_times) == sorted(sample.chunk_times)
    assert sample.chunk_times[-1] <= sample.ended
    assert sample.finish_reason == "length"
    assert not sample.timed_out


def test_events_of_one_read_share_its_time(server: FakeServer) -> None:
    """Otherwise inter-token latencies show parsing time instead of arrival."""
    assert len(set(one(server, "together").chunk_times)) == 1


def test_speculative_counts_in_every_releases_spelling(server: FakeServer) -> None:
    """Otherwise acceptance is missing or wrong for some SGLang releases."""
    new = one(server, "speculative")
    assert new.spec == SpecCounts(4, 4, 8, (1, 2, 1))
    assert new.engine_figures == {"spec_accept_rate": 0.5, "spec_accept_length": 2.25}
    assert (new.prompt_tokens, new.engine_tokens) == (7, 9)
    assert one(server, "0.5.8").spec == SpecCounts(3, 2, 6, None)
    assert one(server, "complete").spec is None


@pytest.mark.parametrize(
    ("text", "received", "words"),
    [
        ("500", 0, ("HTTP 500", "no memory left")),
        ("no finish", 2, ("2 of 9 tokens", "without a finish reason")),
        ("stops", 3, ("cut short at 3 of 9", "stop")),
        ("short length", 3, ("cut short at 3 of 9", "length")),
        ("aborts", 2, ("aborted", "Out of memory")),
        ("garbage", 1, ("not JSON", "{]", "after 1 tokens")),
        ("truncated", 1, ("not JSON",)),
        ("html", 0, ("not an event stream", "<html>")),
        ("error event", 0, ("reported an error: Request too long",)),
        ("abrupt", 2, ("connection failed after 2 tokens", "in the middle of the answer")),
    ],
)
def test_what_went_wrong_is_said_and_what_came_is_kept(
    server: FakeServer, text: str, received: int, words: Sequence[str]
) -> None:
    """Otherwise a broken request looks like a fast one, or the user cannot see what broke."""
    sample = one(server, text)
    assert sample.error is not None
    assert all(word in sample.error for word in words), sample.error
    assert sample.tokens == received
    assert not sample.timed_out
    assert sample.requested_tokens == 9


def test_an_event_that_does_not_end_fails_alone(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.loadgen.stream_parser.LONGEST_LINE", 2**20)
    sample = one(server, "endless")
    assert sample.error is not None and sample.tokens == 1 and not sample.timed_out
    words = "more than 1 MiB without the end of a line, longer than any answer's event"
    assert words in sample.error and "(after 1 tokens)" in sample.error
    assert one(server, "complete").error is None


def test_short_answers_are_fine_where_the_model_may_stop(server: FakeServer) -> None:
    """Otherwise chats that end by themselves count as failures."""
    sample = one(server, "stops", ignore_eos=False)
    assert (sample.error, sample.finish_reason, sample.tokens) == (None, "stop", 3)
    assert one(server, "short length", ignore_eos=False).error is not None


def test_counts_that_go_back_are_kept_as_the_engine_sent_them(server: FakeServer) -> None:
    """Otherwise the cross-check of token counts cannot see the mismatch."""
    sample = one(server, "less in the end")
    assert (sample.tokens, sample.engine_tokens) == (9, 8)


def test_a_hang_costs_one_time_limit_and_stops_the_window(server: FakeServer) -> None:
    """Otherwise a dead server costs a time limit for each request left."""
    before = len(server.bodies)
    window = run_window(
        server.url, asks("complete", *["hang"] * 20), Load(2, 4, request_timeout_s=0.3)
    )
    hung = [sample for sample in window.samples if sample.timed_out]
    assert 1 <= len(hung) <= 2
    assert hung[0].tokens == 2
    assert hung[0].error == "no new token came for 0.3 s after 2 of 4 tokens"
    assert window.stopped is not None and "timed out" in window.stopped
    assert len(window.samples) == len(server.bodies) - before < 21


def test_a_hang_at_a_low_rate_does_not_wait_for_who_comes_next(server: FakeServer) -> None:
    """At 0.01 requests/s a dead server cost minutes more than its timeout."""
    load = Load(4, 9, request_timeout_s=0.2, request_rate=0.001)
    window = run_window(server.url, asks("hang", "complete"), load)
    assert [each.timed_out for each in window.samples] == [True]
    assert window.stopped is not None


def test_slow_tokens_are_not_a_hang(server: FakeServer) -> None:
    """Otherwise a slow server is reported as a dead one."""
    sample = one(server, "slow", tokens=6, request_timeout_s=0.4)
    assert (sample.error, sample.tokens) == (None, 6)


def test_failures_in_a_row_stop_the_window(server: FakeServer) -> None:
    """Otherwise a broken server is asked thousands of times."""
    window = run_window(server.url, asks(*["500"] * 50), Load(3, 4))
    assert 5 <= len(window.samples) <= 8
    assert window.stopped is not None and "requests in a row failed" in window.stopped
    mixed = run_window(server.url, asks(*["500", "500", "complete"] * 5), Load(1, 4))
    assert len(mixed.samples) == 15
    assert mixed.stopped is None
    assert sum(sample.error is not None for sample in mixed.samples) == 10


def test_no_server_is_a_sample_with_the_reason() -> None:
    """Otherwise a server that died between two windows ends in a traceback."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        window = run_window(url, asks("complete"), Load(1, 4))
    (sample,) = window.samples
    assert sample.error is not None
    assert "connection failed after 0 tokens: cannot connect" in sample.error
    assert sample.chunk_times == ()
    assert window.stopped is None


def test_the_body_is_what_was_asked_for(server: FakeServer) -> None:
    """Otherwise the server is measured under other settings than the sweep file's."""
    server.bodies.clear()
    requests = [Request("a", "chat", text="complete"), Request("b", "code", input_ids=(3, 4))]
    run_window(server.url + "/", requests, Load(1, 5, temperature=0.5, ignore_eos=False))
    sampling = {"max_new_tokens": 5, "temperature": 0.5, "ignore_eos": False}
    assert server.bodies == [
        {"text": "complete", "sampling_params": sampling, "stream": True},
        {"input_ids": [3, 4], "sampling_params": sampling, "stream": True},
    ]


def test_a_closed_loop_keeps_its_connections(server: FakeServer) -> None:
    """Otherwise the load is not the concurrency asked for, or each TTFT pays a handshake."""
    server.most_open = 0
    server.connections.clear()
    window = run_window(server.url, asks(*["complete"] * 12), Load(3, 6))
    assert server.most_open == 3
    assert len(server.connections) == 3
    assert [sample.prompt_id for sample in window.samples] == [f"p{i}" for i in range(12)]
    assert window.samples[0].sent == 0.0
    assert window.wall_s == max(sample.ended for sample in window.samples)
    assert 0 < window.client_cpu_s <= window.wall_s * 1.5
    assert window.concurrency == 3
    # Of three workers, no one's next request was sent before an earlier one had ended.
    ended = sorted(sample.ended for sample in window.samples)
    assert all(
        sample.sent >= ended[max(0, index - 3)] or index < 3
        for index, sample in enumerate(sorted(window.samples, key=lambda s: s.sent))
    )


def test_512_streams_at_a_time() -> None:
    """Otherwise the highest concurrency that a sweep file allows does not work."""
    with FakeServer() as server:
        window = run_window(server.url, asks(*["slow"] * 512), Load(512, 4))
        assert server.most_open == 512
    assert [sample.error for sample in window.samples] == [None] * 512
    assert {sample.tokens for sample in window.samples} == {4}


def test_nothing_to_send() -> None:
    """Otherwise an empty warm-up fails."""
    window = run_window("http://127.0.0.1:9", [], Load(4, 8))
    assert (window.samples, window.wall_s, window.stopped) == ((), 0.0, None)


def test_a_client_that_stood_still_says_so(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens that came meanwhile have the time at which it went on: no measurement of the server.
    Also where it is the last thing that happens in the window."""
    monkeypatch.setattr(client, "_WATCH_EVERY_S", 0.05)
    feed, fed = TokenStream.feed, list[bytes]()

    def late(stream: TokenStream, data: bytes, now: float) -> bool:
        if not fed:
            time.sleep(0.5)
        fed.append(data)
        return feed(stream, data, now)

    monkeypatch.setattr(TokenStream, "feed", late)
    assert run_window(server.url, asks("complete"), Load(1, 4)).stood_s > 0.3


def test_ctrl_c_passes_through(server: FakeServer) -> None:
    """Otherwise a user cannot stop a run while requests are open."""
    code = (
        "from tuner.loadgen.client import Load, run_window\n"
        "from tuner.metrics.samples import Request\n"
        f"run_window({server.url!r}, [Request('p', 'chat', text='hang')] * 4, Load(2, 4))\n"
    )
    before = len(server.bodies)
    child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while len(server.bodies) < before + 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGINT)
    _, errors = child.communicate(timeout=10)
    assert child.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors
