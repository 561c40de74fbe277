"""Control requests to whatever may listen on a port: an answer or one sentence, soon."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tuner.core.errors import EngineFailure, Failure
from tuner.server import http_api
from tuner.server.http_api import MOST_BYTES, NoAnswerError, ServerApi, TooLateError, ask
from tuner.sglang.dialect import SGLANG

PATIENCE_S = 0.4


@contextlib.contextmanager
def saying(answer: Callable[[socket.socket], None], host: str = "127.0.0.1") -> Iterator[str]:
    """A server that does `answer` with each connection, once a request has come; its URL."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:

        def talk(connection: socket.socket) -> None:
            with contextlib.suppress(OSError), connection:
                connection.recv(65536)
                answer(connection)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=talk, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        name = f"[{host}]" if ":" in host else host
        yield f"http://{name}:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def fixed(head: bytes, body: bytes = b"") -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(b"HTTP/1.1 " + head + b"\r\n\r\n" + body)


HOSTILE = {
    "a place that is no URL": (b"302 x\r\nLocation: http://[::1\r\nContent-Length: 0", b""),
    "a place that is no text": (b"302 x\r\nLocation: http://\xff\r\nContent-Length: 0", b""),
    "a chunk of fewer than no bytes": (b"200 x\r\nTransfer-Encoding: chunked", b"-5\r\n{}\r\n"),
    "a chunk that is cut": (b"200 x\r\nTransfer-Encoding: chunked", b"5\r\n{}"),
    "no alphabet": (b"500 x\r\nContent-Type: text/html; charset=idna", b"<x>\xff"),
    "another alphabet": (b"500 x\r\nContent-Type: text/html; charset=punycode", b"<x>\xff"),
    "a length that is none": (b"200 x\r\nContent-Length: -5", b"{}"),
    "two lengths": (b"200 x\r\nContent-Length: 2\r\nContent-Length: 3", b"{}"),
    "no HTTP": (b"x", b"{}"),
    "not packed as said": (b"200 x\r\nContent-Encoding: gzip\r\nContent-Length: 2", b"no"),
    "a title for the terminal": (b"500 x", b"\x1b]0;owned\x07\x1b[2J\xc2\x9b31m \xe2\x80\xaeno"),
    "nested": (b"200 x", b"[" * 100_000),
    "a header without end": (b"200 x\r\nX: " + b"a" * 200_000, b"{}"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_no_answer_is_told_in_one_line(what: str) -> None:
    """A traceback in the night of a sweep loses the night."""
    with saying(fixed(*HOSTILE[what])) as url:
        api = ServerApi(url, 2.0)
        assert not api.is_healthy(2.0) or what in ("not packed as said", "nested")
        assert api.counters(SGLANG.counters) is None
        for call in (api.server_info, lambda: api.generate_one_token({}), lambda: api.set_steps(3)):
            with pytest.raises(EngineFailure) as failure:
                call()
            assert failure.value.label is Failure.CLIENT
            assert str(failure.value).isprintable()


def without_end(head: bytes, piece: bytes, pause_s: float) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.sendall(head)
        deadline = time.monotonic() + 20.0
        while time.monotonic() < deadline:
            connection.sendall(piece)
            time.sleep(pause_s)

    return answer


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"HTTP/1.1 200 x\r\n\r\n", b" "),
        (b"HTTP/1.1 200 x\r\n", b"X-A: b\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b""),
    ],
    ids=["body", "head", "go on", "silence"],
)
def test_an_answer_that_drips_is_late(head: bytes, piece: bytes) -> None:
    """A time limit between two bytes is none for the whole."""
    with saying(without_end(head, piece, 0.05)) as url, pytest.raises(TooLateError):
        ask("GET", f"{url}/server_info", {}, None, PATIENCE_S)


def test_an_answer_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take the memory of the machine that is measured."""
    monkeypatch.setattr(http_api, "MOST_BYTES", 2**20)
    endless = without_end(b"HTTP/1.1 200 x\r\n\r\n", b"x" * 2**18, 0.0)
    with saying(endless) as url, pytest.raises(NoAnswerError, match="longer than 1 MiB"):
        ask("GET", f"{url}/server_info", {}, None, 20.0)
    assert MOST_BYTES >= 2**25


def test_the_keys_go_where_they_are_sent_and_no_further() -> None:
    """A redirect to another host would be handed the key of this one."""
    came: list[bytes] = []

    def collect(connection: socket.socket) -> None:
        came.append(b"asked")
        fixed(b"200 x\r\nContent-Length: 2", b"{}")(connection)

    with saying(collect) as other:
        there = f"307 x\r\nLocation: {other}/server_info\r\nContent-Length: 0".encode()
        with saying(fixed(there)) as url:
            assert ask("GET", url, {"Authorization": "Bearer k"}, None, 5.0).status == 307
    assert came == []


def test_an_answer_is_what_was_said() -> None:
    body = json.dumps({"é": 1}, ensure_ascii=False).encode()
    with saying(fixed(b"200 x", body)) as url:
        answer = ask("POST", url, {}, {"a": 1}, 5.0)
    assert (answer.status, answer.body, answer.json()) == (200, body, {"é": 1})


def test_ask_ipv6_url_is_answered() -> None:
    with saying(fixed(b"200 x\r\nContent-Length: 2", b"{}"), "::1") as url:
        assert ask("GET", f"{url}/server_info", {}, None, 5.0).json() == {}


@pytest.mark.parametrize(
    ("headers", "sent"),
    [({}, b"Basic bWU6cHc="), ({"Authorization": "Bearer k"}, b"Bearer k")],
    ids=["password", "key"],
)
def test_ask_url_password_yields_to_key(headers: dict[str, str], sent: bytes) -> None:
    """A proxy in front of a server may want a password, the server itself its key."""
    came: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection = listener.accept()[0]
            with connection:
                came.append(connection.recv(65536))
                fixed(b"200 x\r\nContent-Length: 2", b"{}")(connection)

        threading.Thread(target=serve, daemon=True).start()
        ask("GET", f"http://me:pw@127.0.0.1:{listener.getsockname()[1]}", headers, None, 5.0)
    assert b"Authorization: " + sent + b"\r\n" in came[0]


def test_ask_without_server_reports_the_cause() -> None:
    """The messages of requests show pools and Python objects."""
    with pytest.raises(
        NoAnswerError, match=r"^the HTTP exchange failed \(ConnectionRefusedError: "
    ):
        ask("GET", "http://127.0.0.1:9/health", {}, None, 5.0)


def test_ask_late_answer_leaves_no_thread() -> None:
    """A server that is polled for hours would cost a thread each time."""
    drip = without_end(b"HTTP/1.1 200 x\r\n", b"X-A: b\r\n", 0.05)
    with saying(drip) as url, pytest.raises(TooLateError):
        ask("GET", url, {}, None, PATIENCE_S)
    deadline = time.monotonic() + 5.0
    while any(thread.name == "control request" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
