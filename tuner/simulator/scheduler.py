"""Continuous batching in lock-step cycles on absolute deadlines."""

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

from tuner.sglang.releases import Release
from tuner.simulator.acceptance import plan_cycles
from tuner.simulator.arguments import Arguments
from tuner.simulator.conversation import ConversationTurn, Turns, word
from tuner.simulator.log import log
from tuner.simulator.performance import Speculation


@dataclass(eq=False)
class RunningRequest:
    """One request from arrival to end. `news` is set whenever there is something to send."""

    rid: str
    kind: str
    prompt_tokens: int
    prompt_key: int
    """Equal for equal prompts: the same prompt gives the same tokens."""
    length: int
    """Completion tokens at which it ends."""
    finish_reason: dict[str, object]
    cached_tokens: int = 0
    tokens: int = 0
    text: str = ""
    output_ids: str = ""
    """Comma-separated, ready for JSON."""
    verify_ct: int = 0
    correct_drafts: int = 0
    histogram: list[int] = field(default_factory=list)
    finished: bool = False
    aborted: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)
    sent_tokens: int = 0
    plan: Sequence[int] = ()
    turn: ConversationTurn | None = None
    """Where its answer is another one than the model's; None: nowhere."""

    def emit(self, count: int) -> None:
        """Add `count` tokens, or as many as there is room for."""
        first = self.tokens
        self.tokens = min(self.length, first + count)
        ends = self.finish_reason.get("type") == "stop"
        last = self.length - 1 if ends else None
        drawn = [word(self.prompt_key, i, self.turn, last) for i in range(first, self.tokens)]
        self.text += "".join(text for text, _ in drawn)
        ids = ", ".join(number for _, number in drawn)
        self.output_ids = f"{self.output_ids}, {ids}" if first else ids
        self.finished = self.tokens >= self.length

    def verify(self) -> None:
        """One cycle with speculation: count what was accepted, truncated or not, and emit it."""
        accepted = self.plan[self.verify_ct] if self.verify_ct < len(self.plan) else 0
        self.verify_ct += 1
        self.correct_drafts += accepted
        self.histogram.extend([0] * (accepted + 1 - len(self.histogram)))
        self.histogram[accepted] += 1
        self.emit(accepted + 1)


@dataclass
class SpecTotals:
    """Verifies and correct drafts of all requests, for /server_info and the log."""

    verifies: int = 0
    correct: int = 0

    @property
    def accept_length(self) -> float | None:
        return 1 + self.correct / self.verifies if self.verifies else None

    def accept_rate(self, speculation: Speculation, release: Release) -> float:
        """As the release's log line and gauge have it: up to 0.5.10 the bonus token counts."""
        if release.at_least("0.5.11"):
            return self.correct / (self.verifies * max(1, speculation.draft_tokens - 1))
        return (self.correct + self.verifies) / (self.verifies * speculation.draft_tokens)


class Scheduler:
    """Runs requests in cycles; every running request gets its tokens at the same deadline.

    Prefill goes first, at cycle boundaries, and holds decoding up, as in SGLang. Deadlines are
    absolute: a late wake-up does not delay the next cycle.
    """

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments
        self._performance = arguments.performance
        self._spec = arguments.performance.speculation
        self._noise = random.Random(f"{arguments.server_args['random_seed']}")
        self._turns = Turns(arguments.faults, f"{self._spec}")
        self._waiting: deque[RunningRequest] = deque()
        self._running: list[RunningRequest] = []
        self._wake = asyncio.Event()
        self._deadline = 0.0
        self._interval = max(1, arguments.server_args["stream_interval"])
        self._log_interval = max(1, arguments.server_args["decode_log_interval"])
        self._seen: set[int] = set()
        self._since_log = SpecTotals()
        self._tokens_since_log = 0
        self._cycles_since_log = 0
        self._last_log = monotonic()
        self._generated = 0
        self.hung = False
        self.is_stuck = False
        """A rank on another host is lost: the next forward never ends."""
        self.counts_faults = False
        """True once the server is up: tokens of the warm-up do not count for faults."""
        self.totals = SpecTotals()
        """Folded in every decode_log_interval cycles, as SGLang does; the rest is not in yet."""
        self.last_gen_throughput = 0.0
        self.worst_lateness_s = 0.0
        """How late the latest cycle ended: the machine was too slow for the model's pace."""

    @property
    def generated(self) -> int:
        """Number of tokens since the server was up."""
        return self._generated

    @property
    def running_count(self) -> int:
        return len(self._running)

    @property
    def queue_count(self) -> int:
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        return not self._running and not self._waiting

    @property
    def speculation(self) -> Speculation | None:
        """The settings in effect now; the arguments have those of the launch."""
        return self._spec

    def pin(self, steps: int) -> None:
        """Continue with another chain length. Only while the scheduler is idle."""
        assert self._spec is not None and self.is_idle
        self._spec = replace(self._spec, steps=steps, draft_tokens=steps + 1)
        self._performance = replace(self._performance, speculation=self._spec)

    def submit(self, request: RunningRequest) -> None:
        """Queue a request. It starts at the next cycle boundary with room."""
        request.turn = self._turns.next()
        if self._spec is not None:
            chances = self._performance.conditional(request.kind)
            request.plan = plan_cycles(chances, request.length - 1)
        self._waiting.append(request)
        self._wake.set()

    def abort(self, rid: str | None) -> None:
        """End the request `rid`, or all for None, at the next cycle boundary."""
        for request in [*self._waiting, *self._running]:
            if rid is None or request.rid == rid:
                request.aborted = True

    def flush(self) -> bool:
        """Empty the cache and reset the counters. Returns False while requests run or wait."""
        if not self.is_idle:
            return False
        self._seen.clear()
        self.totals, self._since_log = SpecTotals(), SpecTotals()
        return True

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            if self.is_idle:
                self._wake.clear()
                await self._wake.wait()
                self._deadline = monotonic()
            self._drop_aborted()
            room = self._arguments.max_running_requests - len(self._running)
            if self._waiting and room > 0:
                await self._prefill(room)
            elif self._running:
                await self._decode()

    async def _sleep(self, milliseconds: float) -> None:
        sigma = self._performance.machine.noise
        noise = min(3.0, max(-3.0, self._noise.gauss(0.0, 1.0))) * sigma
        self._deadline += milliseconds * (1.0 + noise) / 1000
        await asyncio.sleep(max(0.0, self._deadline - monotonic()))
        self.worst_lateness_s = max(self.worst_lateness_s, monotonic() - self._deadline)

    def _drop_aborted(self) -> None:
        for request in [*self._waiting, *self._running]:
            if request.aborted:
                request.finished = True
                request.finish_reason = {"type": "abort", "message": "Aborted"}
                request.news.set()
        self._waiting = deque(r for r in self._waiting if not r.finished)
        self._running = [r for r in self._running if not r.finished]

    async def _prefill(self, room: int) -> None:
        budget = self._arguments.server_args["max_prefill_tokens"]
        batch: list[RunningRequest] = []
        tokens = 0
        while self._waiting and len(batch) < room and (not batch or tokens < budget):
            request = self._waiting.popleft()
            if not self._arguments.server_args["disable_radix_cache"]:
                if request.prompt_key in self._seen:
                    request.cached_tokens = request.prompt_tokens - 1
                self._seen.add(request.prompt_key)
            tokens += request.prompt_tokens - request.cached_tokens
            batch.append(request)
        log(
            f"Prefill batch, #new-seq: {len(batch)}, #new-token: {tokens}, "
            f"#cached-token: {sum(r.cached_tokens for r in batch)}, token usage: 0.00, "
            f"#running-req: {len(self._running)}, #queue-req: {len(self._waiting)}",
            0,
        )
        self._running += batch
        await self._sleep(self._performance.prefill_ms(tokens))
        for request in batch:
            request.emit(1)
        await self._deliver(batch, len(batch))

    async def _decode(self) -> None:
        batch = list(self._running)
        await self._sleep(self._performance.cycle(len(batch)).total_ms)
        before = sum(r.tokens for r in batch)
        if self._spec is None:
            for request in batch:
                request.emit(1)
        else:
            correct = sum(r.correct_drafts for r in batch)
            for request in batch:
                request.verify()
            self._since_log.verifies += len(batch)
            self._since_log.correct += sum(r.correct_drafts for r in batch) - correct
        emitted = sum(r.tokens for r in batch) - before
        self._tokens_since_log += emitted
        self._cycles_since_log += 1
        if self._cycles_since_log >= self._log_interval:
            self._log_decode()
        await self._deliver(batch, emitted)

    async def _deliver(self, batch: Sequence[RunningRequest], emitted: int) -> None:
        """Wake the handlers of the requests. Play the faults that count tokens."""
        await self._count_for_faults(emitted)
        if self.is_stuck:
            self.hung = True
            await asyncio.Event().wait()
        for request in batch:
            first = request.sent_tokens == 0
            if first or request.finished or request.tokens - request.sent_tokens >= self._interval:
                request.sent_tokens = request.tokens
                request.news.set()
        self._running = [r for r in self._running if not r.finished]

    async def _count_for_faults(self, emitted: int) -> None:
        if not self.counts_faults:
            return
        self._generated += emitted
        if self._arguments.faults.strike(self._generated, self._performance.tp):
            self.hung = True
            await asyncio.Event().wait()

    def _log_decode(self) -> None:
        now = monotonic()
        self.last_gen_throughput = self._tokens_since_log / max(1e-9, now - self._last_log)
        accept = ""
        if self._spec is not None:
            window = self._since_log
            rate = window.accept_rate(self._spec, self._arguments.release)
            accept = f"accept len: {window.accept_length:.2f}, accept rate: {rate:.2f}, "
            self.totals.verifies += window.verifies
            self.totals.correct += window.correct
            self._since_log = SpecTotals()
        held = sum(r.prompt_tokens + r.tokens for r in self._running)
        log(
            f"Decode batch, #running-req: {len(self._running)}, #token: {held}, "
            f"token usage: {held / self._performance.machine.token_capacity:.2f}, {accept}"
            f"cuda graph: True, gen throughput (token/s): {self.last_gen_throughput:.2f}, "
            f"#queue-req: {len(self._waiting)}",
            0,
        )
        self._last_log, self._tokens_since_log, self._cycles_since_log = now, 0, 0
