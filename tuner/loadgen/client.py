"""The load client: streaming requests, in a closed loop or at a rate, up to 512 at a time."""

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from tuner.core.errors import EngineFailure, Failure
from tuner.core.secrets import hidden
from tuner.loadgen.auth import NO_KEYS, Keys
from tuner.loadgen.http_connection import ConnectionFailedError, Connections, RefusedError
from tuner.loadgen.stream_parser import (
    BadStreamError,
    ParseEvent,
    TokenStream,
    parse_generate_event,
)
from tuner.metrics.samples import Request, RequestSample, Window

_ERROR_CHARS = 330
_CONNECT_S = 5.0

Kept = Literal["nothing", "ids", "ids and text"]
"""What stays of an answer: 4 bytes a token for its ids, and about as much for its text."""


@dataclass(frozen=True)
class GenerationApi:
    """How a server is asked for a streamed answer, and how its events are read."""

    path: str
    body: "Callable[[Request, Load], Mapping[str, Any]]"
    """The JSON body of a request."""
    parse_event: ParseEvent


def _generate_body(request: Request, load: "Load") -> dict[str, Any]:
    prompt: dict[str, Any] = (
        {"input_ids": request.input_ids}
        if request.input_ids is not None
        else {"text": request.text}
    )
    sampling = {
        "max_new_tokens": load.output_tokens,
        "temperature": load.temperature,
        "ignore_eos": load.ignore_eos,
    }
    return {**prompt, "sampling_params": sampling, "stream": True}


GENERATE = GenerationApi("/generate", _generate_body, parse_generate_event)
"""SGLang's own route."""


@dataclass(frozen=True)
class Load:
    """How a window's requests are sent."""

    concurrency: int
    """Requests held open at a time; each worker sends its next one when the last has ended, of one
    conversation after the other."""
    output_tokens: int
    temperature: float = 0.0
    ignore_eos: bool = True
    """Every request has `output_tokens` tokens; a shorter answer counts as cut short."""
    request_timeout_s: float = 300.0
    """Seconds without a new token after which a request is given up."""
    keep: Kept = "nothing"
    request_rate: float | None = None
    """Conversations begun in a second, at the times of `arrivals`; those that come while
    `concurrency` of them are open wait, and their waiting is in `RequestSample.due`. None: the
    closed loop."""
    seed: int = 0
    """Of the arrivals."""
    keys: Keys = NO_KEYS
    """What the server wants of requests."""
    api: GenerationApi = GENERATE


_WATCH_EVERY_S = 0.5


def run_window(url: str, requests: Sequence[Request], load: Load) -> Window:
    """Send `requests` to the server at `url` and return what came back, in the order given.

    Failed requests are samples too. After one that timed out, or `concurrency + 2` failures in a
    row, nothing more is sent and `Window.stopped` says why: a dead server costs one timeout.
    KeyboardInterrupt passes through. Not callable from inside a running event loop.
    """
    return asyncio.run(_Window(url, requests, load).run())


_Conversation = list[tuple[int, Request, bytes]]
"""Requests with their places and bodies, each sent when the one before it has ended."""


class _Window:
    """A window while it runs. Workers share the iterator of what is to be sent."""

    def __init__(self, url: str, requests: Sequence[Request], load: Load) -> None:
        self._url = url.rstrip("/") + load.api.path
        self._load = load
        # A worker takes a whole conversation: its turns come one after the other. Bodies are made
        # beforehand, so that encoding a long prompt is no part of its TTFT.
        self._count = len(requests)
        self._conversations = _conversations(requests, load)
        self._to_send: Iterator[_Conversation] = iter(self._conversations)
        self._samples: dict[int, RequestSample] = {}
        self._failures_in_a_row = 0
        self._stop: str | None = None
        self._stopped = asyncio.Event()
        self._began: float | None = None
        self._stood_s = 0.0

    async def run(self) -> Window:
        at_once = min(self._load.concurrency, len(self._conversations))
        with closing(Connections(self._url, self._load.keys.headers())) as connections:
            await connections.open(at_once, min(_CONNECT_S, self._load.request_timeout_s))
            cpu_began = time.thread_time()
            watch = asyncio.create_task(self._watch())
            async with asyncio.TaskGroup() as workers:
                if self._load.request_rate is not None:
                    await self._arrive(connections, workers, self._load.request_rate)
                else:
                    for _ in range(at_once):
                        workers.create_task(self._worker(connections))
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
            cpu_s = time.thread_time() - cpu_began
        samples = tuple(self._samples[index] for index in sorted(self._samples))
        return Window(
            concurrency=self._load.concurrency,
            wall_s=round(max((sample.ended for sample in samples), default=0.0), 6),
            client_cpu_s=cpu_s,
            samples=samples,
            stopped=self._stop if len(samples) < self._count else None,
            stood_s=self._stood_s,
        )

    async def _watch(self) -> None:
        """See how long this loop does not come to what is due."""
        while True:
            slept = time.monotonic()
            try:
                await asyncio.sleep(_WATCH_EVERY_S)
            finally:
                late = time.monotonic() - slept - _WATCH_EVERY_S
                self._stood_s = max(self._stood_s, late)

    async def _worker(self, connections: Connections) -> None:
        for conversation in self._to_send:
            if self._stop is None:
                await self._talk(connections, conversation)

    async def _talk(
        self, connections: Connections, conversation: _Conversation, due: float | None = None
    ) -> None:
        """A conversation, turn by turn; what is left of it is not sent once the window stops."""
        for index, request, body in conversation:
            sample = await self._send(connections, request, body, due)
            self._samples[index] = sample
            self._judge(sample)
            if self._stop is not None:
                return
            due = None  # a later turn comes when the one before it has been answered

    async def _arrive(
        self, connections: Connections, workers: asyncio.TaskGroup, rate: float
    ) -> None:
        """Begin conversations when they are due, whether or not earlier ones have ended."""
        open_ones = asyncio.Semaphore(self._load.concurrency)

        async def one(conversation: _Conversation, due: float) -> None:
            async with open_ones:
                if self._stop is None:
                    await self._talk(connections, conversation, due)

        began = self._began = time.perf_counter()
        times = arrivals(len(self._conversations), rate, self._load.seed)
        for conversation, due in zip(self._conversations, times, strict=True):
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, began + due - time.perf_counter())):
                    await self._stopped.wait()
            if self._stop is not None:
                return
            workers.create_task(one(conversation, due))

    def _judge(self, sample: RequestSample) -> None:
        """Decide whether it is any use to go on."""
        if sample.error is None:
            self._failures_in_a_row = 0
            return
        self._failures_in_a_row += 1
        if self._stop is not None:
            return
        if sample.timed_out:
            self._stop = f"a request timed out: {sample.error}"
        elif self._failures_in_a_row >= self._load.concurrency + 2:
            self._stop = f"{self._failures_in_a_row} requests in a row failed: {sample.error}"
        if self._stop is not None:
            self._stopped.set()

    async def _send(
        self,
        connections: Connections,
        request: Request,
        body: bytes,
        due: float | None,
    ) -> RequestSample:
        stream, error, timed_out = TokenStream(self._load.api.parse_event), None, False
        sent = time.perf_counter()
        began = self._began = sent if self._began is None else self._began
        try:
            await connections.post(body, stream.feed, self._load.request_timeout_s)
            stream.finish(time.perf_counter())
            error = _what_is_missing(stream, self._load)
        except TimeoutError:
            error, timed_out = _no_token(stream, self._load), True
        except BadStreamError as failure:
            error = f"{failure} (after {stream.tokens} tokens)"
        except RefusedError as failure:
            words = " ".join(failure.body.decode(errors="replace").split())
            error = f"the server answered HTTP {failure.status}: {hidden(words)}"
            error = error[:_ERROR_CHARS]
        except ConnectionFailedError as failure:
            error = f"the connection failed after {stream.tokens} tokens: {failure}"
        return RequestSample(
            prompt_id=request.prompt_id,
            kind=request.kind,
            sent=round(sent - began, 6),
            due=None if due is None else round(due, 6),
            chunk_times=tuple(round(at - began, 6) for at in stream.chunk_times),
            chunk_tokens=tuple(stream.chunk_tokens),
            ended=round(time.perf_counter() - began, 6),
            finish_reason=stream.finish_reason,
            error=None if error is None else hidden(error),
            timed_out=timed_out,
            prompt_tokens=stream.prompt_tokens,
            cached_tokens=stream.cached_tokens,
            engine_tokens=stream.engine_tokens,
            requested_tokens=self._load.output_tokens,
            spec=stream.spec,
            engine_figures=stream.engine_figures,
            output_ids=None if self._load.keep == "nothing" else stream.output_ids,
            text=stream.text if self._load.keep == "ids and text" else None,
        )


def _conversations(requests: Sequence[Request], load: Load) -> list[_Conversation]:
    found: list[_Conversation] = []
    for index, request in enumerate(requests):
        if not (request.follows and found):
            found.append([])
        body = json.dumps(load.api.body(request, load)).encode()
        found[-1].append((index, request, body))
    return found


def _what_is_missing(stream: TokenStream, load: Load) -> str | None:
    """Why an answer that was read to its end is not a complete one; None where it is."""
    got = f"{stream.tokens} of {load.output_tokens} tokens"
    reason = stream.finish_reason
    if stream.abort_message is not None:
        return f"the server aborted the request after {got}: {stream.abort_message}"
    if reason is None:
        return f"the stream ended after {got} without a finish reason"
    # Without ignore_eos a short answer is fine, except where the server says that it ran out of
    # length before the length asked for.
    must_be_full = load.ignore_eos or reason == "length" or stream.tokens == 0
    if must_be_full and stream.tokens < load.output_tokens:
        return f"the answer was cut short at {got} (finish reason {reason})"
    return None


def _no_token(stream: TokenStream, load: Load) -> str:
    return (
        f"no new token came for {load.request_timeout_s:g} s "
        f"after {stream.tokens} of {load.output_tokens} tokens"
    )


def arrivals(count: int, rate: float, seed: int) -> list[float]:
    """Seconds from the first of `count` arrivals to each, ascending: a Poisson process of `rate`
    a second.

    The same for equal arguments on every machine. Another rate is the same pattern, faster or
    slower, so that levels differ by their load and not by their luck.
    """
    draw = random.Random(f"arrivals {seed}")
    gaps = [draw.expovariate(1.0) for _ in range(count - 1)]
    return [at / rate for at in accumulate(gaps, initial=0.0)][:count]


def judge(window: Window, sent: int) -> None:
    """Raises EngineFailure where the window is no measurement; single failures stay in it."""
    failed = [sample for sample in window.samples if sample.error is not None]
    hung = sum(sample.timed_out for sample in window.samples)
    if hung:
        first = next(sample.error for sample in failed if sample.timed_out)
        raise EngineFailure(
            Failure.HANG, f"{hung} of {sent} requests timed out (timeouts.request): {first}"
        )
    if failed and (len(failed) == len(window.samples) or window.stopped is not None):
        message = f"{len(failed)} of {sent} requests failed: {failed[0].error}"
        raise EngineFailure(Failure.CLIENT, message)


def first_cause(first: EngineFailure, last: EngineFailure) -> EngineFailure:
    """Of a server that is not launched anew: what the second try finds is what the first left."""
    message = f"{first.message}; tried again: {last.message}"
    return EngineFailure(first.label, message, first.log_tail or last.log_tail)


def beside_others(failure: EngineFailure | None, crowded: Sequence[str]) -> EngineFailure | None:
    """The same failure; of memory that ran out also who else had some before the launch."""
    if failure is None or failure.label is not Failure.OOM or not crowded:
        return failure
    message = f"{failure.message}; before the launch {', '.join(crowded)}"
    return EngineFailure(failure.label, message, failure.log_tail)


def count_outcome(failure: EngineFailure | None) -> Literal["ok", "infeasible", "failed"]:
    if failure is None:
        return "ok"
    return "infeasible" if failure.label.is_configs_own else "failed"
