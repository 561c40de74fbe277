"""SpecForge's benchmarks/bench_eagle3.py: NAME_results_TIME.jsonl, which is one JSON object.

As of SpecForge's commit 1d666725eff3: beside `model`, the draft, each benchmark's name leads to a
list of `{batch_size, steps, topk, num_draft_tokens, metrics: [...], num_samples}`, `metrics` with
an entry a run. `output_throughput` is completion tokens by the wall time of the batch, at
`batch_size` threads. `accept_length` is completion tokens by verifies: the first token of each
answer, which prefill brings, counts too, and without speculation it is 1.
"""

from collections.abc import Iterator
from dataclasses import replace

from tuner.compare.external.fields import Fields, Figure, Whole, read_fields
from tuner.compare.external.record import NO_SPECULATION, UNSAID, ForeignRecord, name_configuration
from tuner.core.errors import NotComparable
from tuner.core.json_items import Item

TOOL = "SpecForge bench_eagle3.py"
NOTES = (
    "its accept length counts each answer's first token, which no verify brings, so it is higher "
    "than specbench's and not taken over",
    "the file names the draft and not the target",
)


class Repeat(Fields):
    """One run of a configuration."""

    latency: Figure
    output_throughput: Figure


class Configuration(Fields):
    """A configuration and its runs on one benchmark."""

    batch_size: Whole | None = None
    steps: Whole | None = None
    topk: Whole | None = None
    num_draft_tokens: Whole | None = None
    num_samples: Whole | None = None
    metrics: list[Repeat]


def recognises(item: Item) -> bool:
    """Return True for an object of bench_eagle3.py."""
    return bool(_benchmarks(item))


def _benchmarks(item: Item) -> list[str]:
    return [
        name
        for name, value in item.value.items()
        if isinstance(value, list)
        and value
        and isinstance(value[0], dict)
        and {"batch_size", "metrics", "num_draft_tokens"} <= set(value[0])
    ]


def read(item: Item) -> Iterator[ForeignRecord | NotComparable]:
    """Yield a record for each run of each configuration, or the reason why it has none.

    Raises UserError for a broken one.
    """
    for name in _benchmarks(item):
        for value in item.value[name]:
            found = read_fields(Configuration, replace(item, value=value))
            if not found.batch_size:
                raise item.wrong(f"{name} has a batch_size of 0. Remove this entry.")
            yield from _records(found, name, found.batch_size, item.where)


def _records(
    found: Configuration, name: str, concurrency: int, where: str
) -> Iterator[ForeignRecord | NotComparable]:
    numbers = (found.steps, found.topk, found.num_draft_tokens)
    unknown = numbers == (None, None, None)
    configuration = UNSAID if unknown else name_configuration(*numbers)
    for repeat in found.metrics:
        if repeat.output_throughput == 0:
            message = f"{name}, {configuration} at {concurrency}: nothing was generated"
            yield NotComparable(message, where)
            continue
        yield ForeignRecord(
            where=where,
            concurrency=concurrency,
            workload=f"{name}, {found.num_samples} questions" if found.num_samples else name,
            configuration=configuration,
            speculates=None if unknown else configuration != NO_SPECULATION,
            output_tok_s=repeat.output_throughput,
            tokens=round(repeat.output_throughput * repeat.latency),
            seconds=repeat.latency,
        )
