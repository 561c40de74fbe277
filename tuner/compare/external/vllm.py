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

from tuner.compare.external.bench_serving import closed_loop, measured
from tuner.compare.external.documents import JsonDocument
from tuner.compare.external.record import UNSAID, ForeignRecord
from tuner.core.errors import NotComparable, UserError

TOOL = "vllm bench"
NOTES: tuple[str, ...] = ()


def recognises(found: JsonDocument) -> bool:
    """Whether this is a measurement, or the sweep's note of one that failed."""
    return found.has("model_id", "num_prompts", "max_concurrency") or _failed(found)


def _failed(found: JsonDocument) -> bool:
    return found.has("error_type", "error", "serve_overrides")


def read(found: JsonDocument) -> Iterator[ForeignRecord]:
    """Raises NotComparable for an open loop or no text generation, UserError for a broken file."""
    if _failed(found):
        words = f"{found.fields['error_type']}: {found.fields['error']}"[:200]
        raise NotComparable(f"this measurement failed ({words})", found.where)
    if "output_throughput" not in found and "input_sequence_throughput" in found:
        raise NotComparable("embeddings were measured here, no text was generated", found.where)
    concurrency = closed_loop(found)
    speculates = True if "spec_decode_acceptance_length" in found else None
    parameters = _parameters(found)
    workload = (
        f"{found.whole('num_prompts')} prompts of {found.whole('total_input_tokens')} tokens in all"
    )
    base = measured(found, concurrency, workload)
    rate = found.number("spec_decode_acceptance_rate")
    yield replace(
        base,
        configuration=parameters or ("speculating" if speculates else UNSAID),
        speculates=speculates,
        accept_length=found.number("spec_decode_acceptance_length") or None,
        accept_rate=None if rate is None else rate / 100,
        accept_rate_by_position=_positions(found),
        model=found.text("model_id"),
    )


def _positions(found: JsonDocument) -> tuple[float, ...] | None:
    name = "spec_decode_per_position_acceptance_rates"
    rates = tuple(found.numbers(name)) if found.fields.get(name) else ()
    if any(rate > 1 for rate in rates):
        raise UserError(f"{name} has a share above 1 in it: restore the file", found.where)
    return rates or None


def _parameters(found: JsonDocument) -> str:
    """What a sweep varied: the keys that it adds behind run_number."""
    names = list(found.fields)
    added = names[names.index("run_number") + 1 :] if "run_number" in names else []
    return ", ".join(f"{name}={_short(found.fields[name])}" for name in added)


def _short(value: Any) -> str:
    return str(value)[:60]
