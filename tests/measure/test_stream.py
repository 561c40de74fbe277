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


def test_a_wrong_count_of_the_engine_does_not_become_the_clients() -> None:
    """The check that holds both counts against each other would have nothing to compare."""
    stream = fed(([7], 1), ([7, 8], 2), ([7, 8, 9], 5))
    assert (stream.tokens, stream.engine_tokens) == (3, 5)
