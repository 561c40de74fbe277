"""SGLang's scripts/playground/bench_speculative.py: JSONL, one line a configuration.

As of SGLang's commit 01d2a3d0d57b: `acc_length` is the server's `avg_spec_accept_length`;
`step_time` is the 20th percentile of the server's step times in s; `speed` is
`acc_length / step_time`: the speed of one stream if every step took `step_time`. It is not a
measured throughput.
"""

from collections.abc import Iterator

from tuner.compare.external.fields import Fields, Figure, Whole, has, read_fields
from tuner.compare.external.record import NO_SPECULATION, ForeignRecord, name_configuration
from tuner.core.errors import NotComparable
from tuner.core.json_items import Item

TOOL = "bench_speculative.py"
NOTES = (
    "its speed is accept length by the 20th percentile of the step times: no throughput, so no "
    "tok/s is taken from it; its step_time is no mean, so no cycle either",
    "accept lengths are the server's since its start, warm-up included, to 3 digits",
)


class BenchSpeculative(Fields):
    """One configuration of bench_speculative.py."""

    batch_size: Whole | None = None
    steps: Whole | None = None
    topk: Whole | None = None
    num_draft_tokens: Whole | None = None
    acc_length: Figure | None
    speed: Figure


def recognises(item: Item) -> bool:
    """Return True for a line of bench_speculative.py."""
    return has(item, "batch_size", "steps", "topk", "num_draft_tokens", "acc_length", "speed")


def read(item: Item) -> Iterator[ForeignRecord]:
    """Yield the measurement. Raises UserError for a broken line."""
    found = read_fields(BenchSpeculative, item)
    configuration = name_configuration(found.steps, found.topk, found.num_draft_tokens)
    speculates = configuration != NO_SPECULATION
    if not found.batch_size:
        raise NotComparable("batch_size is 0, so nothing was measured", item.where)
    if speculates and found.acc_length is None:
        raise item.wrong("acc_length is missing. The file is cut off: restore it.")
    yield ForeignRecord(
        where=item.where,
        concurrency=found.batch_size,
        workload="its own eight prompts, 512 tokens each",
        configuration=configuration,
        speculates=speculates,
        accept_length=found.acc_length if speculates else None,
    )
