"""SGLang's scripts/playground/bench_speculative.py: JSONL, one line a configuration.

As of SGLang's commit 01d2a3d0d57b: `acc_length` is the server's `avg_spec_accept_length`;
`step_time` is the 20th percentile of the server's step times in s; `speed` is
`acc_length / step_time`: what one stream would reach if every step took that, and no throughput
that anyone measured.
"""

from collections.abc import Iterator

from tuner.compare.external.documents import JsonDocument
from tuner.compare.external.record import NO_SPECULATION, ForeignRecord, name_configuration
from tuner.core.errors import NotComparable

TOOL = "bench_speculative.py"
NOTES = (
    "its speed is accept length by the 20th percentile of the step times: no throughput, so no "
    "tok/s is taken from it; its step_time is no mean, so no cycle either",
    "accept lengths are the server's since its start, warm-up included, to 3 digits",
)


def recognises(found: JsonDocument) -> bool:
    """Whether this is a line of it."""
    return found.has("batch_size", "steps", "topk", "num_draft_tokens", "acc_length", "speed")


def read(found: JsonDocument) -> Iterator[ForeignRecord]:
    """Raises UserError for a broken line."""
    found.needed("speed")
    numbers = [found.whole(name) for name in ("steps", "topk", "num_draft_tokens")]
    configuration = name_configuration(*numbers)
    plain = configuration == NO_SPECULATION
    concurrency = found.whole("batch_size")
    if not concurrency:
        raise NotComparable("batch_size is 0, so nothing was measured", found.where)
    yield ForeignRecord(
        where=found.where,
        concurrency=concurrency,
        workload="its own eight prompts, 512 tokens each",
        configuration=configuration,
        speculates=not plain,
        accept_length=None if plain else found.needed("acc_length"),
    )
