"""The few requests to a server that are not load: is it up, who is it, can it generate."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tuner.core.errors import EngineFailure, Failure
from tuner.core.secrets import hidden
from tuner.loadgen.auth import NO_KEYS, Keys
from tuner.loadgen.http_connection import ConnectionFailedError, Connections, RefusedError
from tuner.metrics.samples import EngineCounters

# One request and its whole answer, within a time and a size, whatever the server does.
#
# A server that is not SGLang, or no longer quite: it may answer without end, a byte a second, with
# headers that name no place or characters of no alphabet. Redirects are not followed, and neither a
# proxy nor a .netrc has a business here.


MOST_BYTES = 32 * 2**20
"""Of an answer. /server_info has some tens of KiB, and an entry for each data-parallel rank."""


class NoAnswerError(Exception):
    """The server cannot be reached, or brought what is no answer; the message is a sentence."""


class TooLateError(NoAnswerError):
    """The whole answer was not there in time."""


@dataclass(frozen=True)
class Answer:
    """What a server said."""

    status: int
    body: bytes
    """Whole with status 200, else its beginning."""

    @property
    def text(self) -> str:
        """The body as UTF-8, whatever the headers call it; U+FFFD for what is none."""
        return self.body.decode("utf-8", errors="replace")

    def json(self) -> Any:
        """The body's value. Raises ValueError where it is no JSON, or nested too deeply."""
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
    """Send one request, `body` as JSON. Raises TooLateError after `limit_s`, and NoAnswerError."""
    data = b"" if body is None else json.dumps(body).encode()
    came = bytearray()

    def take(piece: bytes, _: float) -> bool:
        came.extend(piece)
        if len(came) > MOST_BYTES:
            raise NoAnswerError(f"the answer is longer than {MOST_BYTES >> 20} MiB")
        return True

    async def exchange() -> None:
        async with asyncio.timeout(limit_s):
            with closing(Connections(url, headers, method)) as connections:
                await connections.post(data, take, limit_s)

    try:
        asyncio.run(exchange())
    except TimeoutError as error:
        raise TooLateError(f"no answer in {limit_s:g} s") from error
    except RefusedError as refusal:
        return Answer(refusal.status, refusal.body)
    except ConnectionFailedError as error:
        raise NoAnswerError(str(error)) from error
    return Answer(200, bytes(came))


HEALTH_LIMIT_S = 20.0
"""SGLang's /health generates a token, takes a second or more and gives up after 20."""
CONTROL_LIMIT_S = 60.0
COUNTERS_LIMIT_S = 5.0
FLUSH_RETRY_S = 10.0
SWITCH_RETRY_S = 0.3
_STEPS = "speculative_num_steps"
_CHANGES = ("/flush_cache", "/set_internal_state")
"""Pages that want the admin key where the server has one."""
_REFUSED = (401, 403)
_LOOKED_AT = 4096
"""Characters of an answer that a message is made of."""
_PROBE_TEXT = "Hello"
_PROBE_IDS = [1, 2, 3, 4]
"""Ids that every vocabulary has."""


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
        """True where /health answers 200; False where it says otherwise or nothing answers."""
        try:
            answer = self._request("GET", "/health", None, max(limit_s, 0.1))
        except NoAnswerError:
            return False
        return answer.status == 200

    def server_info(self, limit_s: float = CONTROL_LIMIT_S) -> dict[str, Any]:
        """The server's arguments, version and internal state.

        Raises WRONG_SERVER where the server has no such page, CLIENT where the page is no JSON.
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
        """Return when the server has really generated a token. `info` is its server_info.

        Raises HANG where none came in the request's time limit, CLIENT for any other answer.
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
        """Empty the prefix cache. A server says 400 while requests end: tried again for a while."""
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
        """Pin the chain length; every replica of the scheduler then says that it has it.

        While a health check ends they are not idle: tried again for a moment. Raises CLIENT with
        the server's reason where one refuses, or has no such switch.
        """
        page = "/set_internal_state"
        deadline = time.monotonic() + SWITCH_RETRY_S
        answer = self._send("POST", page, {"server_args": {_STEPS: steps}})
        while "not idle" in answer.text and time.monotonic() < deadline:
            time.sleep(0.1)
            answer = self._send("POST", page, {"server_args": {_STEPS: steps}})
        try:
            told = answer.json()
        except ValueError:
            told = None
        replicas = told if isinstance(told, list) and told else [told]
        for each in replicas:
            if not isinstance(each, dict):  # SGLang's own answer is a list of booleans
                message = f"it cannot switch, {page} answered {_short(answer.text)}"
            elif each.get("updated") is not True or answer.status != 200:
                message = str(each.get("reason") or _short(answer.text))
            elif each.get(_STEPS) != steps:
                message = f"it says that it has {each.get(_STEPS)}"
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
        """With the keys. Raises NoAnswerError."""
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
