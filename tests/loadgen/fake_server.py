"""A real HTTP server in a thread that answers /generate in whatever way a prompt's text names.

`FakeServer` is a context manager with `url`, `bodies` (every request's JSON, in order of arrival)
and `most_open` (the most requests that were open at a time).
"""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import web

FINAL_SPEC = {
    "spec_accept_rate": 0.5,
    "spec_accept_length": 2.25,
    "spec_num_correct_drafts": 4,
    "spec_num_proposed_drafts": 8,
    "spec_accepted_drafts": 99,  # the newer spelling wins where a release sends both
    "spec_verify_ct": 4,
    "spec_correct_drafts_histogram": [1, 2, 1],
}


def event(tokens: int, reason: Any = None, **meta: Any) -> bytes:
    """One server-sent event with a cumulative token count."""
    info = {"prompt_tokens": 7, "completion_tokens": tokens, "finish_reason": reason, **meta}
    return b"data: " + json.dumps({"text": "é" * tokens, "meta_info": info}).encode() + b"\n\n"


def length(tokens: int) -> dict[str, Any]:
    """SGLang's finish reason of an answer that has all its tokens."""
    return {"type": "length", "length": tokens}


DONE = b"data: [DONE]\n\n"


class FakeServer:
    """Serves from its own thread until the `with` block ends."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.connections: set[Any] = set()
        self.most_open = 0
        self._open = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> "FakeServer":
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application()
        app.router.add_post("/generate", self._generate)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.connections.add(request.transport)
        self._open += 1
        self.most_open = max(self.most_open, self._open)
        try:
            wanted = body["sampling_params"]["max_new_tokens"]
            text = body.get("text") or "complete"
            if text == "500":
                return web.Response(status=500, text='{"error": "no memory left"}')
            answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await answer.prepare(request)
            await BEHAVIOURS[text](answer, wanted)
            if text == "abrupt":
                assert request.transport is not None
                request.transport.abort()
            return answer
        finally:
            self._open -= 1


async def _write(answer: web.StreamResponse, pieces: Sequence[bytes]) -> None:
    for piece in pieces:
        await answer.write(piece)
        await asyncio.sleep(0.002)


async def _complete(answer: web.StreamResponse, wanted: int) -> None:
    events = [event(n) for n in range(1, wanted)]
    await _write(answer, [*events, event(wanted, length(wanted)), DONE])


async def _split(answer: web.StreamResponse, wanted: int) -> None:
    """Every event in three reads, the second of which cuts a UTF-8 sequence."""
    for data in [event(1), event(3), event(wanted, length(wanted)), DONE]:
        cut = max(data.find("é".encode()) + 1, 2)
        await _write(answer, [data[:1], data[1:cut], data[cut:]])


async def _together(answer: web.StreamResponse, wanted: int) -> None:
    """Several events, a comment and CRLF line ends in one read; a repeat brings nothing."""
    middle = event(3).replace(b"\n", b"\r\n") + b": still here\n\n" + event(3)
    await _write(answer, [event(1) + middle + event(wanted, length(wanted)) + DONE])


async def _speculative(answer: web.StreamResponse, wanted: int) -> None:
    last = event(wanted, length(wanted), **FINAL_SPEC)
    await _write(answer, [event(1), event(2), event(4), event(7), last, DONE])


async def _accept_token_num(answer: web.StreamResponse, wanted: int) -> None:
    """0.5.8: older names, no histogram."""
    old = {"spec_verify_ct": 3, "spec_accept_token_num": 2, "spec_draft_token_num": 6}
    await _write(answer, [event(1), event(wanted, length(wanted), **old), DONE])


async def _ids_only(answer: web.StreamResponse, wanted: int) -> None:
    for count, reason in ((1, None), (4, None), (wanted, length(wanted))):
        body = {"output_ids": [5] * count, "meta_info": {"finish_reason": reason}}
        await answer.write(b"data: " + json.dumps(body).encode() + b"\n\n")


async def _no_finish(answer: web.StreamResponse, wanted: int) -> None:
    await _write(answer, [event(1), event(2), DONE])


async def _stops(answer: web.StreamResponse, wanted: int) -> None:
    await _write(answer, [event(1), event(3, {"type": "stop", "matched": 2}), DONE])


async def _short_length(answer: web.StreamResponse, wanted: int) -> None:
    await _write(answer, [event(1), event(3, length(3)), DONE])


async def _aborts(answer: web.StreamResponse, wanted: int) -> None:
    reason = {"type": "abort", "message": "Out of memory"}
    await _write(answer, [event(1), event(2, reason), DONE])


async def _garbage(answer: web.StreamResponse, wanted: int) -> None:
    await _write(answer, [event(1), b"data: {]\n\n", event(2)])


async def _truncated(answer: web.StreamResponse, wanted: int) -> None:
    await _write(answer, [event(1), event(2)[:30]])


async def _html(answer: web.StreamResponse, wanted: int) -> None:
    await _write(answer, [b"<html>bad gateway</html>"])


async def _endless(answer: web.StreamResponse, wanted: int) -> None:
    await _write(answer, [event(1), b"data: " + b"x" * 2**20, b"x" * 2**20, DONE])


async def _error_event(answer: web.StreamResponse, wanted: int) -> None:
    error = {"error": {"message": "Request too long", "code": 400}}
    await _write(answer, [b"data: " + json.dumps(error).encode() + b"\n\n", DONE])


async def _hang(answer: web.StreamResponse, wanted: int) -> None:
    """Two tokens, then signs of life without progress for ever."""
    await _write(answer, [event(1), event(2)])
    while True:
        await answer.write(b": ping\n\n")
        await answer.write(event(2))
        await asyncio.sleep(0.05)


async def _slow(answer: web.StreamResponse, wanted: int) -> None:
    """Longer as a whole than between any two tokens."""
    for count in range(1, wanted + 1):
        await asyncio.sleep(0.1)
        await answer.write(event(count, length(wanted) if count == wanted else None))


async def _less_in_the_end(answer: web.StreamResponse, wanted: int) -> None:
    await _write(answer, [event(1), event(wanted), event(wanted - 1, length(wanted)), DONE])


async def _abrupt(answer: web.StreamResponse, wanted: int) -> None:
    await _write(answer, [event(1), event(2)])


BEHAVIOURS: dict[str, Callable[[web.StreamResponse, int], Awaitable[None]]] = {
    "complete": _complete,
    "split": _split,
    "together": _together,
    "speculative": _speculative,
    "0.5.8": _accept_token_num,
    "ids only": _ids_only,
    "no finish": _no_finish,
    "stops": _stops,
    "short length": _short_length,
    "aborts": _aborts,
    "garbage": _garbage,
    "truncated": _truncated,
    "html": _html,
    "endless": _endless,
    "error event": _error_event,
    "hang": _hang,
    "slow": _slow,
    "less in the end": _less_in_the_end,
    "abrupt": _abrupt,
}
