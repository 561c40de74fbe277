"""`python -m sglang.bench_serving --output-file`: JSONL, one line a measurement.

Format and definitions as in SGLang 0.5.17's and 0.5.23's sglang/benchmark/serving.py:
`output_throughput` is the tokens of successful requests divided by the wall time; TTFT and TPOT
(time after the first token divided by the tokens after it) are means over requests, in ms;
`accept_length` is the server's `avg_spec_accept_length`: tokens per verify, bonus included, since
the server started.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tuner.compare.external.fields import Fields, Figure, Whole, has, read_fields
from tuner.compare.external.record import (
    NO_SPECULATION,
    UNSAID,
    ForeignRecord,
    Percentiles,
    name_configuration,
)
from tuner.core.errors import NotComparable
from tuner.core.json_items import Item
from tuner.metrics.samples import RequestSample, Window
from tuner.metrics.statistics import output_tok_s

TOOL = "sglang.bench_serving"
NOTES = (
    "accept lengths are the server's since its start, warm-up and earlier measurements included",
)
DETAILS = ("input_lens", "output_lens", "ttfts", "itls", "errors")
"""Fields that `--output-details` (SGLang) and `--save-detailed` (vLLM) add; seconds and tokens."""
_ROUNDING = 0.01
"""Share by which a file's throughput may differ from that of its requests."""


class ServingFields(Fields):
    """Fields that SGLang's and vLLM's benchmarks write with the same names and definitions."""

    duration: Figure
    output_throughput: Figure | None = None
    completed: Figure | None = None
    total_output_tokens: Whole | None = None
    request_rate: Any = None
    max_concurrency: Whole | None = None
    median_ttft_ms: Figure | None = None
    p90_ttft_ms: Figure | None = None
    p99_ttft_ms: Figure | None = None
    median_tpot_ms: Figure | None = None
    p90_tpot_ms: Figure | None = None
    p99_tpot_ms: Figure | None = None
    input_lens: list[Figure] | None = None
    output_lens: list[Figure] | None = None
    ttfts: list[Figure] | None = None
    itls: list[list[Figure]] | None = None
    errors: list[Any] | None = None


class ServerInfo(Fields):
    """Settings of the server. `decode` lists the decode servers of a disaggregated one."""

    model_path: str | None = None
    version: str | None = None
    speculative_algorithm: str | None = None
    speculative_num_steps: Whole | None = None
    speculative_eagle_topk: Whole | None = None
    speculative_num_draft_tokens: Whole | None = None
    simulated: Any = None
    decode: list["ServerInfo"] | None = None


class BenchServing(ServingFields):
    """One measurement of bench_serving."""

    dataset_name: str | None = None
    accept_length: Figure | None = None
    server_info: ServerInfo | None = None


def recognises(item: Item) -> bool:
    """Return True for a line of bench_serving."""
    return has(item, "backend", "dataset_name", "sharegpt_output_len", "max_concurrency")


def read(item: Item) -> Iterator[ForeignRecord]:
    """Yield the measurement. Raises NotComparable for an open loop, UserError for a broken line."""
    found = read_fields(BenchServing, item)
    concurrency = closed_loop(found, item)
    info = found.server_info or ServerInfo()
    info = info.decode[0] if info.decode else info
    speculates, configuration = _configuration(found, info)
    yield replace(
        measured(found, item, concurrency, _workload(found, item.value)),
        configuration=configuration,
        speculates=speculates,
        accept_length=found.accept_length or None,
        model=info.model_path,
        version=info.version,
        simulated="simulated" in info.model_fields_set,
    )


def measured(found: ServingFields, item: Item, concurrency: int, workload: str) -> ForeignRecord:
    """Return the record of the shared fields. Raises NotComparable if no request completed."""
    if found.output_throughput is None:
        raise item.wrong(
            "output_throughput is missing. The file is cut off or of another format: restore it."
        )
    if found.output_throughput == 0 or found.completed == 0:
        raise NotComparable("no request completed, so there is nothing to compare", item.where)
    window = read_window(found, item, concurrency)
    return ForeignRecord(
        where=item.where,
        concurrency=concurrency,
        workload=workload,
        configuration=UNSAID,
        speculates=None,
        output_tok_s=found.output_throughput,
        tokens=found.total_output_tokens,
        seconds=found.duration,
        ttft_ms=_percentiles(found, "ttft"),
        tpot_ms=_percentiles(found, "tpot"),
        windows=(window,) if window else (),
        prompts=None if window is None else _hash_prompt_lengths(window, workload),
    )


def closed_loop(found: ServingFields, item: Item) -> int:
    """Return how many requests were held open. Raises NotComparable for an open loop."""
    if found.request_rate not in (None, "inf", float("inf")):
        raise NotComparable(
            f"requests were sent at a request rate of {found.request_rate}; only measurements that "
            "hold N requests open compare. Measure with --max-concurrency N and without "
            "--request-rate.",
            item.where,
        )
    if not found.max_concurrency:
        raise NotComparable(
            "max_concurrency is not set, so all requests were sent at once. Measure with "
            "--max-concurrency N.",
            item.where,
        )
    return found.max_concurrency


def _percentiles(found: ServingFields, name: str) -> Percentiles:
    p50, p90, p99 = (getattr(found, f"{rank}_{name}_ms") for rank in ("median", "p90", "p99"))
    return p50, p90, p99


def _configuration(found: BenchServing, info: ServerInfo) -> tuple[bool | None, str]:
    if "speculative_algorithm" not in info.model_fields_set:
        if found.accept_length:
            return True, "speculating, settings not in the file"
        return None, UNSAID
    if info.speculative_algorithm is None:
        return False, NO_SPECULATION
    configuration = name_configuration(
        info.speculative_num_steps, info.speculative_eagle_topk, info.speculative_num_draft_tokens
    )
    return True, f"{info.speculative_algorithm}, {configuration}"


def _workload(found: BenchServing, fields: dict[str, Any]) -> str:
    dataset = found.dataset_name or "unknown"
    names = []
    if dataset.startswith(("random", "generated", "image")):
        names = ["random_input_len", "random_output_len", "random_range_ratio"]
    elif dataset == "sharegpt":
        names = ["sharegpt_output_len"]
    known = [f"{name} {fields[name]}" for name in names if fields.get(name) is not None]
    return ", ".join([f"dataset {dataset}", *known])


def read_window(found: ServingFields, item: Item, concurrency: int) -> Window | None:
    """Return the measurement with its requests.

    Returns None if the file has no requests, or requests of another throughput than its
    `output_throughput`: an interval would then belong to another figure.

    A request has two chunks here: the first token, and all others at the end. The prompt's id is
    its place in the file, the order in which requests were sent.
    """
    columns = [getattr(found, name) for name in DETAILS]
    if any(column is None for column in columns):
        return None
    if len({len(column) for column in columns}) != 1:
        raise item.wrong(f"{', '.join(DETAILS)} differ in length. Restore the file.")
    samples = tuple(
        _sample(place, int(sent), int(tokens), ttft, sum(gaps), str(error or ""))
        for place, (sent, tokens, ttft, gaps, error) in enumerate(zip(*columns, strict=True))
    )
    window = Window(concurrency, found.duration, 0.0, samples)
    made, stated = output_tok_s([window]), found.output_throughput
    if made is None or stated is None or abs(made - stated) > _ROUNDING * stated:
        return None
    return window


def _sample(
    place: int, prompt: int, tokens: int, ttft: float, rest: float, error: str
) -> RequestSample:
    failed = error or ("" if tokens else "no tokens")
    return RequestSample(
        prompt_id=f"{place}:{prompt}",
        kind="",
        sent=0.0,
        chunk_times=() if failed else (ttft, ttft + rest)[: min(tokens, 2)],
        chunk_tokens=() if failed else (1, tokens - 1)[: min(tokens, 2)],
        ended=ttft + rest,
        finish_reason=None,
        error=failed or None,
        timed_out=False,
        prompt_tokens=prompt,
        engine_tokens=None,
        requested_tokens=tokens,
        spec=None,
    )


def _hash_prompt_lengths(window: Window, workload: str) -> str:
    ids = " ".join(sample.prompt_id for sample in window.samples)
    return hashlib.sha256(f"{workload}\n{ids}".encode()).hexdigest()[:16]
