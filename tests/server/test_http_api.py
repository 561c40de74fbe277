"""The control requests, against servers that answer in unusual ways."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tuner.core.errors import EngineFailure, Failure
from tuner.metrics.samples import EngineCounters
from tuner.server.http_api import ServerApi
from tuner.sglang.dialect import SGLANG

Answer = tuple[int, Any]


@contextmanager
def server(answer: Callable[[str, Any], Answer]) -> Iterator[ServerApi]:
    """A real HTTP server that answers `answer(path, body)`: a status, and text or an object."""

    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            status, what = answer(self.path, body)
            data = (what if isinstance(what, str) else json.dumps(what)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = reply  # noqa: N815

        def log_message(self, *words: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        api = ServerApi(f"http://127.0.0.1:{http.server_port}", 0.5)
        try:
            yield api
        finally:
            http.shutdown()
            thread.join()


def token(path: str, body: Any) -> Answer:
    return 200, {"meta_info": {"completion_tokens": 1}}


def test_flush_waits_for_requests_that_are_ending() -> None:
    """SGLang says 400 for a moment after the last request; that is no failure."""
    statuses = [400, 400, 200]
    with server(lambda path, body: (statuses.pop(0), "busy")) as api:
        api.flush_cache()
    assert statuses == []


def test_a_refused_flush_is_told() -> None:
    """Otherwise warm prefixes would be measured as speed."""
    refuse = pytest.raises(EngineFailure, match="500: no way")
    with server(lambda path, body: (500, "no\nway")) as api, refuse as failure:
        api.flush_cache()
    assert failure.value.label is Failure.CLIENT


def test_the_older_name_of_server_info_is_tried() -> None:
    """The page was renamed between releases."""
    info = {"version": "0.5.8"}
    with server(lambda path, body: (200, info) if "get" in path else (404, "")) as api:
        assert api.server_info() == info


def test_counters_are_those_of_each_data_parallel_rank() -> None:
    """A mean over the ranks that tell would pass for the server's."""
    states = [
        {"avg_spec_accept_length": 2.5, "last_gen_throughput": 310},
        {"last_gen_throughput": 290.5},  # SGLang leaves out what is still 0
        "busy",
    ]
    with server(lambda *_: (200, {"dp_size": 4, "internal_states": states})) as api:
        assert api.counters(SGLANG.counters) == EngineCounters(4, (2.5, None), (310.0, 290.5))


@pytest.mark.parametrize("answer", [(500, "no"), (404, "no"), (200, "no json"), (200, {})])
def test_a_server_that_tells_no_counters_costs_nothing(answer: Answer) -> None:
    """They are beside the measurement, which is there already."""
    with server(lambda *_: answer) as api:
        assert api.counters(SGLANG.counters) is None


def test_something_else_on_the_port_is_told_as_such() -> None:
    """A web server that happens to answer /health is not a broken SGLang."""
    with server(lambda path, body: (404, "")) as api, pytest.raises(EngineFailure) as failure:
        api.server_info()
    assert failure.value.label is Failure.WRONG_SERVER


@pytest.mark.parametrize("skips", [False, True])
def test_a_server_without_tokenizer_is_asked_with_ids(skips: bool) -> None:
    """It refuses text; without this no dummy model would ever be ready."""
    bodies: list[Any] = []

    def answer(path: str, body: Any) -> Answer:
        bodies.append(body)
        return token(path, body)

    with server(answer) as api:
        api.generate_one_token({"skip_tokenizer_init": skips})
    assert ("input_ids" in bodies[0], "text" in bodies[0]) == (skips, not skips)


@pytest.mark.parametrize("what", ["<html>", "[]", "{}", '{"meta_info": {"completion_tokens": 0}}'])
def test_an_answer_that_is_no_token_is_a_client_failure(what: str) -> None:
    """200 alone does not prove that the server can generate."""
    with server(lambda path, body: (200, what)) as api, pytest.raises(EngineFailure) as failure:
        api.generate_one_token({})
    assert failure.value.label is Failure.CLIENT


def test_no_token_in_time_is_a_hang() -> None:
    """A hang is not tried again the way a broken answer is."""
    stop = threading.Event()

    def answer(path: str, body: Any) -> Answer:
        stop.wait(10.0)
        return token(path, body)

    with server(answer) as api:
        with pytest.raises(EngineFailure) as failure:
            api.generate_one_token({})
        stop.set()
    assert failure.value.label is Failure.HANG


def test_a_proxy_does_not_come_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines behind a proxy have these variables; the loopback must not go through it."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with server(token) as api:
        assert api.is_healthy()
        api.generate_one_token({})
