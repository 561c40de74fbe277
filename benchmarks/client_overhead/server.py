"""A server that costs next to nothing: it streams answers that were rendered beforehand.

    python -m benchmarks.client_overhead.server --requests N --tokens T [--pace-ms P]

It speaks SGLang's /generate (each event repeats text and ids from the start, as SGLang does unless
it has --incremental-streaming-output; with `--incremental` only what is new) and OpenAI's
/v1/completions and /v1/chat/completions. Every answer has T tokens, one an event, whatever the
request asks for. Without a pace events follow as soon as the connection takes them, `--burst` in a
write; with one, the first comes `--ttft-ms` after the request and the others every P ms, one event
a write.

Standard output has one JSON line for `{"port"}`, for `{"begun"}` at the first request that counts
(those before it are `--warmups`) and for `{"ended"}` when every answer was read to its end, all in
seconds of CLOCK_MONOTONIC. An answer was read when its connection brings the next request or is
closed; the last answers ask for that, with `Connection: close`. SIGTERM ends it.
"""

import argparse
import asyncio
import heapq
import json
import signal
import sys
import time
from typing import Any

import uvloop

END = b"0\r\n\r\n"
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n"
)
CLOSE = b"connection: close\r\n"


def word(token: int) -> str:
    """The text of a token: a word each, so that other clients' tokenizers count the same."""
    return f" w{token % 1000}"


def generate(tokens: int, incremental: bool) -> list[bytes]:
    """/generate as SGLang 0.5.23 words it."""
    ids = [1000 + index * 7 % 30000 for index in range(tokens)]
    text = [word(index * 7) for index in range(tokens)]
    found = []
    for count in range(1, tokens + 1):
        first = count - 1 if incremental else 0
        reason = {"type": "length", "length": tokens} if count == tokens else None
        meta = {
            "id": "5f0c6b3e9d1a4b0f8a5e7c2d9b4f6a10",
            "finish_reason": reason,
            "prompt_tokens": 16,
            "weight_version": "default",
            "total_retractions": 0,
            "completion_tokens": count,
            "cached_tokens": 0,
        }
        event = {"text": "".join(text[first:count]), "output_ids": ids[first:count]}
        found.append({**event, "meta_info": meta})
    return events(found)


def completions(tokens: int, tells_usage: bool) -> list[bytes]:
    """/v1/completions; the usage, where asked for, in an event of its own at the end."""
    base = {"id": "cmpl-5f0c6b3e9d1a4b0f", "object": "text_completion", "created": 1780000000}
    base["model"] = "played"
    found: list[dict[str, Any]] = []
    for index in range(tokens):
        reason = "length" if index == tokens - 1 else None
        choice = {"index": 0, "text": word(index * 7), "logprobs": None, "finish_reason": reason}
        found.append({**base, "choices": [choice], "usage": None})
    last = {**base, "choices": [], "usage": usage(tokens)}
    return events([*found, last] if tells_usage else found)


def chat(tokens: int, tells_usage: bool) -> list[bytes]:
    """/v1/chat/completions; the usage as in `completions`."""
    base = {"id": "chatcmpl-5f0c6b3e9d1a4b0f", "object": "chat.completion.chunk"}
    base |= {"created": 1780000000, "model": "played"}
    found: list[dict[str, Any]] = []
    for index in range(tokens):
        delta = {"role": "assistant"} if index == 0 else {}
        reason = "length" if index == tokens - 1 else None
        choice = {"index": 0, "delta": {**delta, "content": word(index * 7)}, "logprobs": None}
        found.append({**base, "choices": [{**choice, "finish_reason": reason}], "usage": None})
    last = {**base, "choices": [], "usage": usage(tokens)}
    return events([*found, last] if tells_usage else found)


def usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 16, "completion_tokens": tokens, "total_tokens": 16 + tokens}


def events(found: list[dict[str, Any]]) -> list[bytes]:
    """Each event as one chunk of the body; what has no token and the end come with the last."""
    lines = [json.dumps(each, separators=(",", ":")).encode() for each in found]
    chunks = [framed(b"data: " + line + b"\n\n") for line in lines]
    if found[-1].get("choices") == []:  # the usage
        chunks[-2:] = [chunks[-2] + chunks[-1]]
    chunks[-1] += framed(b"data: [DONE]\n\n") + END
    return chunks


def framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Play:
    """What all connections share: the answers, the pace, and the window."""

    def __init__(self, wanted: argparse.Namespace) -> None:
        self.answers: dict[tuple[bytes, bool], list[bytes]] = {}
        """By route, and by whether the request asks for the usage."""
        for asked in (False, True):
            self.answers[b"/generate", asked] = generate(wanted.tokens, wanted.incremental)
            self.answers[b"/v1/completions", asked] = completions(wanted.tokens, asked)
            self.answers[b"/v1/chat/completions", asked] = chat(wanted.tokens, asked)
        self.pace, self.ttft = wanted.pace_ms / 1000, wanted.ttft_ms / 1000
        self.burst = wanted.burst
        self.warmups, self.requests, self.last = wanted.warmups, wanted.requests, wanted.last
        self.came = self.read = 0
        self.waits: list[float] = []
        """Seconds from a request's arrival to its first event's write."""
        self.takes: list[float] = []
        """Seconds from a request's arrival to its last event's write."""
        self.open: set[Connection] = set()
        self.due: list[tuple[float, int, Connection]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._turn: asyncio.Handle | None = None
        """The next `_flood`."""
        self._loop = asyncio.get_running_loop()

    def begin(self, connection: "Connection", now: float) -> bool:
        """A request came; True where its connection is to be closed after the answer."""
        self.came += 1
        if self.came == self.warmups + 1:
            say(begun=now)
        if self.pace:
            heapq.heappush(self.due, (now + self.ttft, self.came, connection))
            self._arm()
        else:
            self.open.add(connection)
            self.flood()
        return self.came > self.warmups + self.requests - self.last

    def ended(self) -> None:
        """An answer was read to its end."""
        self.read += 1
        if self.read == self.warmups + self.requests:
            waits, takes = self.waits[self.warmups :], self.takes[self.warmups :]
            mean_wait, mean_take = sum(waits) / len(waits), sum(takes) / len(takes)
            say(ended=time.monotonic(), wait_s=mean_wait, take_s=mean_take, requests=len(takes))

    def flood(self) -> None:
        """Go on, if not about to: a request came, or a connection takes data again."""
        if self._turn is None and any(not connection.paused for connection in self.open):
            self._turn = self._loop.call_soon(self._flood)

    def _flood(self) -> None:
        """A burst for each connection that takes it, then the loop's turn to read."""
        self._turn = None
        for connection in list(self.open):
            if not connection.paused and not connection.write(self.burst):
                self.open.discard(connection)
        self.flood()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.0, self.due[0][0] - time.monotonic()), self._tick)

    def _tick(self) -> None:
        now = time.monotonic() + 0.0002
        while self.due and self.due[0][0] <= now:
            at, number, connection = heapq.heappop(self.due)
            if connection.write(1):
                heapq.heappush(self.due, (at + self.pace, number, connection))
        self._timer = None
        if self.due:
            self._arm()


class Connection(asyncio.Protocol):
    """One connection, one answer at a time."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self._data = b""
        self._at, self._chunks = 0, [b""]
        self._unread = False
        self._came = 0.0
        self.paused = False

    def connection_made(self, transport: Any) -> None:  # uvloop's is no asyncio.Transport
        self._transport = transport

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self._play.flood()

    def connection_lost(self, _: Exception | None) -> None:
        self._play.open.discard(self)
        self._was_read()

    def _was_read(self) -> None:
        if self._unread:
            self._unread = False
            self._play.ended()

    def data_received(self, data: bytes) -> None:
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._data[:end].lower()
        length = 0
        for line in head.split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line[15:])
        if len(self._data) < end + 4 + length:
            return
        path = self._data.split(b" ", 2)[1].split(b"?")[0]
        asks_usage = b"include_usage" in self._data
        self._data = self._data[end + 4 + length :]
        self._was_read()
        chunks = self._play.answers.get((path, asks_usage))
        if chunks is None:
            self._transport.write(plain(path))
            return
        self._came = time.monotonic()
        closes = self._play.begin(self, self._came)
        self._chunks, self._at = chunks, 0
        # As uvicorn does: the head is sent when the answer begins, not with its first token.
        self._transport.write(HEAD + (CLOSE if closes else b"") + b"\r\n")

    def write(self, burst: int) -> bool:
        """The next events; False when they were the last."""
        if self._transport.is_closing():
            return False
        first, self._at = self._at, self._at + burst
        if burst == 1:
            self._transport.write(self._chunks[first])
        else:
            self._transport.write(b"".join(self._chunks[first : self._at]))
        if first == 0:
            self._play.waits.append(time.monotonic() - self._came)
        if self._at < len(self._chunks):
            return True
        self._play.takes.append(time.monotonic() - self._came)
        self._unread = True
        return False


def plain(path: bytes) -> bytes:
    """What clients ask before they begin: health and the model's name."""
    said: dict[str, Any] = {"status": "ok", "model_path": "played", "internal_states": [{}]}
    if path == b"/v1/models":
        said = {"object": "list", "data": [{"id": "played", "object": "model", "root": "played"}]}
    body = json.dumps(said).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


def say(**words: float) -> None:
    print(json.dumps(words), flush=True)


async def serve(wanted: argparse.Namespace) -> None:
    loop, play = asyncio.get_running_loop(), Play(wanted)
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    server = await loop.create_server(lambda: Connection(play), "127.0.0.1", 0, backlog=1024)
    say(port=server.sockets[0].getsockname()[1])
    await stop.wait()


def main() -> None:
    reading = argparse.ArgumentParser(allow_abbrev=False)
    reading.add_argument("--requests", type=int, required=True)
    reading.add_argument("--tokens", type=int, required=True)
    reading.add_argument("--warmups", type=int, default=0)
    reading.add_argument("--last", type=int, default=1, help="answers that end their connection")
    reading.add_argument("--pace-ms", type=float, default=0.0, help="0: as fast as it goes")
    reading.add_argument("--ttft-ms", type=float, default=0.0)
    reading.add_argument("--burst", type=int, default=16, help="events in a write, without a pace")
    reading.add_argument("--incremental", action="store_true")
    uvloop.run(serve(reading.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
