"""One streamed answer, from bytes to tokens and counts. Pure: no socket, no clock."""

import contextlib
import json
from array import array
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

from tuner.metrics.samples import SpecCounts

_FIELDS = (b":", b"event:", b"id:", b"retry:")
"""Lines of a server-sent event stream that carry no data; the first is a comment."""

# How orjson words an event that is not the last one. Inside a JSON string each quote has a
# backslash before it, so that no text of an answer can hold either.
_IDS = b'"output_ids":['
_MORE_COMES = b'"finish_reason":null'


class BadStreamError(Exception):
    """The stream holds something that is not an answer; the message is one sentence."""


class StreamEvent(NamedTuple):
    """One event of a streamed answer."""

    meta: Mapping[str, Any]
    """Counts so far and the reason of the end, by SGLang's names: `completion_tokens`,
    `prompt_tokens`, `cached_tokens`, `finish_reason`, `spec_verify_ct`."""
    output_ids: Any = None
    """The answer's token ids, all or the new ones. None: `completion_tokens` is the count."""
    text: Any = None
    """The answer, all or the new part."""


ParseEvent = Callable[[Any], StreamEvent]
"""Reads the JSON value of one event. Raises BadStreamError, without the event's text, if the
value is no part of an answer."""


def parse_generate_event(event: Any) -> StreamEvent:
    """Read an event of SGLang's /generate."""
    meta = event.get("meta_info") if isinstance(event, dict) else None
    if not isinstance(meta, dict):
        raise BadStreamError("the server sent an event without meta_info")
    return StreamEvent(meta, event.get("output_ids"), event.get("text"))


class TokenStream:
    """What one stream has brought so far. Feed it bytes as they arrive, in pieces of any size.

    `chunk_times` and `chunk_tokens` have one entry for each event that brought tokens. An event
    counts as arrived when its last byte has.
    """

    def __init__(self, parse_event: ParseEvent = parse_generate_event) -> None:
        self._parse_event = parse_event
        self.chunk_times: list[float] = []
        self.chunk_tokens: list[int] = []
        self.tokens = 0
        self.finish_reason: str | None = None
        self.abort_message: str | None = None
        self._meta: Mapping[str, Any] = {}
        self._text: list[str] = []
        """The answer in parts, joined when it is asked for."""
        self._text_length = 0
        self._rest = bytearray()
        """The beginning of a line whose end has not come."""
        self._is_over = False
        """`[DONE]` came."""
        self._ids: list[Any] = []
        self._ids_are_cumulative: bool | None = None
        self._begins: bytes | None = None
        """How events begin that may be counted unread; None where each has to be read."""
        self._unread: bytes | None = None
        """The newest event, where it was counted unread."""

    def feed(self, data: bytes, now: float) -> bool:
        """Take in what arrived at `now`; True where it brought tokens. Raises BadStreamError."""
        before = self.tokens
        *lines, rest = data.split(b"\n")
        if self._rest and lines:
            self._keep(lines[0])
            lines[0] = bytes(self._rest)
            self._rest.clear()
        for line in lines:
            if self._is_over:  # what comes after [DONE] is no part of the answer
                break
            if line and not self._counted(line, now):
                self._line(line.strip(), now)
        if rest and not self._is_over:
            self._keep(rest)
        return self.tokens > before

    def _keep(self, piece: bytes) -> None:
        """Add to the line whose end has not come. Raises BadStreamError where none will be."""
        self._rest += piece  # in place: each byte is copied once, however small the pieces are
        if len(self._rest) > LONGEST_LINE:
            raise BadStreamError(
                f"the server sent more than {LONGEST_LINE >> 20} MiB without the end of a line, "
                f"longer than any answer's event: {_shown(bytes(self._rest[:81]))}"
            )

    def finish(self, now: float) -> None:
        """Say that the stream has ended. Raises BadStreamError where it ended inside an event."""
        rest = bytes(self._rest.strip())
        self._rest.clear()
        if not self._is_over:
            self._line(rest, now)
        self._read_on()

    def _counted(self, line: bytes, now: float) -> bool:
        """Count the ids of an event that repeats the answer from its start, without reading it.

        Such events grow with the answer, and only their last one is of use: reading each would
        take the client more time than all else. False: the event has to be read.
        """
        if self._begins is None or not (line.startswith(self._begins) and line.endswith(b"}")):
            return False
        first = line.find(_IDS) + len(_IDS)
        last = line.find(b"]", first)
        if first < len(_IDS) or last <= first or line.find(_MORE_COMES, last) < 0:
            return False
        self._unread = line
        self._came(line.count(b",", first, last) + 1, now)
        return True

    def _read_on(self) -> None:
        """Read the newest event where it was only counted. Raises BadStreamError."""
        line, self._unread = self._unread, None
        if line is not None:
            self._event(line[5:], 0.0)

    def _line(self, line: bytes, now: float) -> None:
        if line.startswith(b"data:"):
            payload = line[5:].strip()
            if payload == b"[DONE]":
                self._is_over = True
            elif payload:
                self._event(payload, now)
        elif line and not line.startswith(_FIELDS):
            raise BadStreamError(f"the server sent what is not an event stream: {_shown(line)}")

    def _event(self, payload: bytes, now: float) -> None:
        event = _parsed(payload)
        if isinstance(event, dict) and event.get("error"):
            raise BadStreamError(f"the server reported an error: {_reported(event['error'])}")
        try:
            self._meta, ids, text = self._parse_event(event)
        except BadStreamError as error:
            raise BadStreamError(f"{error}: {_shown(payload)}") from error
        self._unread = None
        self._count(self._meta.get("completion_tokens"), ids, now)
        self._take_text(text)
        self._finish_reason(self._meta.get("finish_reason"))
        if self._ids_are_cumulative and self._begins is None:
            self._begins = b"data: " + payload[:BEGINNING]

    def _count(self, engines: Any, output_ids: Any, now: float) -> None:
        """Count what came by the token ids themselves, so that the engine's count can be checked.

        The engine's cumulative count stands in where a server sends no ids.
        """
        if isinstance(output_ids, list) and output_ids:
            total = self._total_of(output_ids, engines)
        else:
            total = engines if is_count(engines) and not self._ids else self.tokens
        self._came(total, now)

    def _came(self, total: int, now: float) -> None:
        if total > self.tokens:
            self.chunk_times.append(now)
            self.chunk_tokens.append(total - self.tokens)
            self.tokens = total

    def _total_of(self, ids: list[Any], engines: Any) -> int:
        """Tokens so far: an event holds all ids, or under --incremental-streaming-output new ones.

        The second event with ids tells which, by the engine's count where that fits one of both.
        """
        first = self._ids
        if not first:
            self._ids = list(ids)
            return len(ids)
        if self._ids_are_cumulative is None:
            if engines in (len(ids), self.tokens + len(ids)):
                self._ids_are_cumulative = engines == len(ids)
            else:
                self._ids_are_cumulative = ids[: len(first)] == first
        if self._ids_are_cumulative:
            self._ids = ids
            return len(ids)
        self._ids += ids
        return self.tokens + len(ids)

    def _take_text(self, text: Any) -> None:
        """Text comes as the ids do; without ids it is the whole where it begins as the last did."""
        if not isinstance(text, str):
            return
        whole = self._ids_are_cumulative
        if whole is None:  # a shorter one need not be held against all that came
            whole = len(text) >= self._text_length and text.startswith("".join(self._text))
        if whole:
            self._text, self._text_length = [], 0
        self._text.append(text)
        self._text_length += len(text)

    def _finish_reason(self, reason: Any) -> None:
        """SGLang sends `{"type": "length", "length": 16}`; null while tokens are to come."""
        if isinstance(reason, dict):
            self.finish_reason = str(reason.get("type"))
            if self.finish_reason == "abort":
                self.abort_message = str(reason.get("message") or "no reason given")
        elif isinstance(reason, str):
            self.finish_reason = reason

    @property
    def meta(self) -> Mapping[str, Any]:
        """The newest event's meta_info."""
        self._settle()
        return self._meta

    @property
    def text(self) -> str:
        """The answer so far; "" where the server sends no text."""
        self._settle()
        return "".join(self._text)

    def _settle(self) -> None:
        """Read what was only counted; an event that cannot be read tells nothing."""
        with contextlib.suppress(BadStreamError):
            self._read_on()

    @property
    def output_ids(self) -> "array[int] | None":
        """The answer's token ids so far, 4 bytes each; None where the server does not send them."""
        self._settle()
        try:
            return array("I", self._ids) if self._ids else None
        except (TypeError, OverflowError):  # something else than token ids
            return None

    @property
    def prompt_tokens(self) -> int | None:
        """The engine's count of the prompt."""
        return read_count(self.meta, ("prompt_tokens",))

    @property
    def cached_tokens(self) -> int | None:
        """How much of the prompt the engine's prefix cache had."""
        return read_count(self.meta, ("cached_tokens",))

    @property
    def engine_tokens(self) -> int | None:
        """The engine's last count of completion tokens."""
        return read_count(self.meta, ("completion_tokens",))

    @property
    def spec(self) -> SpecCounts | None:
        """The speculative counts, which come with the last event; None where there are none."""
        return spec_counts(self.meta)

    @property
    def engine_figures(self) -> dict[str, Any]:
        """The engine's own ratios, as it spelled them."""
        meta = self.meta
        return {name: meta[name] for name in ENGINE_FIGURES if name in meta}


BEGINNING = 9
"""Bytes that an event has in common with the one read before it: `{"text":"`."""

LONGEST_LINE = 64 * 2**20
"""Bytes of a line. The longest event repeats an answer of a million tokens, the most that a sweep
may ask for: 8 bytes of each for its id, and in text seldom over 10."""


def _parsed(payload: bytes) -> Any:
    """JSON as orjson takes it or, where it does not, the standard library: NaN, single surrogates.

    Raises BadStreamError.
    """
    try:
        return orjson.loads(payload)
    except ValueError:
        pass
    try:
        return json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise BadStreamError(
            f"the server sent an event that is not JSON: {_shown(payload)}"
        ) from error


def _reported(error: Any) -> str:
    message = error.get("message", error) if isinstance(error, dict) else error
    return " ".join(str(message).split())[:300]


def _shown(data: bytes) -> str:
    text = data[:80].decode(errors="replace")
    return repr(text) + (" ..." if len(data) > 80 else "")


# The names of one figure over SGLang's releases, newest first. Some releases send two of them.
CORRECT_DRAFTS = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
PROPOSED_DRAFTS = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")
ENGINE_FIGURES = ("spec_accept_rate", "spec_accept_length")

MOST = 2**31
"""Tokens or verifies of a request; a larger number is no count, and samples could not hold it."""


def spec_counts(meta: Mapping[str, Any]) -> SpecCounts | None:
    """The speculative counts; None where there are none."""
    verify_ct = read_count(meta, ("spec_verify_ct",))
    correct = read_count(meta, CORRECT_DRAFTS)
    if verify_ct is None or correct is None:
        return None
    histogram = next((meta[n] for n in HISTOGRAM if meta.get(n) is not None), None)
    if not isinstance(histogram, list) or not all(map(is_count, histogram)):
        histogram = None
    return SpecCounts(
        verify_ct=verify_ct,
        correct_drafts=correct,
        proposed_drafts=read_count(meta, PROPOSED_DRAFTS),
        histogram=None if histogram is None else tuple(histogram),
    )


def is_count(value: Any) -> bool:
    """Whether it is a number of tokens or verifies."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST


def read_count(meta: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """The first of `names` that is a count; None where none is."""
    return next((meta[name] for name in names if is_count(meta.get(name))), None)
