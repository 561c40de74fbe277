"""`vllm bench serve --save-result` and `vllm bench sweep serve`: JSON, an object a measurement.

Format and definitions as in vLLM's vllm/benchmarks/serve.py (commit 009e6d4a1cd6) and
vllm/benchmarks/sweep/serve.py (commit 0031557f20f5): `output_throughput` is the tokens of
successful requests by the wall time; TTFT and TPOT are those of requests, in ms;
`spec_decode_acceptance_length` is 1 + accepted by drafts over the measurement, the bonus included;
`spec_decode_acceptance_rate` is accepted by drafted tokens, in percent;
`spec_decode_per_position_acceptance_rates` are shares of drafts. A sweep writes run=N.json and
summary.json, a list of them, and adds run_number and the parameters behind it.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tuner.compare.external.bench_serving import ServingFields, closed_loop, measured
from tuner.compare.external.fields import Figure, Share, Whole, has, read_fields
from tuner.compare.external.record import UNSAID, ForeignRecord
from tuner.core.errors import NotComparable
from tuner.core.json_items import Item

TOOL = "vllm bench"
NOTES: tuple[str, ...] = ()


class VllmBench(ServingFields):
    """One measurement of `vllm bench serve`."""

    model_id: str | None = None
    num_prompts: Whole | None = None
    total_input_tokens: Whole | None = None
    spec_decode_acceptance_length: Figure | None = None
    spec_decode_acceptance_rate: Figure | None = None
    spec_decode_per_position_acceptance_rates: list[Share] | None = None


def recognises(item: Item) -> bool:
    """Return True for a measurement, or a sweep's note of a failed one."""
    return has(item, "model_id", "num_prompts", "max_concurrency") or _failed(item)


def _failed(item: Item) -> bool:
    return has(item, "error_type", "error", "serve_overrides")


def read(item: Item) -> Iterator[ForeignRecord]:
    """Yield the measurement.

    Raises NotComparable for an open loop or if no text was generated, UserError for a broken file.
    """
    if _failed(item):
        reason = f"{item.value['error_type']}: {item.value['error']}"[:200]
        raise NotComparable(f"this measurement failed ({reason})", item.where)
    if has(item, "input_sequence_throughput") and not has(item, "output_throughput"):
        raise NotComparable("embeddings were measured here, no text was generated", item.where)
    found = read_fields(VllmBench, item)
    concurrency = closed_loop(found, item)
    speculates = True if has(item, "spec_decode_acceptance_length") else None
    workload = f"{found.num_prompts} prompts of {found.total_input_tokens} tokens in all"
    rate = found.spec_decode_acceptance_rate
    by_position = found.spec_decode_per_position_acceptance_rates
    yield replace(
        measured(found, item, concurrency, workload),
        configuration=_parameters(item.value) or ("speculating" if speculates else UNSAID),
        speculates=speculates,
        accept_length=found.spec_decode_acceptance_length or None,
        accept_rate=None if rate is None else rate / 100,
        accept_rate_by_position=tuple(by_position) if by_position else None,
        model=found.model_id,
    )


def _parameters(fields: dict[str, Any]) -> str:
    """Return the parameters that a sweep varied: the keys that it adds after run_number."""
    names = list(fields)
    added = names[names.index("run_number") + 1 :] if "run_number" in names else []
    return ", ".join(f"{name}={str(fields[name])[:60]}" for name in added)
