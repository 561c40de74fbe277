"""One request and its whole answer, within a time and a size, whatever the server does.

A server that is not SGLang, or no longer quite: it may answer without end, a byte a second, with
headers that name no place or characters of no alphabet. Redirects are not followed, and neither a
proxy nor a .netrc has a business here.
"""

import asyncio
import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tuner.measure.connections import ConnectionFailedError, Connections, RefusedError

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
