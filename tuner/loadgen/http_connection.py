"""HTTP/1.1 for many streams at a time at the least cost: what arrives is handed on where it came.

A protocol on asyncio's transports, with llhttp (httptools) for the wire. Between the socket and
the one who reads lie no task, no queue and no copy but the body's own bytes.
"""

import asyncio
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

import httptools

MAX_IDLE_S = 3.0
"""A connection that rested longer is not used again: the server may be closing it. SGLang and
uvicorn close theirs after 5 s."""
ERROR_BODY_BYTES = 4096
HEAD_BYTES = 64 * 1024
"""In a row that are none of the body's: an answer's head, or what ends it. Servers take heads of 8
to 64 KiB themselves. llhttp's caller keeps a header that does not end, at a quadratic cost."""
BUFFER_BYTES = 256 * 1024

Feed = Callable[[bytes, float], Any]
"""Takes a piece of the body and the time of its arrival, by `time.perf_counter`."""


class ConnectionFailedError(Exception):
    """The connection did not come about, broke, or brought what is no HTTP."""


class RefusedError(Exception):
    """An HTTP status other than 200; `body` is the beginning of what came with it."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}")
        self.status, self.body = status, body


class Connections:
    """Connections to one URL, kept open between requests. Of one event loop."""

    def __init__(self, url: str, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        """`headers` come with each request, beside those that the client needs."""
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port or (443 if tls else 80)
        self._head = _head(parts, headers)
        self._tls = ssl.create_default_context() if tls else None
        self._idle: list[tuple[float, _Connection]] = []
        self._all: set[_Connection] = set()
        # One for all: what was read is handed on before the next read. asyncio's plain protocols
        # take 256 KiB of new memory for each read: 15 us instead of 3, more than all that follows.
        self._buffer = memoryview(bytearray(BUFFER_BYTES))

    async def post(self, body: bytes, feed: Feed, patience_s: float) -> None:
        """Send `body` and hand `feed` the answer's body as it arrives.

        `feed` returns whether there was progress; TimeoutError after `patience_s` without any.
        What `feed` raises ends the request and is raised here. Raises ConnectionFailedError and
        RefusedError.

        Where the server closes a connection that was open before, without a word of an answer, the
        request is sent once more on a new one: it closed what rested just when it was used again.
        """
        message = b"%s%d\r\n\r\n%s" % (self._head, len(body), body)
        if (connection := self._rested()) is not None:
            try:
                return await self._exchange(connection, message, feed, patience_s)
            except ConnectionFailedError:
                if not connection.closed_unanswered:
                    raise
        async with asyncio.timeout(patience_s):
            connection = await self._connect()
        return await self._exchange(connection, message, feed, patience_s)

    async def _exchange(
        self, connection: "_Connection", message: bytes, feed: Feed, patience_s: float
    ) -> None:
        try:
            await connection.exchange(message, feed, patience_s)
        except RefusedError:
            self._rest(connection)
            raise
        except BaseException:
            self._drop(connection)
            raise
        self._rest(connection)

    def _rest(self, connection: "_Connection") -> None:
        if connection.reusable:
            self._idle.append((time.perf_counter(), connection))
        else:
            self._drop(connection)

    async def open(self, count: int, patience_s: float) -> None:
        """Connect so often beforehand, so that no request's time has a handshake in it.

        One that fails is not told of here: the request that needs it will fail the same way.
        """
        opened = await asyncio.gather(
            *(asyncio.wait_for(self._connect(), patience_s) for _ in range(count)),
            return_exceptions=True,
        )
        now = time.perf_counter()
        for connection in opened:
            if isinstance(connection, _Connection):
                connection.reusable = True
                self._idle.append((now, connection))

    def close(self) -> None:
        """Close them all."""
        for connection in list(self._all):
            self._drop(connection)

    def _rested(self) -> "_Connection | None":
        while self._idle:
            since, connection = self._idle.pop()
            if connection.reusable and time.perf_counter() - since < MAX_IDLE_S:
                return connection
            self._drop(connection)
        return None

    async def _connect(self) -> "_Connection":
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: _Connection(loop, self._buffer), self._host, self._port, ssl=self._tls
            )
        except (OSError, ValueError) as failure:
            raise ConnectionFailedError(f"cannot connect ({failure})") from failure
        self._all.add(connection)
        return connection

    def _drop(self, connection: "_Connection") -> None:
        self._all.discard(connection)
        connection.close()


def _head(parts: SplitResult, headers: Mapping[str, str]) -> bytes:
    """Return the start of each request, up to the value of its Content-Length."""
    who, _, host = parts.netloc.rpartition("@")
    words = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~") + (
        f"?{parts.query}" * bool(parts.query)
    )
    lines = [f"POST {words} HTTP/1.1", f"Host: {host if host.isascii() else parts.hostname}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if who and "Authorization" not in headers:
        lines.append(f"Authorization: Basic {b64encode(unquote(who).encode()).decode()}")
    lines += ["Content-Type: application/json", "Accept: text/event-stream"]
    lines += ["Accept-Encoding: identity", "Content-Length: "]
    return "\r\n".join(lines).encode("ascii", "replace")


class _Connection(asyncio.BufferedProtocol):
    """One connection, one exchange at a time. The callbacks named `on_` are llhttp's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, buffer: memoryview) -> None:
        self._loop, self._buffer = loop, buffer
        self._transport: Any = None
        self._parser: Any = None
        self._done: asyncio.Future[None] | None = None
        self._feed: Feed = _nothing
        self._status, self._refusal, self._has_length = 0, b"", False
        self._bodiless = 0
        self._now = self._progress = 0.0
        self._lost: str | None = None
        self._answered = False
        self.reusable = False

    @property
    def closed_unanswered(self) -> bool:
        """It is closed, and nothing came since the last request was sent."""
        return self._lost is not None and not self._answered

    async def exchange(self, message: bytes, feed: Feed, patience_s: float) -> None:
        """See `Connections.post`."""
        self._answered = False
        if self._lost is not None:
            raise ConnectionFailedError(self._lost)
        self._parser = httptools.HttpResponseParser(self)
        self._feed = feed
        self._status, self._refusal, self._has_length = 0, b"", False
        self._bodiless = 0
        self._progress = time.perf_counter()
        self.reusable = False
        done = self._done = self._loop.create_future()
        self._transport.write(message)
        try:
            # One look when patience may have run out costs less than a timer set anew each token.
            while not done.done():
                left = self._progress + patience_s - time.perf_counter()
                if left <= 0:
                    raise TimeoutError
                await asyncio.wait((done,), timeout=left)
            done.result()
        finally:
            done.cancel()
            self._feed = _nothing

    def close(self) -> None:
        """Close it at once."""
        self.reusable = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, _: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        self._now, self._answered = time.perf_counter(), True
        if self._done is None or self._done.done():  # more than was asked for
            self.reusable = False
            return
        self._bodiless += size
        try:
            self._parser.feed_data(self._buffer[:size])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as failure:
            self._end(ConnectionFailedError(f"the server sent what is not HTTP: {failure}"))
        if self._bodiless > HEAD_BYTES:
            what = f"more than {HEAD_BYTES >> 10} KiB of HTTP headers"
            self._end(ConnectionFailedError(f"the server sent {what}, longer than any answer's"))

    def connection_lost(self, failure: Exception | None) -> None:
        self.reusable = False
        if failure is not None:
            self._lost = str(failure) or type(failure).__name__
        elif self._status:
            self._lost = "the server closed it in the middle of the answer"
        else:
            self._lost = "the server closed it before it answered"
        whole = failure is None and self._status and not self._has_length
        self._end(None if whole else ConnectionFailedError(self._lost))

    def on_header(self, name: bytes, _: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._has_length = True

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._bodiless = 0
        if self._status != 200:
            self._refusal += body
            if len(self._refusal) >= ERROR_BODY_BYTES:
                self._end(None)
            return
        try:
            if self._feed(body, self._now):
                self._progress = self._now
        except Exception as failure:
            self._end(failure)

    def on_message_complete(self) -> None:
        if self._done is None or self._done.done():  # a second answer to one request
            self.reusable = False
        elif self._status >= 200:
            self.reusable = self._parser.should_keep_alive()
            self._end(None)

    def _end(self, failure: Exception | None) -> None:
        done, self._feed = self._done, _nothing
        if done is None or done.done():
            return
        if failure is None and self._status != 200:
            failure = RefusedError(self._status, self._refusal)
        if failure is None:
            done.set_result(None)
        else:
            done.set_exception(failure)


def _nothing(_: bytes, __: float) -> bool:
    return False
