"""The wire under the load client: each way in which HTTP lets a server word and end an answer."""

import asyncio
import contextlib

import pytest

from tuner.loadgen import http_connection as module
from tuner.loadgen.http_connection import ConnectionFailedError, Connections, RefusedError

OK = b"HTTP/1.1 200 OK\r\n"
FIVE = OK + b"Content-Length: 5\r\n\r\nhello"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
TO_THE_END = OK + b"\r\nhello"


class Wire:
    """A server that answers every request with the same bytes, a few at a time."""

    def __init__(self, answer: bytes, step: int = 1000, closes: bool = False) -> None:
        self.answer, self.step, self.closes = answer, step, closes
        self.connections = 0
        self.requests: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split()[0])
                self.requests.append(head + await reader.readexactly(length))
                for first in range(0, len(self.answer), self.step):
                    writer.write(self.answer[first : first + self.step])
                    await asyncio.sleep(0)
                if self.closes:
                    break
        writer.close()


def talk(wire: Wire, times: int = 1, path: str = "/generate", patience: float = 5.0) -> list[bytes]:
    """What came of each of so many requests, one after the other."""

    async def run() -> list[bytes]:
        server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}"
        found = []
        async with server:
            with contextlib.closing(Connections(url)) as connections:
                for _ in range(times):
                    pieces: list[bytes] = []
                    await connections.post(b"{}", lambda b, _, to=pieces: to.append(b), patience)
                    found.append(b"".join(pieces))
        return found

    return asyncio.run(run())


@pytest.mark.parametrize("step", [1, 7, 1000])
@pytest.mark.parametrize(
    "answer", [FIVE, CHUNKED, b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + FIVE]
)
def test_an_answer_comes_whole_however_it_is_cut(answer: bytes, step: int) -> None:
    """Otherwise tokens are lost, or a server behind a proxy cannot be measured."""
    wire = Wire(answer, step)
    assert talk(wire, 3) == [b"hello"] * 3
    assert wire.connections == 1


@pytest.mark.parametrize(
    ("answer", "closes"),
    [
        (TO_THE_END, True),
        (OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", False),
        (FIVE + FIVE, False),  # more than was asked for
    ],
)
def test_a_connection_that_is_spent_is_not_used_again(answer: bytes, closes: bool) -> None:
    """Otherwise the next request fails, or gets another's answer."""
    wire = Wire(answer, closes=closes)
    assert talk(wire, 3) == [b"hello"] * 3
    assert wire.connections == 3


def test_a_server_that_closes_without_a_word_is_asked_again() -> None:
    """Every second request failed, of a server that keeps no connection and does not say so."""
    wire = Wire(FIVE, closes=True)
    assert talk(wire, 4) == [b"hello"] * 4
    assert wire.connections == len(wire.requests) == 4
    dead = Wire(b"", closes=True)
    with pytest.raises(ConnectionFailedError, match="closed it before it answered"):
        talk(dead)
    assert dead.connections == 1  # it was new: nothing says that another one would do better


def test_connections_are_opened_before_they_are_needed() -> None:
    """Otherwise the first requests of a window pay for its handshakes, all at once."""

    async def run(wire: Wire) -> int:
        server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with server:
            with contextlib.closing(Connections(url)) as connections:
                await connections.open(3, 5.0)
                opened = wire.connections
                await connections.post(b"{}", lambda *_: True, 5.0)
                await connections.post(b"{}", lambda *_: True, 5.0)
        return opened

    wire = Wire(FIVE)
    assert asyncio.run(run(wire)) == 3 == wire.connections


def test_a_connection_that_rested_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server may be closing it: a request lost to that would count as the server's failure."""
    monkeypatch.setattr(module, "MAX_IDLE_S", -1.0)
    wire = Wire(FIVE)
    talk(wire, 2)
    assert wire.connections == 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "closed it before it answered"),
        (FIVE[:-2], "in the middle of the answer"),
        (CHUNKED[:-5], "in the middle of the answer"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not HTTP"),
        (OK + b"X: " + b"x" * 99_000, "more than 64 KiB of HTTP headers"),
        (OK + b"X: y\r\n" * 20_000 + FIVE[len(OK) :], "more than 64 KiB of HTTP headers"),
        (CHUNKED[:-2] + b"X: " + b"x" * 99_000, "more than 64 KiB of HTTP headers"),
    ],
)
def test_a_broken_answer_is_no_whole_one(answer: bytes, words: str) -> None:
    with pytest.raises(ConnectionFailedError, match=words):
        talk(Wire(answer, closes=True))


def test_a_body_of_any_size_is_no_header() -> None:
    body = b"x" * 2**20
    assert talk(Wire(OK + b"Content-Length: 1048576\r\n\r\n" + body, 5000)) == [body]


def test_a_refusal_has_its_status_and_words() -> None:
    body = b"x" * 50_000
    answer = b"HTTP/1.1 503 Busy\r\nContent-Length: 50000\r\n\r\n" + body
    with pytest.raises(RefusedError) as refused:
        talk(Wire(answer))
    assert refused.value.status == 503
    assert body.startswith(refused.value.body) and len(refused.value.body) >= 300


def test_silence_ends_in_time() -> None:
    with pytest.raises(TimeoutError):
        talk(Wire(b"HTTP/1.1 200 OK\r\n"), patience=0.2)


def test_the_request_is_one_that_servers_take() -> None:
    """A URL's path, its query and its user are the user's own."""
    wire = Wire(FIVE)
    talk(wire, path="/proxy one/é/generate?model=a")
    head = wire.requests[0].decode()
    assert head.startswith("POST /proxy%20one/%C3%A9/generate?model=a HTTP/1.1\r\nHost: 127.0.0.1:")
    assert head.endswith("Content-Length: 2\r\n\r\n{}")
    assert (
        b"Authorization: Basic bWU6cGFzcyB3b3Jk\r\n" in Connections("http://me:pass%20word@h")._head
    )
