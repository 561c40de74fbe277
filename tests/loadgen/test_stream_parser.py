"""One answer's stream: a token counted wrong is a speed reported wrong."""

import json
import math
import random
import time
from collections.abc import Callable
from types import SimpleNamespace

import orjson
import pytest
from orjson import loads

from tuner.loadgen.stream_parser import BadStreamError, TokenStream

Event = tuple[list[int] | None, int | None]
"""(output_ids, completion_tokens), None where the server leaves it out."""


def fed(*events: Event) -> TokenStream:
    stream = TokenStream()
    for now, (ids, total) in enumerate(events):
        event: dict[str, object] = {"meta_info": {}}
        if total is not None:
            event["meta_info"] = {"completion_tokens": total}
        if ids is not None:
            event["output_ids"] = ids
        stream.feed(f"data: {json.dumps(event)}\n\n".encode(), float(now))
    return stream


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([([7], 1), ([7, 8, 9], 3), ([7, 8, 9, 9], 4)], id="all ids in each event"),
        pytest.param([([7], 1), ([8, 9], 3), ([9], 4)], id="new ids in each event"),
        pytest.param([([7], 1), ([7, 7], 3), ([7], 4)], id="new ids that look like all of them"),
        pytest.param([(None, 1), (None, 3), (None, 4)], id="text only"),
        pytest.param([([7], None), ([7, 8, 9], None), ([7, 8, 9, 9], None)], id="no count"),
    ],
)
def test_tokens_are_counted_as_every_release_streams_them(events: list[Event]) -> None:
    assert fed(*events).chunk_tokens == [1, 2, 1]


def test_the_answer_comes_whole_however_it_is_streamed() -> None:
    """A part of it would be held against the baseline's whole."""
    for ids, texts in (
        ([[7], [7, 8, 9], [7, 8, 9, 9]], ["a", "a b c", "a b c c"]),
        ([[7], [8, 9], [9]], ["a", " b c", " c"]),
    ):
        stream = TokenStream()
        for total, new, text in zip((1, 3, 4), ids, texts, strict=True):
            event = {"text": text, "output_ids": new, "meta_info": {"completion_tokens": total}}
            stream.feed(f"data: {json.dumps(event)}\n\n".encode(), 0.0)
        assert stream.output_ids is not None
        assert (stream.output_ids.tolist(), stream.text) == ([7, 8, 9, 9], "a b c c")


def test_ids_that_are_none_are_not_kept() -> None:
    """They cannot be compared, and a traceback would end the run."""
    assert fed((None, 1)).output_ids is None
    assert fed((["x"], 1)).output_ids is None  # type: ignore[list-item]
    assert fed(([-1], 1)).output_ids is None


def test_a_wrong_count_of_the_engine_does_not_become_the_clients() -> None:
    """The check that holds both counts against each other would have nothing to compare."""
    stream = fed(([7], 1), ([7, 8], 2), ([7, 8, 9], 5))
    assert (stream.tokens, stream.engine_tokens) == (3, 5)


NASTY = (
    " a",
    '","output_ids":[1,2,3],"x":"',
    '"finish_reason":null',
    "]}",
    "\\",
    '\\"output_ids":[',
    "é\n",
    "data: ",
)


def whole_events(draw: random.Random, tokens: int) -> list[dict[str, object]]:
    """As SGLang streams them: text and ids from the start in each event."""
    ids, text, events = [], "", []
    while len(ids) < tokens:
        for _ in range(min(draw.randint(1, 4), tokens - len(ids))):
            ids.append(draw.randint(0, 200_000))
            text += draw.choice(NASTY)
        reason = {"type": "length", "length": tokens} if len(ids) == tokens else None
        meta = {"id": "x", "finish_reason": reason, "completion_tokens": len(ids)}
        events.append({"text": text, "output_ids": list(ids), "meta_info": meta})
    return events


def told(stream: TokenStream) -> tuple[object, ...]:
    return (
        stream.chunk_times,
        stream.chunk_tokens,
        stream.tokens,
        stream.text,
        stream.output_ids,
        stream.finish_reason,
        dict(stream.meta),
    )


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("cut", [False, True])
def test_events_counted_unread_tell_what_those_read_do(seed: int, cut: bool) -> None:
    """A text that looks like a part of an event would change the count, or lose the answer."""
    draw = random.Random(seed)
    events = whole_events(draw, 40)[: -1 if cut else None]
    found = []
    for separators in ((",", ":"), (", ", ": ")):  # with spaces each event is read
        stream = TokenStream()
        for now, event in enumerate(events):
            line = json.dumps(event, separators=separators, ensure_ascii=False)
            stream.feed(f"data: {line}\n\n".encode(), float(now))
        stream.finish(99.0)
        found.append(told(stream))
    assert found[0] == found[1]
    assert sum(found[0][1]) == len(events[-1]["output_ids"])  # type: ignore[arg-type]


def test_of_a_long_answer_few_events_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each repeats the whole answer: reading them all would make the client what is measured."""
    read = []
    monkeypatch.setattr(
        "tuner.loadgen.stream_parser.orjson",
        SimpleNamespace(loads=lambda p: read.append(p) or loads(p)),
    )
    events = whole_events(random.Random(1), 1000)
    stream = TokenStream()
    for now, event in enumerate(events):
        stream.feed(b"data: " + orjson.dumps(event) + b"\n\n", float(now))
    assert stream.finish_reason == "length"
    assert (stream.tokens, len(stream.output_ids or ())) == (1000, 1000)
    assert len(read) == 3 < len(events) / 100


@pytest.mark.parametrize("breaks", [b"", b"}"])
def test_an_answer_that_breaks_off_keeps_what_was_whole(breaks: bytes) -> None:
    """What is read late must not be lost with what is broken."""
    first, second, third = (orjson.dumps(e) for e in whole_events(random.Random(2), 12)[:3])
    stream = TokenStream()
    for event in (first, second, third):
        stream.feed(b"data: " + event + b"\n\n", 0.0)
    with pytest.raises(BadStreamError, match="not JSON"):
        stream.feed(b"data: " + third[:-3] + breaks + b" \n\n", 1.0)
        stream.finish(1.0)
    assert stream.tokens == json.loads(third)["meta_info"]["completion_tokens"]


def test_json_of_the_standard_library_is_read_too() -> None:
    """A server that writes NaN or single surrogates, as Python's json does, is not a broken one."""
    event = {"text": "\ud83d", "meta_info": {"completion_tokens": 1, "spec_accept_rate": math.nan}}
    stream = TokenStream()
    stream.feed(f"data: {json.dumps(event)}\n\n".encode(), 0.0)
    assert (stream.tokens, stream.text) == (1, "\ud83d")


@pytest.mark.parametrize("after", [b'data: {"usage": {}}\n\n', b"bye\n", b"bye", b"data: [DONE]\n"])
def test_what_comes_after_done_is_no_part_of_the_answer(after: bytes) -> None:
    """A proxy's last words made a failure of an answer that was there, and of every one."""
    for pieces in ([b"data: [DONE]\n\n" + after], [b"data: [DONE]\n\n", after]):
        stream = fed(([7], 1), ([7, 8], 2))
        for piece in pieces:
            stream.feed(piece, 9.0)
        stream.finish(9.0)
        assert (stream.tokens, stream.chunk_times) == (2, [0.0, 1.0])


def seconds(work: Callable[[], object]) -> float:
    """CPU time of the quickest of a few times."""
    found = []
    for _ in range(5):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def a_line_without_end(size: int) -> TokenStream:
    stream = TokenStream()
    for _ in range(size // 256):
        stream.feed(b"x" * 256, 0.0)
    return stream


def new_text_in_each_event(size: int) -> TokenStream:
    """As `--incremental-streaming-output` sends it, of a server that sends no ids."""
    stream = TokenStream()
    for number in range(size // 256):
        stream._take_text(f"{number:256}")
    return stream


@pytest.mark.parametrize("read", [a_line_without_end, new_text_in_each_event])
def test_what_comes_in_small_pieces_takes_linear_time(read: Callable[[int], object]) -> None:
    """A broken proxy, or a very long answer, would keep the client busy instead of measuring."""
    size = 2**20
    assert seconds(lambda: read(2 * size)) < 3 * seconds(lambda: read(size))


def test_a_line_that_does_not_end_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fill the memory of the machine that is measured, one stream beside the other."""
    monkeypatch.setattr("tuner.loadgen.stream_parser.LONGEST_LINE", 2 * 2**20)
    event = json.dumps({"text": "x" * (2**21 - 100), "meta_info": {"completion_tokens": 1}})
    line = f"data: {event}\n".encode()
    assert 2**21 - 100 < len(line) < 2**21
    for step in (len(line), 100_000):
        stream = TokenStream()
        for first in range(0, len(line), step):
            stream.feed(line[first : first + step], 0.0)
        assert stream.tokens == 1
    with pytest.raises(BadStreamError, match=r"more than 2 MiB without the end.* 'data"):
        for _ in range(9):
            stream.feed(line[:-1], 1.0)
    assert stream.tokens == 1


def test_the_longest_answer_that_a_sweep_may_ask_for_fits() -> None:
    """A million tokens of ten letters and six digits: its last events are not refused."""
    event = {"text": "x" * 10**7, "output_ids": [100_000] * 10**6, "meta_info": {}}
    line = b"data: " + orjson.dumps(event) + b"\n\n"
    stream = TokenStream()
    for first in range(0, len(line), 2**18):
        stream.feed(line[first : first + 2**18], 0.0)
    assert stream.tokens == 10**6
