"""One answer's stream: a token counted wrong is a speed reported wrong."""

import json

import pytest

from tuner.measure.stream import TokenStream

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
