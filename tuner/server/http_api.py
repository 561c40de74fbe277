"""Control requests to a server, as opposed to load: health, server info, probe, flush, steps."""

import json
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from tuner.core.errors import EngineFailure, Failure
from tuner.core.secrets import hidden
from tuner.loadgen.auth import NO_KEYS, Keys
from tuner.metrics.samples import EngineCounters

MOST_BYTES = 32 * 2**20
"""Limit of an answer. /server_info has some tens of KiB, and an entry per data-parallel rank."""
ERROR_BODY_BYTES = 4096
"""Bytes that are read of an answer whose status is not 200."""
_PIECE_BYTES = 4096


class NoAnswerError(Exception):
    """The server cannot be reached or did not send a valid answer; the message is a sentence."""


class TooLateError(NoAnswerError):
    """The server did not send its whole answer in time."""


@dataclass(frozen=True)
class Answer:
    """A server's answer to one request."""

    status: int
    body: bytes
    """The whole body if the status is 200, else the first ERROR_BODY_BYTES."""

    @property
    def text(self) -> str:
        """The body as UTF-8, for any charset in the headers; U+FFFD for invalid bytes."""
        return self.body.decode("utf-8", errors="replace")

    def json(self) -> Any:
        """Return the body's value. Raises ValueError if it is not JSON or nested too deeply."""
        try:
            return json.loads(self.body)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


def ask(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: Mapping[str, Any] | None,
    limit_s: float,
) -> Answer:
    """Send one request, `body` as JSON. Raises TooLateError after `limit_s`, and NoAnswerError.

    The limit holds for the whole exchange. Limits of requests hold between two bytes, so a thread
    sends the request and its socket is shut down when the time is over.
    """
    exchange = _Exchange(url)
    answer: Future[Answer] = Future()

    def send() -> None:
        try:
            answer.set_result(exchange.answer(method, headers, body, limit_s))
        except BaseException as error:
            answer.set_exception(error)

    Thread(target=send, daemon=True, name="control request").start()
    try:
        return answer.result(limit_s)
    except (TimeoutError, requests.Timeout) as error:
        raise TooLateError(f"no answer in {limit_s:g} s") from error
    except (OSError, ValueError) as error:  # all errors of requests are OSErrors
        raise NoAnswerError(f"the HTTP exchange failed ({_first_cause(error)})") from error
    finally:
        exchange.shut_down()


class _Exchange(HTTPAdapter):
    """One connection for one request, which another thread can shut down.

    A Session of requests would read proxies and .netrc, and the whole body of a redirect. An
    adapter reads none of them and follows no redirect.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._sockets: list[socket.socket] = []
        self._is_over = False
        if url.lower().startswith("https:"):
            # The machine's certificates, as for the load. The default is certifi's.
            self.init_poolmanager(1, 1, ssl_context=ssl.create_default_context())

    def answer(
        self, method: str, headers: Mapping[str, str], body: Mapping[str, Any] | None, wait_s: float
    ) -> Answer:
        """Send the request and read the answer; `wait_s` is the limit between two bytes."""
        # A key has precedence over a password in the URL.
        keep = _keep_headers if "Authorization" in headers else None
        sent = {"Accept-Encoding": "identity", **headers}
        request = requests.Request(method, self._url, sent, json=body, auth=keep).prepare()
        with closing(self), closing(self.send(request, stream=True, timeout=wait_s)) as response:
            return _read(response)

    def shut_down(self) -> None:
        """Wake the thread that waits for the server. It then ends by itself."""
        self._is_over = True
        for connected in self._sockets:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def cert_verify(self, *_args: Any, **_kwargs: Any) -> None:
        """Leave the certificates to the SSL context."""

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        """Return requests' pool, whose connections are recorded for `shut_down`."""
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        exchange = self

        class Recorded(pool.ConnectionCls):  # type: ignore[misc]
            def connect(self) -> None:
                super().connect()
                exchange._sockets.append(self.sock)
                if exchange._is_over:
                    exchange.shut_down()

        pool.ConnectionCls = Recorded
        return pool


def _keep_headers(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _read(response: requests.Response) -> Answer:
    length = response.headers.get("Content-Length", "0")
    if not (length.isascii() and length.isdecimal()):
        raise ValueError(f"Content-Length is {length}")
    is_good = response.status_code == 200
    most = MOST_BYTES if is_good else ERROR_BODY_BYTES
    body = bytearray()
    for piece in response.iter_content(_PIECE_BYTES):
        body += piece
        if len(body) > most:
            if is_good:
                raise NoAnswerError(f"the answer is longer than {MOST_BYTES >> 20} MiB")
            break
    return Answer(response.status_code, bytes(body[:most]))


def _first_cause(error: BaseException) -> str:
    """Return the error below those of requests and urllib3, whose messages show Python objects."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return f"{type(error).__name__}: {error}"


HEALTH_LIMIT_S = 20.0
"""SGLang's /health generates a token, takes a second or more and gives up after 20."""
CONTROL_LIMIT_S = 60.0
COUNTERS_LIMIT_S = 5.0
FLUSH_RETRY_S = 10.0
SWITCH_RETRY_S = 0.3
_STEPS = "speculative_num_steps"
_CHANGES = ("/flush_cache", "/set_internal_state")
"""Pages that need the admin key if the server has one."""
_REFUSED = (401, 403)
_LOOKED_AT = 4096
"""Number of characters of an answer that a message may use."""
_PROBE_TEXT = "Hello"
_PROBE_IDS = [1, 2, 3, 4]
"""Token ids that every vocabulary has."""


class ServerApi:
    """One server's control requests. All failures are EngineFailure.

    `request_limit_s` is the sweep's time limit for a generating request; `keys` go with every
    request, and nowhere else: redirects are not followed.
    """

    def __init__(self, url: str, request_limit_s: float, keys: Keys = NO_KEYS) -> None:
        self.url = url.rstrip("/")
        self._keys = keys
        self._request_limit_s = request_limit_s

    def is_healthy(self, limit_s: float = HEALTH_LIMIT_S) -> bool:
        """Return True if /health answers 200, False for any other answer or none."""
        try:
            answer = self._request("GET", "/health", None, max(limit_s, 0.1))
        except NoAnswerError:
            return False
        return answer.status == 200

    def server_info(self, limit_s: float = CONTROL_LIMIT_S) -> dict[str, Any]:
        """Return the server's arguments, version and internal state.

        Raises WRONG_SERVER if the server has no such page, CLIENT if the page is not JSON.
        """
        for page in ("/server_info", "/get_server_info"):  # the second is the older name
            answer = self._send("GET", page, limit_s=limit_s)
            if answer.status != 404:
                return _json(answer, page)
        raise EngineFailure(
            Failure.WRONG_SERVER, f"what answers at {self.url} has no /server_info: not SGLang"
        )

    def counters(
        self, read: Callable[[Mapping[str, Any]], EngineCounters | None]
    ) -> EngineCounters | None:
        """Return the counters that `read` finds in /server_info, or None if it fails or is slow."""
        try:
            return read(self.server_info(COUNTERS_LIMIT_S))
        except EngineFailure:
            return None

    def generate_one_token(self, info: Mapping[str, Any]) -> None:
        """Wait until the server has generated a token. `info` is its server_info.

        Raises HANG without a token in the request's time limit, CLIENT for any other answer.
        """
        prompt: dict[str, Any] = {"text": _PROBE_TEXT}
        if info.get("skip_tokenizer_init"):
            prompt = {"input_ids": _PROBE_IDS}
        body = {
            **prompt,
            "sampling_params": {"max_new_tokens": 1, "temperature": 0, "ignore_eos": True},
        }
        answer = _json(self._send("POST", "/generate", body, self._request_limit_s), "/generate")
        meta = answer.get("meta_info")
        count = meta.get("completion_tokens") if isinstance(meta, dict) else None
        if not isinstance(count, int) or count < 1:
            raise EngineFailure(Failure.CLIENT, f"/generate brought no token: {_short(answer)}")

    def flush_cache(self) -> None:
        """Empty the prefix cache.

        A server answers 400 while requests end, so this retries for FLUSH_RETRY_S.
        """
        deadline = time.monotonic() + FLUSH_RETRY_S
        while True:
            answer = self._send("POST", "/flush_cache", limit_s=CONTROL_LIMIT_S)
            if answer.status == 200:
                return
            if answer.status != 400 or time.monotonic() > deadline:
                raise EngineFailure(
                    Failure.CLIENT,
                    f"/flush_cache answered {answer.status}: {_short(answer.text)}",
                )
            time.sleep(0.1)

    def set_steps(self, steps: int) -> None:
        """Pin the chain length, and check that every replica of the scheduler reports it.

        Retries for SWITCH_RETRY_S: the replicas are not idle while a health check ends. Raises
        CLIENT with the server's reason if a replica refuses or has no such switch.
        """
        page = "/set_internal_state"
        deadline = time.monotonic() + SWITCH_RETRY_S
        answer = self._send("POST", page, {"server_args": {_STEPS: steps}})
        while "not idle" in answer.text and time.monotonic() < deadline:
            time.sleep(0.1)
            answer = self._send("POST", page, {"server_args": {_STEPS: steps}})
        try:
            parsed = answer.json()
        except ValueError:
            parsed = None
        replicas = parsed if isinstance(parsed, list) and parsed else [parsed]
        for replica in replicas:
            if not isinstance(replica, dict):  # SGLang's own answer is a list of booleans
                message = f"it cannot switch, {page} answered {_short(answer.text)}"
            elif replica.get("updated") is not True or answer.status != 200:
                message = str(replica.get("reason") or _short(answer.text))
            elif replica.get(_STEPS) != steps:
                message = f"it reports a chain length of {replica.get(_STEPS)}"
            else:
                continue
            raise EngineFailure(Failure.CLIENT, f"the server did not take {steps} steps: {message}")

    def _send(
        self,
        method: str,
        page: str,
        body: Mapping[str, Any] | None = None,
        limit_s: float = CONTROL_LIMIT_S,
    ) -> Answer:
        try:
            answer = self._request(method, page, body, limit_s)
        except TooLateError as error:
            label = Failure.HANG if page == "/generate" else Failure.CLIENT
            raise EngineFailure(label, f"{page} gave no answer in {limit_s:g} s") from error
        except NoAnswerError as error:
            raise EngineFailure(Failure.CLIENT, f"{page} failed: {_short(error)}") from error
        if answer.status in _REFUSED:
            raise EngineFailure(Failure.CLIENT, self._refused(page, answer.status))
        return answer

    def _request(
        self, method: str, page: str, body: Mapping[str, Any] | None, limit_s: float
    ) -> Answer:
        """Send a request with the keys. Raises NoAnswerError."""
        headers = self._keys.headers(changes=page in _CHANGES)
        return ask(method, f"{self.url}{page}", headers, body, limit_s)

    def _refused(self, page: str, status: int) -> str:
        sent = self._keys.headers(changes=page in _CHANGES)
        what = "wants another API key than it was sent" if sent else "wants an API key"
        kind = "admin_api_key" if page in _CHANGES and self._keys.api else "api_key"
        right = (
            f"engine.{kind} of a server that runs, server.flags.{kind.replace('_', '-')} of others"
        )
        return f"the server at {self.url} {what} ({page} answered {status}): {right}"


def _json(answer: Answer, page: str) -> dict[str, Any]:
    if answer.status != 200:
        raise EngineFailure(
            Failure.CLIENT, f"{page} answered {answer.status}: {_short(answer.text)}"
        )
    try:
        data = answer.json()
    except ValueError as error:
        raise EngineFailure(
            Failure.CLIENT, f"{page} answered what is not JSON: {_short(answer.text)}"
        ) from error
    if not isinstance(data, dict):
        raise EngineFailure(Failure.CLIENT, f"{page} answered no object: {_short(answer.text)}")
    return data


def _short(what: object) -> str:
    text = hidden(" ".join(str(what)[:_LOOKED_AT].split()))
    return text if len(text) <= 200 else f"{text[:197]}..."
