"""SpecForge's benchmarks/bench_eagle3.py: NAME_results_TIME.jsonl, which is one JSON object.

As of SpecForge's commit 1d666725eff3: beside `model`, the draft, each benchmark's name leads to a
list of `{batch_size, steps, topk, num_draft_tokens, metrics: [...], num_samples}`, `metrics` with
an entry a run. `output_throughput` is completion tokens by the wall time of the batch, at
`batch_size` threads. `accept_length` is completion tokens by verifies: the first token of each
answer, which prefill brings, counts too, and without speculation it is 1.
"""

from collections.abc import Iterator

from tuner.compare.external.documents import JsonDocument
from tuner.compare.external.record import NO_SPECULATION, UNSAID, ForeignRecord, name_configuration
from tuner.core.errors import NotComparable, UserError

TOOL = "SpecForge bench_eagle3.py"
NOTES = (
    "its accept length counts each answer's first token, which no verify brings, so it is higher "
    "than specbench's and not taken over",
    "the file names the draft and not the target",
)


def recognises(found: JsonDocument) -> bool:
    """Whether this is such an object."""
    return bool(_benchmarks(found))


def _benchmarks(found: JsonDocument) -> list[str]:
    return [
        name
        for name, value in found.fields.items()
        if isinstance(value, list)
        and value
        and isinstance(value[0], dict)
        and {"batch_size", "metrics", "num_draft_tokens"} <= set(value[0])
    ]


def read(found: JsonDocument) -> Iterator[ForeignRecord | NotComparable]:
    """A record for each run of each configuration, or why there is none of it. Raises UserError
    for a broken one."""
    for name in _benchmarks(found):
        for each in found.objects(name):
            concurrency = each.whole("batch_size")
            if not concurrency:
                raise UserError(f"{name} has a batch_size of 0", found.where)
            numbers = [each.whole(key) for key in ("steps", "topk", "num_draft_tokens")]
            unsaid = numbers == [None, None, None]
            configuration = UNSAID if unsaid else name_configuration(*numbers)
            samples = each.whole("num_samples")
            asked = f"{name}, {samples} questions" if samples else name
            for metrics in each.objects("metrics"):
                seconds, speed = metrics.needed("latency"), metrics.needed("output_throughput")
                if speed == 0:
                    message = f"{name}, {configuration} at {concurrency}: nothing was generated"
                    yield NotComparable(message, found.where)
                    continue
                yield ForeignRecord(
                    where=found.where,
                    concurrency=concurrency,
                    workload=asked,
                    configuration=configuration,
                    speculates=None if unsaid else configuration != NO_SPECULATION,
                    output_tok_s=speed,
                    tokens=round(speed * seconds),
                    seconds=seconds,
                )
